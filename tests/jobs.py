#!/usr/bin/env python3
"""`strand jobs`: the service that runs imports, as a user runs it, by its command line and over HTTP.

usage: jobs.py STRAND_BINARY [WORD ...]. JOBS sets how many jobs share one budget (default 40). Every server is on a free port of
127.0.0.1 and is ended by its pid. Prints "N passed, M failed" and exits 1 when a check fails.
"""
import base64
import collections
import contextlib
import functools
import json
import os
import random
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request

import sources
from harness import free_port
from sources import counts, mail

CHECKS = []
JOBS = int(os.environ.get("JOBS", "40"))
BUDGET_MB = 256
# How long anything may take; nothing waits so long when all is well.
WAIT_S = 300


def check(function):
    CHECKS.append(function)
    return function


def until(what, reason):
    deadline = time.time() + WAIT_S
    while not (found := what()):
        assert time.time() < deadline, f"waited for {reason}"
        time.sleep(0.005)
    return found


class Service:
    """`strand jobs serve`."""

    def __init__(self, world, text="", memory=f"{BUDGET_MB}M", running=8):
        self.world, self.port = world, free_port()
        world.write("jobs.toml", f'listen = "127.0.0.1:{self.port}"\nmemory = "{memory}"\nrunning = {running}\n'
                    f'state = "{world.folder}/state"\n{text}')
        self.start()

    def start(self):
        self.process = self.world.start(self.port, [self.world.binary, "jobs", "serve", f"{self.world.folder}/jobs.toml"])
        self.pid = self.process.process.pid

    def kill(self):
        self.process.process.kill()
        self.process.process.wait()

    def __call__(self, *words, code=0):
        server = ["--server", f"127.0.0.1:{self.world.strand.port}"] if words[0] == "add" else []
        done = self.world.run("jobs", *words, "--json", "--service", f"127.0.0.1:{self.port}", *server)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def http(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def job(self, name):
        return self.http("GET", f"/v1/jobs/{name}")[1]

    def children(self, name=None):
        """Processes of runs, of one job or of all."""
        found = []
        for pid in children_of(self.pid):
            with contextlib.suppress(OSError):
                words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
                if b"--supervised" in words and (name is None or name.encode() in words):
                    found.append(pid)
        return found


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += map(int, open(f"/proc/{pid}/task/{task}/children").read().split())
    return found


def children_of_perhaps(pid):
    try:
        return children_of(pid)
    except OSError:
        return []


def state_of(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


def fill(world, name, count, body="text\n"):
    for i in range(count):
        world.write(f"{name}/{i // 20:03}/{i:05}.eml", mail(f"message {i}", body))
    return f"{world.folder}/{name}"


def add(service, name, source, *more):
    return service("add", name, source, *more)[0]


@check
def jobs_are_defined_run_and_told_of(world):
    docs = fill(world, "docs", 60)
    world.write("docs/bad.eml", b"\0\1")
    server = f'server = "127.0.0.1:{world.strand.port}"'
    service = Service(world, f'[[job]]\nname = "fixed"\nsource = "{docs}"\n{server}\noptions = ["--include", "000/*"]\n')
    assert add(service, "more", docs, "--priority", "3")["state"] == "idle"
    done = service("run", "more", "--wait")[0]
    assert done["last"]["outcome"] == "done" and done["last"]["summary"]["added"] == 60 and done["failed"] == 1, done
    assert [(e["path"], e["outcome"]) for e in service("errors", "more")] == [("bad.eml", "failed")]
    world.write("docs/bad.eml", mail("mended"))
    done = service("retry", "more", "--wait")[0]
    assert counts(done["last"]["summary"]) == [1, 0, 0, 60, 0] and service("errors", "more") == [], done
    assert service("run", "fixed", "--wait")[0]["last"]["summary"]["added"] == 20
    assert [job["name"] for job in service("list")] == ["fixed", "more"]
    # The file's own jobs are the file's; wrong definitions say what is wrong.
    assert service.http("DELETE", "/v1/jobs/fixed")[0] == 409
    for body, word in [({}, "source"), ({"source": "x", "every": "soon"}, "soon"), ({"source": "x", "options": ["--json"]}, "--json"),
                       ({"source": "x", "options": ["--include", "a["]}, "--include"), ({"source": "x", "options": ["--region", "r"]}, "--region"),
                       ({"source": "x", "into": "more", "server": f"127.0.0.1:{world.strand.port}"}, "already belongs"),
                       ({"source": "x", "options": ["--db", "3"]}, "--no-index")]:
        status, said = service.http("PUT", "/v1/jobs/odd", body)
        assert status in (400, 409) and word in said["error"], (status, said)
    assert service.http("POST", "/v1/jobs/nobody/run")[0] == 404 and service.http("GET", "/v2")[0] == 404
    # Figures for Prometheus, of all runs together.
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=WAIT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
        figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    for figure, number in [('documents_total{job="more",outcome="added"}', 61), ('documents_total{job="more",outcome="failed"}', 1),
                           ('runs_total{job="more",outcome="done"}', 2), ('documents_total{job="fixed",outcome="added"}', 20),
                           ('failures{job="more"}', 0), ('running{job="fixed"}', 0), ("memory_budget_bytes", BUDGET_MB << 20)]:
        assert float(figures["strand_job_" + figure]) == number, (figure, figures)
    service("remove", "more")
    assert [job["name"] for job in service("list")] == ["fixed"] and world.client.dbsize() == 81
    # A source that is not there, and one that has lost most of what it had.
    add(service, "nowhere", f"{world.folder}/nowhere")
    assert service("run", "nowhere", "--wait", code=1)[0]["last"]["outcome"] == "stopped"
    big = fill(world, "big", 300)
    add(service, "big", big)
    service("run", "big", "--wait")
    for folder in range(1, 15):
        shutil.rmtree(f"{big}/{folder:03}")
    stopped = service("run", "big", "--wait", code=1)[0]["last"]
    assert stopped["outcome"] == "stopped" and "280 of 300 documents would be removed" in stopped["error"], stopped
    assert world.client.dbsize() == 381
    # Beside a second service over the same state.
    second = world.run("jobs", "serve", f"{world.folder}/jobs.toml")
    assert second.returncode == 1 and "another `strand jobs serve` uses this folder" in second.stderr, second
    # What the cache did is in the list.
    options = ["--cache", f"{world.folder}/cache"]
    service.http("PUT", "/v1/jobs/cached", {"source": docs, "server": f"127.0.0.1:{world.strand.port}", "options": options})
    for _ in range(2):
        assert service("run", "cached", "--wait")[0]["last"]["outcome"] == "done"
    listed = world.run("jobs", "list", "--service", f"127.0.0.1:{service.port}").stdout
    assert "; cache: 0 parts (0 bytes) and 0 texts from it, 0 parts from the source" in listed.split("cached: ")[1], listed


@check
def a_run_that_is_refused_does_not_wait(world):
    docs = fill(world, "docs", 3)
    service = Service(world)
    add(service, "docs", docs)
    service("pause", "docs")
    for verb in ("run", "retry"):
        assert "is paused" in service(verb, "docs", "--wait", code=1)[0]["message"]
    # With a queued run the job would wait.
    assert service("resume", "docs")[0]["state"] == "idle"
    service("run", "docs", "--wait")
    assert service.job("docs")["runs"] == 1, service.job("docs")
    # Without --wait the run waits for the end of the pause.
    service("pause", "docs")
    assert service("run", "docs")[0]["state"] == "paused"
    service("resume", "docs")
    until(lambda: service.job("docs")["runs"] == 2, "the run that waited")


@check
def requests_of_runs_are_figures(world):
    world.write("web/box.zip", sources.zipped(one_eml=mail("one")))
    seen = []

    class Web(sources.Plain):
        def log_request(self, code="-", size="-"):
            seen.append((self.command, int(code)))

    web = sources.in_thread(functools.partial(Web, directory=f"{world.folder}/web"))
    host = f"127.0.0.1:{web.server_port}"
    service = Service(world)

    def figures():
        with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=WAIT_S) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if "_http_" in line and not line.startswith("#")]
        return {name: float(number) for name, number in lines}

    def figure(what, job, method, status):
        return figures().get(f'strand_job_http_{what}_total{{job="{job}",method="{method}",host="{host}",status="{status}"}}', 0)

    try:
        for name, file in [("box", "box.zip"), ("gone", "gone.zip")]:
            add(service, name, f"http://{host}/{file}")
        service("run", "box", "--wait")
        good = collections.Counter(seen)
        seen.clear()
        service("run", "gone", "--wait", code=1)
        missing = collections.Counter(seen)
        assert set(missing.values()) and {code for _, code in missing} == {404}, missing
        for job, requests in [("box", good), ("gone", missing)]:
            for method in {method for method, _ in requests}:
                for status in "2345":
                    number = sum(count for (m, code), count in requests.items() if m == method and str(code)[0] == status)
                    assert figure("requests", job, method, f"{status}xx") == number, (job, method, status, requests, figures())
        assert figure("received_bytes", "box", "GET", "2xx") >= os.path.getsize(f"{world.folder}/web/box.zip"), figures()
        assert figure("seconds", "box", "GET", "2xx") > 0 and figure("sent_bytes", "box", "GET", "2xx") == 0, figures()
        # They outlive the service.
        before = figures()
        service.kill()
        service.start()
        assert before and figures() == before, (before, figures())
    finally:
        web.shutdown()
        web.server_close()


