#!/usr/bin/env python3
"""`strand import` as a user runs it: remote sources from real servers (rclone's S3 server, with signed requests, and its web server;
Python's web server, which knows no ranges), PDF by the real pdftotext, and what to do about documents that failed.

usage: sources.py STRAND_BINARY. rclone comes from .venv (scripts/setup.sh) or from the variable RCLONE; with the variable
VERSITYGW the S3 server is that one (make test-real). Every server is on a
free port of 127.0.0.1 and is ended by its pid. Prints "N passed, M failed" and exits 1 when a check fails.
"""
import functools
import glob
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import shutil
import signal
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile

import redis

from harness import Handler, Process, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEY, SECRET = "testkey", "test/secret+key"
# How long rclone's servers remember a folder's listing, in seconds. With 0 each GET reads the whole folder: a bucket of 1,015 objects
# took 15 s of processor time in place of 4.
LISTING_S = 0.02
# Some megabytes that do not pack like a bomb's. Signs in place of letters: 50,000 words to index took 13 s of processor time.
SIGNS = str.maketrans("0123456789abcdef", "!#$%()*+,-/:;?@^")
LONG = "".join(f"{hashlib.sha256(str(i).encode()).hexdigest()}\n" for i in range(50_000)).translate(SIGNS)
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def rclone():
    named = os.environ.get("RCLONE")
    found = [named] if named else glob.glob(f"{ROOT}/.venv/lib/python*/site-packages/rclone_api/bin/rclone")
    if not found:
        raise SystemExit("sources.py: no rclone: run scripts/setup.sh, or name one in RCLONE")
    if not os.access(found[0], os.X_OK):
        os.chmod(found[0], os.stat(found[0]).st_mode | stat.S_IXUSR)
    return found[0]


class World:
    """A Strand server and a folder for the data, both fresh for each check."""

    def __init__(self, binary):
        self.binary = binary
        self.folder = tempfile.mkdtemp(prefix="strand-sources-")
        self.processes = []
        self.has_rclone = False
        port = free_port()
        serve = [binary, "serve", "--port", str(port), "--bind", "127.0.0.1", "--http-port", "0", "--loglevel", "warning", "--save", "", "--dir", self.folder]
        self.strand = self.start(port, serve)
        self.client = redis.Redis(port=port)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        self.environment.update(HOME=self.folder, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)

    def start(self, port, arguments, environment=None):
        process = Process(port, arguments, environment)
        self.processes.append(process)
        return process

    def close(self):
        self.client.close()
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, path, data):
        whole = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())

    def s3(self, is_tagged=False):
        """An S3 server over <folder>/s3: each folder there is a bucket. rclone's, or the versitygw that a variable names, which
        has no entity tags for files that were not put through it."""
        port = free_port()
        os.makedirs(os.path.join(self.folder, "s3"), exist_ok=True)
        if (versitygw := os.environ.get("VERSITYGW")) and not is_tagged:
            environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
            self.start(port, [versitygw, "--port", f"127.0.0.1:{port}", "--quiet", "posix", f"{self.folder}/s3"], environment)
            return f"http://127.0.0.1:{port}"
        self.has_rclone = True
        arguments = [rclone(), "--config", "", "serve", "s3", os.path.join(self.folder, "s3"), "--addr", f"127.0.0.1:{port}"]
        self.start(port, arguments + ["--auth-key", f"{KEY},{SECRET}", "--dir-cache-time", f"{LISTING_S}s"])
        return f"http://127.0.0.1:{port}"

    def run(self, *arguments, environment=None):
        if self.has_rclone:
            time.sleep(LISTING_S)  # Until rclone has forgotten what a folder held before the test changed it.
        return subprocess.run(
            [self.binary, *arguments], env=environment or self.environment, capture_output=True, text=True, timeout=1800
        )

    def imports(self, source, *more, code=0, environment=None):
        """Imports with --json; the last line, and the lines before it."""
        server = f"127.0.0.1:{self.strand.port}"
        done = self.run("import", source, "--into", "d", "--server", server, "--json", *more, environment=environment)
        assert done.returncode == code, (done.returncode, done.stderr[-2000:])
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[-1], lines[:-1]

    def ids(self):
        return sorted(key.decode()[2:] for key in self.client.scan_iter("d:*", count=1000))


def counts(summary):
    return [summary[name] for name in ("added", "updated", "removed", "unchanged", "failed")]


def mail(subject, body="text"):
    return f"From: a@b.example\nSubject: {subject}\n\n{body}\n"


def zipped(**files):
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name.replace("_", ".", 1), text)
        file.seek(0)
        return file.read()


