"""What the jobs of celery_jobs.py do; CELERY_PORT is the server's port."""
import os

from celery import Celery
from redis import Redis

port = os.environ["CELERY_PORT"]
app = Celery("jobs", broker=f"redis://127.0.0.1:{port}/0", backend=f"redis://127.0.0.1:{port}/1")
app.conf.update(
    result_expires=3600, broker_connection_retry_on_startup=True, broker_transport_options={"visibility_timeout": 600}
)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def fails():
    raise ValueError("on purpose")


@app.task(bind=True, max_retries=5)
def flaky(self, name):
    tries = Redis(host="127.0.0.1", port=int(port), db=2).incr(name)
    if tries < 3:
        raise self.retry(countdown=0.05)
    return tries