@check
def a_password_is_in_no_argument_of_a_run(world):
    """The web server looks at the arguments of the run while the run waits for the answer."""
    world.write("web/box.zip", sources.zipped(one_eml=mail("one")))
    seen = []

    class Web(sources.Plain):
        def send_head(self):
            arguments = [open(f"/proc/{pid}/cmdline").read() for pid in service.children("box")]
            seen.append((self.headers["Authorization"], arguments))
            return super().send_head()

    web = sources.in_thread(functools.partial(Web, directory=f"{world.folder}/web"))
    service = Service(world)
    try:
        add(service, "box", f"http://ada:s3cret@127.0.0.1:{web.server_port}/box.zip")
        service("run", "box", "--wait")
        login = "Basic " + base64.b64encode(b"ada:s3cret").decode()
        assert seen and all(header == login for header, _ in seen), seen
        assert all(len(arguments) == 1 for _, arguments in seen), seen
        assert all("ada:***@" in text and "s3cret" not in text for _, (text,) in seen), seen
        assert world.client.exists("box:box.zip/one.eml"), list(world.client.scan_iter("*"))
    finally:
        web.shutdown()
        web.server_close()


@check
def a_change_that_cannot_be_saved_is_told(world):
    docs = fill(world, "docs", 3)
    service = Service(world)
    add(service, "docs", docs)
    # The new state is written under this name. A folder in its place is an error as a full disk is, also for root.
    in_the_way = f"{world.folder}/state/jobs.json.new"
    os.mkdir(in_the_way)
    status, told = service.http("POST", "/v1/jobs/docs/pause")
    assert status == 507 and "cannot write" in str(told), (status, told)
    os.rmdir(in_the_way)
    assert service.http("POST", "/v1/jobs/docs/resume")[0] == 200
    assert service.http("POST", "/v1/jobs/docs/pause")[0] == 200
    service.kill()
    service.start()
    assert service.job("docs")["state"] == "paused"


