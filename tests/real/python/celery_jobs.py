"""Celery: a worker of its own process, the server as broker and as result backend. usage: celery_jobs.py PORT"""
import os
import subprocess
import sys

from celery import chain, chord, group
from redis import Redis

#: No result takes longer, unless something hangs.
SECONDS_MAX = 60

port = sys.argv[1]
os.environ["CELERY_PORT"] = port
from celery_tasks import add, app, fails, flaky, total  # noqa: E402: the port is read there

r = Redis(host="127.0.0.1", port=int(port))
r.flushall()
command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--pool", "threads", "--concurrency", "4"]
worker = subprocess.Popen(
    command + ["--loglevel", "CRITICAL", "--without-gossip", "--without-mingle"],
    cwd=os.path.dirname(os.path.abspath(__file__)), stdin=subprocess.DEVNULL,
)
try:
    assert add.delay(2, 3).get(timeout=SECONDS_MAX) == 5
    assert chain(add.s(1, 2), add.s(10))().get(timeout=SECONDS_MAX) == 13
    many = group(add.s(i, i) for i in range(50))()
    assert many.get(timeout=SECONDS_MAX) == [2 * i for i in range(50)]
    assert chord((add.s(i, 1) for i in range(20)), total.s())().get(timeout=SECONDS_MAX) == 210
    assert flaky.delay("tries").get(timeout=SECONDS_MAX) == 3, "it was tried three times"
    failing = fails.delay()
    try:
        failing.get(timeout=SECONDS_MAX)
        raise AssertionError("it does not fail")
    except ValueError as error:
        assert str(error) == "on purpose"
    assert failing.state == "FAILURE"
    assert add.apply_async((4, 4), priority=3).get(timeout=SECONDS_MAX) == 8
    assert add.apply_async((5, 5), countdown=0.2).get(timeout=SECONDS_MAX) == 10
    assert app.control.ping(timeout=SECONDS_MAX, limit=1), "the worker answers over publish and subscribe"
    assert 0 < Redis(host="127.0.0.1", port=int(port), db=1).ttl(b"celery-task-meta-" + failing.id.encode()) <= 3600
finally:
    worker.terminate()
    try:
        worker.wait(timeout=20)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
assert r.llen("celery") == 0, "nothing is left in the queue"
print("ok   Celery: a worker, chains, groups, chords, retries, a countdown, remote control")