def fill_bucket(world, many=1_010):
    """A bucket with prefixes, an empty object, a large mail, an archive, odd names, and one prefix of `many` objects: more than a page."""
    world.write("s3/data/in/one.eml", mail("one"))
    world.write("s3/data/in/deep/er/two.eml", mail("two"))
    world.write("s3/data/in/empty.txt", "")
    world.write("s3/data/in/large.eml", mail("large", "many words of a line\n" * 200_000))
    world.write("s3/data/in/box.zip", zipped(three_eml=mail("three"), four_txt="4"))
    world.write("s3/data/in/o d&d+<name>%41 \u00e9.txt", "odd")
    for i in range(many):
        world.write(f"s3/data/many/{i:05}.txt", str(i))
    return 6 + 2 + many


@check
def a_bucket_is_imported_and_followed(world):
    endpoint, documents = world.s3(), fill_bucket(world)
    first, lines = world.imports("s3://data", "--endpoint", endpoint)
    failed = [line for line in lines if line.get("outcome") == "failed"]
    assert counts(first) == [documents, 0, 0, 0, 0], (first, failed)
    # The oracle lists the same keys; of the archive it sees one.
    remote = f":s3,provider=Other,list_url_encode=false,endpoint='{endpoint}',access_key_id={KEY},secret_access_key='{SECRET}':data"
    oracle = subprocess.run(
        [rclone(), "--config", "", "lsf", "-R", "--files-only", remote], capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()
    held = {i for i in world.ids() if not i.startswith("in/box.zip/")}
    assert set(oracle) == held, (set(oracle) - held, held - set(oracle))
    assert world.client.hget("d:in/large.eml", "body").startswith(b"many words") and world.client.hlen("d:in/empty.txt") > 0
    assert len(world.client.hget("d:in/large.eml", "body")) > 4_000_000
    assert world.client.hget("d:in/box.zip/three.eml", "subject") == b"three"

    # An unchanged bucket costs its listings, each once: a request a prefix, and one more for the prefix with over 1,000 keys.
    log = f"{world.folder}/requests"
    again, _ = world.imports("s3://data/", "--endpoint", endpoint, "--log-requests", log)
    assert counts(again) == [0, 0, 0, documents, 0] and again["opened"] == 0, again
    with open(log) as file:
        requests = file.readlines()
    assert len(requests) == again["containers"] + 1, (again["containers"], requests)

    world.write("s3/data/in/one.eml", mail("ONE"))
    os.remove(f"{world.folder}/s3/data/many/00007.txt")
    world.write("s3/data/new/x.eml", mail("new"))
    changed, lines = world.imports("s3://data", "--endpoint", endpoint)
    assert counts(changed) == [1, 1, 1, documents - 2, 0] and changed["opened"] == 2, changed
    told = sorted((line["outcome"], line["path"]) for line in lines if line["event"] == "document")
    assert told == [("added", "new/x.eml"), ("removed", "many/00007.txt"), ("updated", "in/one.eml")], told

    prefix, _ = world.imports("s3://data/in", "--endpoint", endpoint, "--max-delete", "100%", "--type", "mail")
    assert prefix["added"] + prefix["updated"] + prefix["unchanged"] == 3, prefix
    assert world.ids() == ["deep/er/two.eml", "large.eml", "one.eml"]

    same = world.run("diff", "s3://data", f"{world.folder}/s3/data", "--endpoint", endpoint, "--json")
    assert same.returncode == 0, (same.returncode, same.stdout[-500:], same.stderr)
    world.write("s3/data/in/one.eml", mail("TWO"))
    other = world.run("diff", "s3://data/in", f"{world.folder}/s3/data/many", "--endpoint", endpoint, "--quiet")
    assert other.returncode == 1 and "1009 added, 0 updated, 6 removed" in other.stdout, other.stdout


@check
def what_moves_in_a_bucket_is_not_parsed_again(world):
    endpoint = world.s3(is_tagged=True)
    for i in range(30):
        world.write(f"s3/data/a/{i}.eml", mail(f"number {i}", "x" * i))
    world.write("s3/data/stays.eml", mail("stays"))
    world.imports("s3://data", "--endpoint", endpoint)

    def follow(expected, moved):
        done, _ = world.imports("s3://data", "--endpoint", endpoint)
        assert counts(done) == expected and done["moved"] == moved, done
        held = {path: world.client.hget(f"d:{path}", "subject").decode() for path in world.ids()}
        for path, subject in held.items():
            with open(f"{world.folder}/s3/data/{path}") as file:
                assert f"Subject: {subject}\n" in file.readlines(), (path, subject)
        assert world.client.dbsize() == len(held) == 31, (world.client.dbsize(), len(held))

    os.makedirs(f"{world.folder}/s3/data/b")
    os.rename(f"{world.folder}/s3/data/a", f"{world.folder}/s3/data/b/c")
    follow([30, 0, 30, 1, 0], 30)
    # Above its own prefix, which stays; and two that swap their names. The times in a listing are whole seconds.
    os.rename(f"{world.folder}/s3/data/b/c/7.eml", f"{world.folder}/s3/data/seven.eml")
    for one, other in (("8", "hold"), ("9", "8"), ("hold", "9")):
        os.rename(f"{world.folder}/s3/data/b/c/{one}.eml", f"{world.folder}/s3/data/b/c/{other}.eml")
    follow([1, 2, 1, 28, 0], 3)


@check
def credentials_come_from_where_the_sdks_look(world):
    endpoint = world.s3()
    world.write("s3/data/one.eml", mail("one"))
    bare = {k: v for k, v in world.environment.items() if not k.startswith("AWS_")}
    world.write(".aws/credentials", f"[other]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}\n[bad]\naws_access_key_id={KEY}\naws_secret_access_key=y\n")
    world.write(".aws/config", f"[profile other]\nregion = us-east-1\nendpoint_url = {endpoint}\n")
    named, _ = world.imports("s3://data", "--profile", "other", environment=bare)
    assert counts(named) == [1, 0, 0, 0, 0], named
    by_variable, _ = world.imports("s3://data", environment={**bare, "AWS_PROFILE": "other"})
    assert counts(by_variable) == [0, 0, 0, 1, 0], by_variable
    endpoint_too, _ = world.imports("s3://data", environment={**world.environment, "AWS_ENDPOINT_URL": endpoint})
    assert counts(endpoint_too) == [0, 0, 0, 1, 0], endpoint_too

    wrong, _ = world.imports("s3://data", "--endpoint", endpoint, "--profile", "bad", code=5, environment=bare)
    assert wrong["event"] == "error" and "SignatureDoesNotMatch" in wrong["message"], wrong
    # A profile that is in no file is a mistake, whether an option or a variable names it.
    for arguments, variables in ((["--profile", "typo"], {}), ([], {"AWS_PROFILE": "typo"})):
        typo, _ = world.imports("s3://data", *arguments, code=5, environment={**bare, **variables})
        assert '"typo"' in typo["message"] and ".aws/credentials" in typo["message"], typo
    # Nothing listens at the port, so the machine has no credentials.
    nothing, _ = world.imports("s3://data", "--endpoint", endpoint, code=5,
                               environment={**bare, "HOME": "/none", "AWS_METADATA_ENDPOINT": "http://127.0.0.1:1"})
    assert "AWS_ACCESS_KEY_ID" in nothing["message"] and "--anonymous" in nothing["message"], nothing
    nobody, _ = world.imports("s3://data", "--endpoint", endpoint, "--anonymous", code=5, environment=bare)
    assert "the server answers" in nobody["message"], nobody
    missing, _ = world.imports("s3://none", "--endpoint", endpoint, code=5)
    assert "s3://none" in missing["message"], missing
    assert world.ids() == ["one.eml"]


@check
def an_emptied_bucket_removes_nothing(world):
    endpoint = world.s3()
    for i in range(150):
        world.write(f"s3/data/a/{i}.eml", mail(str(i)))
    assert world.imports("s3://data", "--endpoint", endpoint)[0]["added"] == 150
    shutil.rmtree(f"{world.folder}/s3/data/a")
    stopped, _ = world.imports("s3://data", "--endpoint", endpoint, code=4)
    assert "150 of 150" in stopped["message"], stopped
    assert len(world.ids()) == 150


def hand_on(handler, target):
    """Hands a request on to the server at `target`, and the answer back."""
    connection = http.client.HTTPConnection(*target, timeout=20)
    connection.putrequest("GET", handler.path, skip_host=True, skip_accept_encoding=True)
    for name, value in handler.headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    got = connection.getresponse()
    body = got.read()
    # rclone answers ranges with 200: here it is mended, so that the importer reads by ranges.
    status = 206 if got.getheader("Content-Range") else got.status
    keep = [(n, v) for n, v in got.getheaders() if n.lower() not in ("content-length", "transfer-encoding", "connection")]
    Busy.answer(handler, status, keep, body)
    connection.close()


class Busy(Handler):
    """Answers the first two requests of each kind with 503 and hands on the third: a server that is asked too much."""

    seen, lock, target = {}, threading.Lock(), None

    def do_GET(self):
        kind = (self.path, self.headers.get("Range"))
        with self.lock:
            self.seen[kind] = self.seen.get(kind, 0) + 1
            busy = self.seen[kind] <= 2
        if busy:
            body = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
            return self.answer(503, [("Content-Type", "application/xml"), ("Retry-After", "0")], body)
        hand_on(self, self.target)

    def answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers + [("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # The importer closes a connection when it does not want the rest of an answer.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def in_thread(handler):
    server = Threads(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@check
def a_server_that_is_too_busy_is_asked_again(world):
    endpoint = world.s3()
    for i in range(5):
        world.write(f"s3/data/{i}.eml", mail(str(i)))
    world.write("s3/data/long.eml", mail("long", LONG))
    Busy.target = ("127.0.0.1", int(endpoint.rsplit(":", 1)[1]))
    Busy.seen = {}
    proxy = in_thread(Busy)
    try:
        done, _ = world.imports("s3://data", "--endpoint", f"http://127.0.0.1:{proxy.server_port}")
        assert counts(done) == [6, 0, 0, 0, 0], done
        assert world.client.hget("d:long.eml", "body").decode() == LONG.rstrip()
        ranges = {kind[1] for kind in Busy.seen if kind[0] == "/data/long.eml"}
        assert len(ranges) == 5 and None not in ranges, ranges
        assert len(Busy.seen) == 1 + 5 + 5 and set(Busy.seen.values()) == {3}, Busy.seen
    finally:
        proxy.shutdown()
        proxy.server_close()


class Counting(Handler):
    """Hands requests on and counts those for bodies, and how many are under way at a time. The first request for a body waits until
    a second one is there. While `busy` is more than 0 it says for how many seconds nobody shall ask."""

    lock, target = threading.Condition(), None
    bodies = under_way = most = busy = 0
    refused_at, early = None, 0

    def do_GET(self):
        cls = Counting
        is_body = "list-type=" not in self.path
        with cls.lock:
            now = time.monotonic()
            if cls.refused_at and now < cls.refused_at[0] + cls.refused_at[1]:
                cls.early += 1
            busy, cls.busy = cls.busy if is_body else 0, 0 if is_body else cls.busy
            if busy:
                cls.refused_at = (now, busy)
            cls.bodies += is_body
            cls.under_way += is_body
            cls.most = max(cls.most, cls.under_way)
            cls.lock.notify_all()
            if is_body and cls.bodies == 1:
                cls.lock.wait_for(lambda: cls.most > 1, timeout=20)
        try:
            if busy:
                body = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"
                return Busy.answer(self, 503, [("Content-Type", "application/xml"), ("Retry-After", str(busy))], body)
            hand_on(self, cls.target)
        finally:
            with cls.lock:
                cls.under_way -= is_body


class Meddling(Handler):
    """Hands requests on. Before the first request for a body that `meddle` knows, it does what stands there."""

    target, meddle = None, {}

    def do_GET(self):
        path = self.path.split("?")[0]
        Meddling.meddle.pop(path, lambda: None)()
        hand_on(self, Meddling.target)


@check
def objects_that_go_or_change_after_the_listing_are_told_and_come_right(world):
    endpoint = world.s3(is_tagged=True)
    for name in ["gone", "changed", "stays"]:
        world.write(f"s3/data/{name}.eml", mail(name))
    world.write("s3/data/long.eml", mail("long", LONG))
    Meddling.target = ("127.0.0.1", int(endpoint.rsplit(":", 1)[1]))
    Meddling.meddle = {
        "/data/gone.eml": lambda: os.remove(f"{world.folder}/s3/data/gone.eml"),
        "/data/changed.eml": lambda: world.write("s3/data/changed.eml", mail("changed since")),
        "/data/long.eml": lambda: world.write("s3/data/long.eml", mail("longer", LONG + LONG)),
    }
    proxy = in_thread(Meddling)
    try:
        proxied = ["--endpoint", f"http://127.0.0.1:{proxy.server_port}"]
        first, lines = world.imports("s3://data", *proxied)
        assert not Meddling.meddle, Meddling.meddle
        failed = {line["path"]: line["reason"] for line in lines if line.get("outcome") == "failed"}
        # No document is half of one version and half of another one.
        kept = {key: world.client.hget(f"d:{key}", "subject") for key in world.ids()}
        assert set(failed) >= {"gone.eml"} and first["failed"] == len(failed), (first, failed)
        assert kept["stays.eml"] == b"stays" and kept.get("long.eml", b"longer") == b"longer", (kept, failed)
        # The next run sends what is there.
        again, _ = world.imports("s3://data", *proxied)
        assert again["failed"] == 0, again
        subjects = [world.client.hget(f"d:{name}.eml", "subject") for name in ["gone", "changed", "stays", "long"]]
        assert subjects == [None, b"changed since", b"stays", b"longer"], subjects
        assert len(world.client.hget("d:long.eml", "body")) == len(LONG + LONG) - 1
    finally:
        proxy.shutdown()
        proxy.server_close()


def counting(world):
    """The S3 server behind one that counts."""
    endpoint = world.s3(is_tagged=True)
    Counting.target = ("127.0.0.1", int(endpoint.rsplit(":", 1)[1]))
    Counting.bodies = Counting.under_way = Counting.most = Counting.busy = Counting.early = 0
    Counting.refused_at = None
    proxy = in_thread(Counting)
    return proxy, f"http://127.0.0.1:{proxy.server_port}"


@check
def documents_are_asked_for_some_at_a_time_and_read_in_order(world):
    for i in range(60):
        world.write(f"s3/data/{i:03}.eml", mail(str(i)))
    proxy, endpoint = counting(world)
    try:
        done, lines = world.imports("s3://data", "--endpoint", endpoint)
        assert counts(done) == [60, 0, 0, 0, 0], done
        told = [line["path"] for line in lines if line["event"] == "document"]
        assert told == sorted(told) and len(told) == 60, told
        assert Counting.bodies == 60 and 2 <= Counting.most <= 16, (Counting.bodies, Counting.most)
    finally:
        proxy.shutdown()
        proxy.server_close()


@check
def a_server_says_how_long_it_wants_to_be_left_alone(world):
    for i in range(5):
        world.write(f"s3/data/{i}.eml", mail(str(i)))
    proxy, endpoint = counting(world)
    try:
        # The last of five: four are under way already when it is refused.
        Counting.most, Counting.busy = 2, 0
        assert world.imports("s3://data", "--endpoint", endpoint)[0]["added"] == 5
        world.write("s3/data/new.eml", mail("new"))
        Counting.busy = 2
        done, _ = world.imports("s3://data", "--endpoint", endpoint)
        assert counts(done) == [1, 0, 0, 5, 0] and Counting.refused_at and Counting.early == 0, (done, Counting.early)
    finally:
        proxy.shutdown()
        proxy.server_close()


def cached(world, name="cache"):
    """The options of a cache that a disk without much free space keeps, too."""
    world.write(f"{name}.conf", f"dir {world.folder}/{name}\nbrun 2%\nbcull 1%\nbstop 0%\nfrun 2%\nfcull 1%\nfstop 0%\n")
    return ["--cache-config", f"{world.folder}/{name}.conf"]


@check
def a_cache_answers_the_second_time(world):
    # Pages of a listing are no matter of the cache: few objects, since each is asked for twice by way of Python.
    documents = fill_bucket(world, 110)
    proxy, endpoint = counting(world)
    # The first object is read alone: the proxy must not wait for a second request.
    Counting.most = 2
    cache = [*cached(world), "--endpoint", endpoint]
    try:
        first, _ = world.imports("s3://data", *cache)
        assert counts(first) == [documents, 0, 0, 0, 0] and first["cache"]["stored_bytes"] > 4_000_000, first
        keys = {key: world.client.hgetall(key) for key in world.client.scan_iter("d:*", count=1000)}
        world.client.flushall()
        Counting.bodies = 0
        again, _ = world.imports("s3://data", *cache)
        assert counts(again) == counts(first) and Counting.bodies == 0, (again, Counting.bodies)
        assert again["cache"]["misses"] == 0 and again["cache"]["texts"] >= documents - 17, again["cache"]
        assert {key: world.client.hgetall(key) for key in world.client.scan_iter("d:*", count=1000)} == keys
        # What changed is asked for, and nothing else.
        world.client.flushall()
        world.write("s3/data/in/one.eml", mail("ONE"))
        changed, _ = world.imports("s3://data", *cache)
        assert counts(changed) == counts(first) and Counting.bodies == 1, (changed, Counting.bodies)
        assert world.client.hget("d:in/one.eml", "subject") == b"ONE"
        # A damaged cache is asked for again; one that cannot be written is not used.
        for path in glob.glob(f"{world.folder}/cache/strand-cache/*/objects/*/*"):
            with open(path, "r+b") as file:
                file.write(b"!")
        world.client.flushall()
        damaged, _ = world.imports("s3://data", *cache)
        assert counts(damaged) == counts(first) and Counting.bodies >= documents - 17, (damaged, Counting.bodies)
        assert world.client.hget("d:in/one.eml", "subject") == b"ONE"
        world.write("taken", "")
        world.client.flushall()
        aside, _ = world.imports("s3://data/in", "--endpoint", endpoint, "--cache", f"{world.folder}/taken")
        assert aside["failed"] == 0 and "taken" in aside["cache"]["aside"], aside
    finally:
        proxy.shutdown()
        proxy.server_close()


@check
def runs_of_different_sources_at_once_all_have_a_cache(world):
    for name in ["one", "two"]:
        for i in range(20):
            world.write(f"{name}/{i}.eml", mail(f"{name} {i}"))
    place, cache = (lambda name: f"{world.folder}/{name}"), cached(world)
    server = f"127.0.0.1:{world.strand.port}"
    # In a database of its own, because a flush of its database would end this run.
    beside = ["--db", "1", "--no-index"]
    slow = [world.binary, "import", place("one"), "--into", "slow", "--server", server, "--json", "--rate", "10", *beside, *cache]
    first = subprocess.Popen(slow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert first.stdout.readline(), "the first run has opened its source and its cache"
        for run in range(2):
            world.client.flushdb()
            done, _ = world.imports(place("two"), *cache)
            assert counts(done) == [20, 0, 0, 0, 0] and "aside" not in done["cache"], done
            assert (done["cache"]["texts"], done["cache"]["stored_bytes"] > 0) == (20 * run, run == 0), done
        # A second run of one source works without a cache, and says so.
        done, _ = world.imports(place("one"), *cache)
        assert done["failed"] == 0 and "another run of this source" in done["cache"]["aside"], done
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
        first.stdout.close()


@check
def a_full_disk_fails_what_is_unpacked_to_it_and_nothing_else(world):
    small = f"{world.folder}/small"
    os.makedirs(small)
    world.write("docs/a.eml", mail("fine"))
    # More than the 4 MiB that are unpacked in memory.
    world.write("docs/large.txt.gz", gzip.compress((LONG * 2).encode()))
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        print("  no mount on this machine: skipped")
        return
    try:
        done, lines = world.imports(f"{world.folder}/docs", environment={**os.environ, "TMPDIR": small})
        reasons = [line["reason"] for line in lines if line.get("outcome") == "failed"]
        assert len(reasons) == 1 and "No space left" in reasons[0], (done, reasons)
        assert world.client.hget("d:a.eml", "subject") == b"fine" and os.listdir(small) == []
    finally:
        subprocess.run(["umount", small], check=True)
    # With space it is read.
    done, _ = world.imports(f"{world.folder}/docs")
    assert done["failed"] == 0 and world.client.hget("d:large.txt.gz/large.txt", "body"), done


@check
def a_full_disk_makes_the_cache_step_aside(world):
    for i in range(40):
        world.write(f"s3/data/{i}.bin.txt", LONG[i * 1000 : i * 1000 + 200_000])
    os.makedirs(f"{world.folder}/small")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", f"{world.folder}/small"]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        print("  no mount on this machine: skipped")
        return
    try:
        # No thresholds that would keep it from the last block.
        world.write("conf", f"dir {world.folder}/small\nbrun 2%\nbcull 1%\nbstop 0%\nfrun 2%\nfcull 1%\nfstop 0%\nnocull\n")
        done, _ = world.imports("s3://data", "--endpoint", world.s3(is_tagged=True), "--cache-config", f"{world.folder}/conf")
        assert counts(done) == [40, 0, 0, 0, 0] and done["cache"]["aside"], done
    finally:
        subprocess.run(["umount", f"{world.folder}/small"], check=True)


@check
def a_web_servers_archive_comes_from_the_cache(world):
    world.write("web/box.zip", zipped(one_eml=mail("one"), two_eml=mail("two", LONG)))
    seen = []

    class Tagged(Handler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            with open(f"{world.folder}/web/box.zip", "rb") as file:
                data = file.read()
            seen.append(self.command)
            first, last = 0, len(data) - 1
            if asked := self.headers.get("Range"):
                first, last = (int(n) for n in asked.removeprefix("bytes=").split("-"))
                last = min(last, len(data) - 1)
            self.send_response_only(206 if asked else 200)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("Content-Length", str(last - first + 1))
            if asked:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data[first : last + 1])


    server = in_thread(Tagged)
    try:
        url = f"http://127.0.0.1:{server.server_port}/box.zip"
        log = f"{world.folder}/requests"
        first, _ = world.imports(url, *cached(world), "--log-requests", log)
        assert counts(first) == [3, 0, 0, 0, 0] and "GET" in seen, (first, seen)
        # Each request is told as the server saw it, and the summary has the sums.
        with open(log) as lines:
            told = [json.loads(line) for line in lines]
        assert [line["method"] for line in told] == seen, (told, seen)
        assert all(line["host"] == url.split("/")[2] and line["status"] in (200, 206) for line in told), told
        assert all(line["received_bytes"] > 0 and line["microseconds"] > 0 for line in told), told
        assert sum(row["requests"] for row in first["requests"]) == len(seen), first
        world.client.flushall()
        seen.clear()
        again, _ = world.imports(url, *cached(world))
        assert counts(again) == [3, 0, 0, 0, 0] and set(seen) == {"HEAD"}, (again, seen)
    finally:
        server.shutdown()
        server.server_close()


def serve_http(world, *more):
    world.has_rclone = True
    port = free_port()
    arguments = [rclone(), "--config", "", "serve", "http", f"{world.folder}/web", "--addr", f"127.0.0.1:{port}"]
    world.start(port, arguments + ["--dir-cache-time", f"{LISTING_S}s", *more])
    return f"http://127.0.0.1:{port}"


@check
def an_archive_of_a_web_server_is_imported_by_ranges(world):
    world.write("web/a/box one.zip", zipped(one_eml=mail("one"), two_eml=mail("two", LONG)))
    url = serve_http(world) + "/a/box%20one.zip"
    first, _ = world.imports(url)
    assert counts(first) == [3, 0, 0, 0, 0], first
    assert world.ids() == ["box one.zip", "box one.zip/one.eml", "box one.zip/two.eml"]
    again, _ = world.imports(url)
    assert counts(again) == [0, 0, 0, 3, 0] and again["opened"] == 0, again
    world.write("web/a/box one.zip", zipped(one_eml=mail("ONE"), two_eml=mail("two", LONG)))
    os.utime(f"{world.folder}/web/a/box one.zip", (2e9, 2e9))
    changed, lines = world.imports(url)
    assert counts(changed) == [0, 1, 0, 2, 0], (changed, lines)
    missing, _ = world.imports(url + "x", code=5)
    assert missing["event"] == "error", missing


@check
def a_web_server_may_want_a_password(world):
    world.write("web/x.eml", mail("secret"))
    url = serve_http(world, "--user", "ada", "--pass", "pass word")
    refused, _ = world.imports(url + "/x.eml", code=5)
    assert "401" in refused["message"], refused
    wrong, _ = world.imports(url.replace("//", "//ada:hidden@") + "/x.eml", code=5)
    assert "401" in wrong["message"] and "hidden" not in json.dumps(wrong), wrong
    done, _ = world.imports(url.replace("//", "//ada:pass%20word@") + "/x.eml")
    assert counts(done) == [1, 0, 0, 0, 0] and world.client.hget("d:x.eml", "subject") == b"secret"


class Plain(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@check
def a_server_without_ranges_sends_everything_once(world):
    world.write("web/box.zip", zipped(one_eml=mail("one"), two_eml=mail("two", LONG)))
    server = in_thread(functools.partial(Plain, directory=f"{world.folder}/web"))
    try:
        url = f"http://127.0.0.1:{server.server_port}/box.zip"
        first, _ = world.imports(url)
        assert counts(first) == [3, 0, 0, 0, 0] and len(world.client.hget("d:box.zip/two.eml", "body")) == len(LONG.rstrip())
        again, _ = world.imports(url)
        assert counts(again) == [0, 0, 0, 3, 0] and again["opened"] == 0, again
        missing, _ = world.imports(url.replace("box", "no"), code=5)
        assert "no.zip" in missing["message"] and "404" in missing["message"], missing
    finally:
        server.shutdown()
        server.server_close()
    gone, _ = world.imports("http://127.0.0.1:1/box.zip", code=5)
    assert "127.0.0.1:1" in gone["message"], gone


def pdf(*pages):
    """A PDF file with a line of text on each page."""
    objects, kids = [b"<< /Type /Catalog /Pages 2 0 R >>", None, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"], []
    for text in pages:
        drawn = f"BT /F1 18 Tf 72 700 Td ({text}) Tj ET".encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn))
        page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
        objects.append((page % len(objects)).encode())
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = (len(objects) + 1, table, len(objects) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % end


@check
def pdf_files_are_read_by_a_child_that_may_die(world):
    world.write("docs/two.pdf", pdf("the first page", "the second one"))
    world.write("docs/broken.pdf", b"%PDF-1.4\n" + b"<<" * 1000)
    done, lines = world.imports(f"{world.folder}/docs")
    assert counts(done) == [1, 0, 0, 0, 1], lines
    assert world.client.hget("d:two.pdf", "body").split(b"\n\n") == [b"the first page", b"the second one"]
    assert world.client.hget("d:two.pdf", "kind") == b"pdf" and world.client.hget("d:broken.pdf", "name") == b"broken.pdf"
    assert not world.client.hexists("d:broken.pdf", "body")
    # Children that misbehave: one that says far too much, one that falls, one that complains far too much before it says anything.
    children = [
        ("yes words | head -c 20000000", 8 << 20),
        ("echo part; kill -SEGV $$", 4),
        ("yes complaint | head -c 1000000 >&2; echo words", 5),
    ]
    for number, (script, body) in enumerate(children):
        world.write("bin/child", f"#!/bin/sh\ncat >/dev/null\n{script}\n")
        os.chmod(f"{world.folder}/bin/child", 0o755)
        world.write(f"docs/{number}.pdf", pdf("x"))
        environment = {**world.environment, "STRAND_PDFTOTEXT": f"{world.folder}/bin/child"}
        world.imports(f"{world.folder}/docs", environment=environment)
        got = world.client.hstrlen("d:%d.pdf" % number, "body")
        assert max(body - 8, 1) <= got <= body, (script, got)


def office(text):
    """A word processor's document with a paragraph."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("word/document.xml", f'<w:document xmlns:w="w"><w:p><w:t>{text}</w:t></w:p></w:document>')
    return packed.getvalue()


def extractors_of(pid):
    """The processes that extract documents for the import `pid`."""
    found = []
    for stat_file in glob.glob("/proc/[0-9]*/stat"):
        try:
            parent = int(open(stat_file).read().rsplit(")", 1)[1].split()[1])
            words = open(os.path.dirname(stat_file) + "/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if parent == pid and b"extract" in words:
            found.append(int(stat_file.split("/")[2]))
    return found


@check
def one_process_extracts_all_documents_and_a_new_one_takes_over(world):
    for number in range(30):
        world.write(f"docs/{number:02}.docx", office(f"words of {number}"))
        world.write(f"docs/{number:02}.html", f"<p>page {number}</p>" + "<p>more</p>" * 20_000)
        world.write(f"docs/{number:02}.json", json.dumps({"n": number}))
    done, _ = world.imports(f"{world.folder}/docs")
    assert counts(done) == [90, 0, 0, 0, 0] and done["extractors"] == 1, done
    assert world.client.hget("d:07.docx", "body") == b"words of 7" and world.client.hget("d:07.html", "body").startswith(b"page 7\nmore\n")
    assert world.client.hget("d:07.json", "json.n") == b"7"
    small, _ = world.imports(f"{world.folder}/docs", "--include", "*.json", "--max-delete", "100%")
    assert counts(small) == [0, 0, 60, 30, 0] and small["extractors"] == 0, small

    # The process is killed while documents are still to come: a new one takes them, and the one that was under way.
    arguments = ["import", f"{world.folder}/docs", "--into", "e", "--server", f"127.0.0.1:{world.strand.port}", "--json", "--rate", "1500k"]
    running = subprocess.Popen([world.binary, *arguments], env=world.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        deadline = time.time() + 120
        while not (found := extractors_of(running.pid)):
            assert running.poll() is None and time.time() < deadline, "no process extracts"
            time.sleep(0.005)
        # The importer bounds the memory of its extractor right after the start.
        while "Max address space " + str(1 << 30) not in (limits := " ".join(open(f"/proc/{found[0]}/limits").read().split())):
            assert running.poll() is None and time.time() < deadline, limits
            time.sleep(0.005)
        os.kill(found[0], signal.SIGKILL)
        told, _ = running.communicate(timeout=300)
    finally:
        running.kill()
        running.wait()
    done = json.loads(told.splitlines()[-1])
    assert counts(done) == [90, 0, 0, 0, 0] and done["extractors"] == 2, done
    assert all(world.client.hget(f"e:{n:02}.docx", "body") == b"words of %d" % n for n in range(30))


@check
def what_failed_is_listed_and_read_again_alone(world):
    world.write("docs/a.pdf", pdf("some words"))
    world.write("docs/bad.eml", "no mail\n")
    world.write("docs/good.eml", mail("good"))
    without = {**world.environment, "STRAND_PDFTOTEXT": f"{world.folder}/no-such-program"}
    first, _ = world.imports(f"{world.folder}/docs", "--strict", code=3, environment=without)
    assert counts(first) == [1, 0, 0, 0, 2], first
    server = ["--server", f"127.0.0.1:{world.strand.port}"]
    told = world.run("jobs", "errors", "d", *server)
    assert told.returncode == 0 and told.stdout.splitlines() == [
        f"a.pdf: {world.folder}/no-such-program is not installed: install Debian's poppler-utils, or name the program that reads PDF by STRAND_PDFTOTEXT",
        "bad.eml: there is no header field",
        "d: 2 documents in 1 containers, 2 failed",
    ], (told.stdout, told.stderr)
    again, _ = world.imports(f"{world.folder}/docs", "--retry-failed")
    assert counts(again) == [0, 1, 0, 1, 1], again
    assert world.client.hget("d:a.pdf", "body") == b"some words"
    listed = [json.loads(line) for line in world.run("jobs", "list", "--json", *server).stdout.splitlines()]
    assert [(d["name"], d["documents"], d["failed"]) for d in listed] == [("d", 2, 1)], listed
    unknown = world.run("jobs", "errors", "nothing", *server)
    assert unknown.returncode == 2 and "nothing" in unknown.stderr, unknown

    world.write("docs/bad.eml", mail("mended"))
    mended, _ = world.imports(f"{world.folder}/docs", "--retry-failed")
    assert counts(mended) == [1, 0, 0, 2, 0], mended
    assert counts(world.imports(f"{world.folder}/docs", "--verify")[0]) == [0, 0, 0, 3, 0]
    world.client.hset("d:good.eml", "subject", "forged")
    differs, lines = world.imports(f"{world.folder}/docs", "--verify", code=3)
    assert counts(differs) == [0, 0, 0, 2, 1] and "subject" in json.dumps(lines), lines


def main(name, checks):
    """Runs the checks that the command line asks for, all without a word there; exits 1 when one fails."""
    binary = os.path.abspath(sys.argv[1])
    wanted, failed = sys.argv[2:], 0
    checks = [c for c in checks if not wanted or any(word in c.__name__ for word in wanted)]
    for one in checks:
        started, world = time.time(), World(binary)
        try:
            one(world)
            print(f"ok   {one.__name__} ({time.time() - started:.1f} s)")
        except Exception:
            failed += 1
            print(f"FAIL {one.__name__}\n{traceback.format_exc()}")
        finally:
            world.close()
    print(f"{name}: {len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not checks else 0)


if __name__ == "__main__":
    main("sources.py", CHECKS)