@check
def a_folder_that_changes_is_imported(world):
    docs = fill(world, "docs", 3)
    service = Service(world)
    assert add(service, "seen", docs, "--watch", "50ms")["state"] == "idle"

    def has(number):
        return lambda: world.client.dbsize() == number and service.job("seen")["state"] == "idle"

    until(has(3), "the run at the beginning")
    world.write("docs/000/new.eml", mail("new"))
    until(has(4), "a file in a folder")
    world.write("docs/a/b/c/deep.eml", mail("deep"))
    until(has(5), "a folder in folders that are new")
    world.write("docs/a/b/c/second.eml", mail("second"))
    until(has(6), "a second file there")
    os.rename(f"{docs}/a/b", f"{docs}/moved")
    until(lambda: world.client.exists("seen:moved/c/deep.eml") and not world.client.exists("seen:a/b/c/deep.eml"), "a move")
    world.write("docs/moved/c/third.eml", mail("third"))
    until(has(7), "a file in a folder that moved")
    os.remove(f"{docs}/moved/c/third.eml")
    until(has(6), "a file that went")
    assert service.job("seen")["watch"] == "watched"
    # The folder goes and comes back; the job is changed, and goes.
    os.rename(docs, f"{docs}.away")
    until(lambda: "gone" in service.job("seen")["watch"] or "No such file" in service.job("seen")["watch"], "a folder that is gone")
    os.rename(f"{docs}.away", docs)
    until(lambda: service.job("seen")["watch"] == "watched", "the folder")
    world.write("docs/000/back.eml", mail("back"))
    until(has(7), "a file after that")
    status, said = service.http("PUT", "/v1/jobs/odd", {"source": "s3://bucket", "watch": "1s"})
    assert status == 400 and "only a folder" in said["error"], (status, said)
    service("remove", "seen")
    assert [job["name"] for job in service("list")] == []


@check
def intervals_never_overlap_and_one_dataset_has_one_importer(world):
    docs = fill(world, "docs", 40, "long text\n" * 200)
    service = Service(world)
    # Each run takes longer than the interval.
    add(service, "often", docs, "--every", "20ms", "--jitter", "5ms", "--rate", "400k")
    most = 0

    def has_run_thrice():
        nonlocal most
        most = max(most, len(service.children("often")))
        return service.job("often")["runs"] >= 3

    until(has_run_thrice, "three runs")
    assert most == 1, most
    service("remove", "often")

    world.client.flushall()
    add(service, "slow", docs, "--rate", "5k")
    service("run", "slow")
    until(lambda: world.client.dbsize() > 2, "documents")
    server = ["--server", f"127.0.0.1:{world.strand.port}"]
    refused = world.run("import", docs, "--into", "slow", *server)
    assert refused.returncode == 6 and "another import" in refused.stderr, refused
    waits = subprocess.Popen([world.binary, "import", docs, "--into", "slow", "--wait", *server], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"another import" in waits.stderr.readline()
    service("cancel", "slow")
    out, _ = waits.communicate(timeout=WAIT_S)
    assert waits.returncode == 0 and b"slow: " in out and world.client.dbsize() == 40, out


@check
def pause_resume_cancel_and_a_service_that_is_killed(world):
    docs = fill(world, "docs", 400, "long text\n" * 200)
    service = Service(world)
    add(service, "slow", docs, "--rate", "200k")
    service("run", "slow")
    until(lambda: world.client.dbsize() > 20, "documents")
    (pid,) = service.children("slow")
    began = time.time()
    assert service.http("POST", "/v1/jobs/slow/pause")[1]["state"] == "paused"
    until(lambda: state_of(pid) == "T", "a stopped process")
    paused_ms = (time.time() - began) * 1000
    service("resume", "slow")
    until(lambda: state_of(pid) != "T", "a running process")

    # Killed in the middle: the next service goes on at the container it was in.
    before = until(lambda: world.client.dbsize() > 100 and world.client.dbsize(), "documents")
    service.kill()
    until(lambda: state_of(pid) in ("gone", "Z"), "the end of the run, which nobody listens to")
    world.client.set("odd", "1")
    service.start()
    done = until(lambda: (job := service.job("slow"))["state"] == "idle" and job["runs"] > 0 and job, "the end")
    summary = done["last"]["summary"]
    assert world.client.dbsize() == 401 and summary["unchanged"] >= before - 20 - 1 and summary["failed"] == 0, (before, summary)

    shutil.rmtree(f"{docs}/000")
    fill(world, "docs", 380, "another text\n" * 200)
    service("run", "slow")
    until(lambda: service.job("slow")["state"] == "running" and service.children("slow"), "a run")
    (pid,) = service.children("slow")
    began = time.time()
    service.http("POST", "/v1/jobs/slow/cancel")
    until(lambda: state_of(pid) in ("gone", "Z"), "a cancelled run")
    cancelled_ms = (time.time() - began) * 1000
    until(lambda: service.job("slow")["state"] == "idle", "an idle job")
    assert service.job("slow")["last"]["outcome"] == "cancelled"
    assert service("run", "slow", "--wait")[0]["last"]["outcome"] == "done" and world.client.dbsize() == 401
    print(f"     paused in {paused_ms:.0f} ms, cancelled in {cancelled_ms:.0f} ms; {summary['unchanged']} of 400 documents not done again")


def memory_mb(pids):
    """What the processes hold together of their own, and what is mapped of files: the program's own pages, shared ones once."""
    own, mapped = 0, 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = open(f"/proc/{pid}/smaps_rollup").read().splitlines()
            kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
            own += kilobytes["Pss_Anon:"] + kilobytes["Pss_Shmem:"]
            mapped += kilobytes["Pss_File:"]
    return own / 1024, mapped / 1024


@check
def many_jobs_stay_within_one_budget(world):
    dice = random.Random(5)
    service = Service(world, running=64)
    expected = 0
    for i in range(JOBS):
        count = dice.randrange(2, 12)
        for k in range(count):
            world.write(f"many/{i}/{k}.eml", mail(f"message {k} of {i}"))
        # Most are small; some ask for more, and a few for so much that they run alone.
        size = dice.choice([0, 0, 0, 100_000, 2_000_000, 5_000_000, 12_000_000])
        if size:
            line = json.dumps({"number": i, "text": "word " * 30})
            world.write(f"many/{i}/large.json", "[" + ",".join([line] * (size // len(line))) + "]")
            count += 1
        expected += count
        service.http("PUT", f"/v1/jobs/j{i}", {
            "source": f"{world.folder}/many/{i}", "server": f"127.0.0.1:{world.strand.port}", "priority": i % 3, "options": ["--no-index"]})
    idle, idle_mapped = memory_mb([service.pid])
    peak, peak_mapped, at_once, waits, over = 0.0, 0.0, 0, set(), threading.Event()

    def watch():
        nonlocal peak, peak_mapped, at_once
        while not over.is_set():
            pids = service.children()
            at_once = max(at_once, len(pids))
            # A run may have a process of its own that extracts.
            below = [child for pid in pids for child in children_of_perhaps(pid)]
            own, mapped = memory_mb([service.pid, *pids, *below])
            peak, peak_mapped = max(peak, own), max(peak_mapped, mapped)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        began = time.time()
        for i in range(JOBS):
            assert service.http("POST", f"/v1/jobs/j{i}/run")[0] == 200

        def is_over():
            listed = service.http("GET", "/v1/jobs")[1]
            assert listed["held_bytes"] <= listed["budget_bytes"], listed
            waits.update(job["waits"] for job in listed["jobs"] if "would need" in job.get("waits", ""))
            return all(job["state"] == "idle" for job in listed["jobs"])

        until(is_over, "all jobs")
        took = time.time() - began
    finally:
        over.set()
        watcher.join()
    for job in service.http("GET", "/v1/jobs")[1]["jobs"]:
        assert job["last"]["outcome"] == "done" and job["last"]["summary"]["failed"] == 0, job
    assert world.client.dbsize() == expected, (world.client.dbsize(), expected)
    # The program's pages are the page cache's, once for all processes, and many where it is built for tests: they are no part of the budget.
    assert idle < peak <= BUDGET_MB * 1.1, (idle, peak)
    assert peak_mapped <= os.path.getsize(world.binary) / 2**20, peak_mapped
    assert waits, "nobody had to wait"
    print(f"     {JOBS} jobs, up to {at_once} at once, in {took:.0f} s: at most {peak:.0f} of {BUDGET_MB} MB (idle {idle:.0f}) "
          f"and {peak_mapped:.0f} MB of the program (idle {idle_mapped:.0f}); e.g. {sorted(waits)[-1]!r}")


if __name__ == "__main__":
    sources.main("jobs.py", CHECKS)
