#!/usr/bin/env python3
"""`strand import --to`: files, the standard output, and Solr. What goes over the wire to Solr is checked with Python's web server, which
fails as it is told; with the variable SOLR (make test-real) a SolrCloud of two nodes is imported into, and loses one.

usage: sinks.py STRAND_BINARY [WORD ...]. KILLS sets how often an import is killed (default 8). Every server is on a free port of
127.0.0.1 and is ended by its pid. Prints "N passed, M failed" and exits 1 when a check fails.
"""
import http.server
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree as xml

import sources
from harness import Handler, free_port
from sources import ROOT, counts, mail

CHECKS = []
KILLS = int(os.environ.get("KILLS", "8"))
# How long anything may take; nothing waits so long when all is well.
WAIT_S = 120


def check(function):
    CHECKS.append(function)
    return function


class Solr(Handler):
    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_POST(self):
        server = self.server
        with server.lock:
            server.requests += 1
            number = server.requests
        assert self.headers["Transfer-Encoding"] == "chunked" and self.path == "/solr/c/update?wt=json", self.path
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
            if server.cuts and len(body) > 3000:
                with server.lock:
                    server.cuts -= 1
                self.close_connection = True
                self.connection.shutdown(2)
                return
        self.rfile.readline()
        root = xml.fromstring(body)
        steps = []
        for part in root:
            assert part.get("commitWithin") == "1500" or part.find("id").text.endswith(":"), body[:200]
            for step in part:
                if step.tag == "doc":
                    fields = {field.get("name"): field.text or "" for field in step}
                    steps.append((fields["id"], fields))
                else:
                    steps.append((step.text, None))
        status, said = server.judge(number, steps)
        if status == 200:
            with server.lock:
                for key, fields in steps:
                    server.taken += 1
                    if fields is None:
                        server.documents.pop(key, None)
                    else:
                        server.documents[key] = fields
        answer = json.dumps({"responseHeader": {"status": 0 if status == 200 else status}, "error": {"msg": said, "code": status}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Collection:
    """As much of a collection of Solr as goes over the wire."""

    def __init__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Solr)
        self.server.daemon_threads = True
        # An importer that was killed takes no answer.
        self.server.handle_error = lambda *_: None
        self.server.lock = threading.Lock()
        self.server.documents = {}
        self.server.connections = self.server.requests = self.server.taken = self.server.cuts = 0
        self.server.judge = lambda number, steps: (200, "")
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __getattr__(self, name):
        return getattr(self.server, name)

    def to(self, more=""):
        return f"solr+http://127.0.0.1:{self.port}/solr/c?commitWithin=1500{more}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def arguments(world, source, to, *more):
    return ["import", source, "--into", "d", "--to", to, "--state", f"{world.folder}/state", *more]


def imports(world, source, to, *more, code=0):
    done = world.run(*arguments(world, source, to, "--json", *more))
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[-1], lines[:-1]


def fill(world, count, body="words of a mail\n" * 30):
    for i in range(count):
        world.write(f"docs/{i // 50:03}/{i:05}.eml", mail(f"message {i}", f"{body}{i}\n"))
    return f"{world.folder}/docs"


def keys(count):
    return {f"d:{i // 50:03}/{i:05}.eml" for i in range(count)}


def with_collection(function):
    def wrapped(world):
        collection = Collection()
        try:
            function(world, collection)
        finally:
            collection.close()

    wrapped.__name__ = function.__name__
    return check(wrapped)


@check
def files_hold_everything_or_what_changed(world):
    docs, out = fill(world, 120), f"{world.folder}/out"
    whole = lambda *more: world.run("import", docs, "--into", "d", *more)
    # Without a folder for records each run writes everything.
    for _ in range(2):
        done = whole("--to", "-")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {line["id"] for line in lines} == keys(120) and {line["op"] for line in lines} == {"put"}
        assert lines[0]["fields"]["subject"] == "message 0" and "d: 120 added" in done.stderr, done.stderr
    assert whole("--to", f"file:{out}.xml").returncode == 0
    documents = xml.parse(f"{out}.xml").findall("./add/doc")
    assert {next(f.text for f in d if f.get("name") == "id") for d in documents} == keys(120)
    assert whole("--to", "-", "--json").returncode == 2
    assert whole("--to", f"file:{out}.txt").returncode == 2

    # With one, what changed.
    to = f"file:{out}.ndjson"
    assert counts(imports(world, docs, to)[0]) == [120, 0, 0, 0, 0]
    world.write("docs/000/00007.eml", mail("changed"))
    os.remove(f"{docs}/001/00060.eml")
    dry, _ = imports(world, docs, to, "--dry-run")
    assert counts(dry) == [0, 1, 1, 118, 0], dry
    assert sum(1 for _ in open(f"{out}.ndjson")) == 120
    assert counts(imports(world, docs, to)[0]) == [0, 1, 1, 118, 0]
    lines = [json.loads(line) for line in open(f"{out}.ndjson")]
    assert [(line["op"], line["id"]) for line in lines] == [("put", "d:000/00007.eml"), ("delete", "d:001/00060.eml")], lines
    # A file that cannot be written: nothing is recorded, the next run writes the same.
    os.remove(f"{docs}/001/00061.eml")
    imports(world, docs, f"file:{world.folder}/nowhere/x.ndjson", code=1)
    assert counts(imports(world, docs, to)[0]) == [0, 0, 1, 118, 0]
    # A disk that is full: the run says so, and nothing counts as written.
    os.remove(f"{docs}/001/00062.eml")
    full, _ = imports(world, docs, "ndjson:/dev/full", code=1)
    assert "space" in full["message"], full
    assert counts(imports(world, docs, to)[0]) == [0, 0, 1, 117, 0]
    assert sorted(os.listdir(world.folder)) == ["docs", "out.ndjson", "out.xml", "state"], os.listdir(world.folder)


@check
def a_second_importer_into_a_file_is_refused(world):
    docs, to = fill(world, 50), f"file:{world.folder}/out.ndjson"
    # The first one reads 100 bytes per second, so it is still at work when the second one comes.
    slow = [world.binary, *arguments(world, docs, to, "--rate", "100", "--json")]
    first = subprocess.Popen(slow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert first.stdout.readline(), "the first one has listed its source"
        last, _ = imports(world, docs, to, code=6)
        assert "another import" in last["message"], last
        assert first.poll() is None and not os.path.exists(f"{world.folder}/out.ndjson")
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    assert counts(imports(world, docs, to)[0]) == [50, 0, 0, 0, 0]
    assert {json.loads(line)["id"] for line in open(f"{world.folder}/out.ndjson")} == keys(50)


@with_collection
def documents_go_over_few_connections_and_leave_again(world, collection):
    docs = fill(world, 2_500)
    assert counts(imports(world, docs, collection.to())[0]) == [2500, 0, 0, 0, 0]
    assert set(collection.documents) == keys(2_500) and collection.taken == 2_500
    assert collection.requests >= 50 and collection.connections <= 3, (collection.requests, collection.connections)
    assert collection.documents["d:000/00003.eml"]["subject"] == "message 3"
    shutil.rmtree(f"{docs}/003")
    world.write("docs/000/00003.eml", mail("new"))
    assert counts(imports(world, docs, collection.to())[0]) == [0, 1, 50, 2449, 0]
    assert set(collection.documents) == keys(2_500) - {f"d:003/{i:05}.eml" for i in range(150, 200)}
    assert collection.documents["d:000/00003.eml"]["subject"] == "new" and collection.taken == 2_551
    before = collection.requests
    assert counts(imports(world, docs, collection.to())[0]) == [0, 0, 0, 2450, 0] and collection.requests == before


@with_collection
def other_names_of_fields_send_every_document_again(world, collection):
    docs = fill(world, 150)
    assert counts(imports(world, docs, collection.to())[0]) == [150, 0, 0, 0, 0]
    listed = collection.to("&fields=subject:title")
    assert counts(imports(world, docs, listed, "--dry-run")[0]) == [0, 150, 0, 0, 0]
    assert collection.taken == 150
    retry = world.run(*arguments(world, docs, listed, "--retry-failed"))
    assert retry.returncode == 2 and "without --retry-failed" in retry.stderr, retry
    # A run that ends early has sent some of them. The next run sends all.
    collection.server.judge = lambda number, steps: (403, "no") if collection.taken > 150 else (200, "")
    imports(world, docs, listed, code=1)
    collection.server.judge = lambda number, steps: (200, "")
    imports(world, docs, listed)
    assert all(set(fields) == {"id", "title"} for fields in collection.documents.values()), collection.documents
    assert collection.documents["d:000/00003.eml"]["title"] == "message 3" and set(collection.documents) == keys(150)
    before = collection.taken
    assert counts(imports(world, docs, listed)[0]) == [0, 0, 0, 150, 0] and collection.taken == before


@with_collection
def a_refused_document_is_found_and_the_others_are_taken(world, collection):
    guilty = {"d:000/00017.eml": 400, "d:001/00099.eml": 500}

    def judge(_, steps):
        return next(((guilty[key], f"no {key}") for key, fields in steps if fields and key in guilty), (200, ""))

    collection.server.judge = judge
    docs = fill(world, 150)
    summary, lines = imports(world, docs, collection.to(), "--strict", code=3)
    assert counts(summary) == [148, 0, 0, 0, 2], summary
    assert set(collection.documents) == keys(150) - set(guilty)
    failed = {line["path"]: line["reason"] for line in lines if line.get("outcome") == "failed"}
    assert failed == {"000/00017.eml": "400: no d:000/00017.eml", "001/00099.eml": "500: no d:001/00099.eml"}, failed
    # Mended there, they alone are sent.
    guilty.clear()
    before = collection.taken
    assert counts(imports(world, docs, collection.to())[0]) == [2, 0, 0, 148, 0]
    assert set(collection.documents) == keys(150) and collection.taken == before + 2
    # The collection keeps what a refused update was to replace. It is deleted there when it leaves the source.
    guilty["d:000/00017.eml"] = 400
    world.write("docs/000/00017.eml", mail("refused"))
    assert counts(imports(world, docs, collection.to())[0]) == [0, 0, 0, 149, 1]
    os.remove(f"{docs}/000/00017.eml")
    imports(world, docs, collection.to())
    assert set(collection.documents) == keys(150) - set(guilty), keys(150) ^ set(collection.documents)


@with_collection
def what_fails_is_sent_again_and_is_there_once(world, collection):
    collection.server.judge = lambda number, _: (503, "busy") if number % 3 else (200, "")
    collection.server.cuts = 3
    docs = fill(world, 300)
    summary, lines = imports(world, docs, collection.to())
    assert counts(summary) == [300, 0, 0, 0, 0] and set(collection.documents) == keys(300)
    waits = [line["what"] for line in lines if line["event"] == "waiting"]
    assert any("503: busy" in what for what in waits) and all(f"127.0.0.1:{collection.port}" in what for what in waits), waits


@with_collection
def a_sink_that_fails_past_the_patience_loses_nothing(world, collection):
    collection.server.judge = lambda number, _: (500, "no disk") if number > 2 else (200, "")
    docs = fill(world, 200)
    last, _ = imports(world, docs, collection.to("&patience=1"), code=1)
    assert "500: no disk" in last["message"] and "The next run continues here" in last["message"], last
    assert len(collection.documents) == 100
    # What is gone from the source meanwhile may be there: it is deleted.
    shutil.rmtree(f"{docs}/002")
    collection.server.judge = lambda number, _: (200, "")
    summary, _ = imports(world, docs, collection.to())
    assert counts(summary)[3] == 100 and set(collection.documents) == keys(200) - {f"d:002/{i:05}.eml" for i in range(100, 150)}
    # Nobody answers; wrong credentials.
    imports(world, docs, f"solr+http://127.0.0.1:{free_port()}/solr/c?patience=0", code=1)
    collection.server.judge = lambda number, _: (401, "who")
    os.remove(f"{docs}/000/00000.eml")
    last, _ = imports(world, docs, collection.to(), code=1)
    assert "401: who" in last["message"], last


@with_collection
def a_second_importer_is_refused(world, collection):
    docs, entered, go = fill(world, 50), threading.Event(), threading.Event()

    def judge(_, __):
        entered.set()
        go.wait(WAIT_S)
        return 200, ""

    collection.server.judge = judge
    first = subprocess.Popen(
        [world.binary, *arguments(world, docs, collection.to())], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert entered.wait(WAIT_S)
        last, _ = imports(world, docs, collection.to(), code=6)
        assert "another import" in last["message"], last
        go.set()
        assert first.wait(WAIT_S) == 0 and set(collection.documents) == keys(50)
    finally:
        go.set()
        first.kill()
        first.wait()


def kills(world, start, is_due, held):
    """Runs that are killed while the source changes, and while documents change their places in it; then one whole run, and what
    is there must be what is in the source."""
    dice, docs, number, killed = random.Random(11), fill(world, 600), 600, 0
    for turn in range(KILLS):
        # Some documents change, some leave, some come.
        for path in dice.sample(sorted(os.listdir(docs)), 3):
            for name in sorted(os.listdir(f"{docs}/{path}"))[::7]:
                whole = f"{docs}/{path}/{name}"
                if dice.random() < 0.3:
                    os.remove(whole)
                else:
                    world.write(f"docs/{path}/{name}", mail(f"turn {turn} of {name}", "x" * dice.randrange(2000)))
        # Some swap their names, within a folder or between two, and some move to another name.
        for _ in range(10):
            one, other = (f"{docs}/{path}/{dice.choice(sorted(os.listdir(f'{docs}/{path}')))}" for path in dice.sample(sorted(os.listdir(docs)), 2))
            os.rename(one, f"{docs}/hold")
            os.rename(other, one)
            os.rename(f"{docs}/hold", other)
            other = one.replace(".eml", "-moved.eml")
            os.rename(one, other if len(other) < 80 else one)
        for _ in range(30):
            world.write(f"docs/{dice.randrange(12):03}/{number:05}.eml", mail(f"new {number}"))
            number += 1
        run = start(docs)
        # At a step of the work, and a bit.
        due, deadline = is_due(dice), time.time() + WAIT_S
        while run.poll() is None and not due() and time.time() < deadline:
            time.sleep(0.001)
        time.sleep(dice.random() * 0.01)
        run.send_signal(signal.SIGKILL)
        killed += run.wait() == -signal.SIGKILL
    assert killed >= KILLS // 4, killed
    whole = start(docs)
    assert whole.wait(WAIT_S) == 0
    expected = {}
    for folder in os.listdir(docs):
        for name in os.listdir(f"{docs}/{folder}"):
            with open(f"{docs}/{folder}/{name}") as file:
                expected[f"d:{folder}/{name}"] = file.readlines()[1][len("Subject: ") :].strip()
    assert held() == expected
    print(f"     {killed} of {KILLS} runs were killed")
    return docs


def quiet(world, *words):
    return subprocess.Popen([world.binary, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@with_collection
def kills_at_random_moments_lose_and_double_nothing(world, collection):
    def is_due(dice):
        until = collection.requests + dice.randrange(1, 9)
        return lambda: collection.requests >= until

    start = lambda docs: quiet(world, *arguments(world, docs, collection.to(), "--max-delete", "100%"))
    docs = kills(world, start, is_due, lambda: {key: fields["subject"] for key, fields in collection.documents.items()})
    before = collection.requests
    again = imports(world, docs, collection.to())[0]
    assert counts(again)[:3] == [0, 0, 0] and again["opened"] == 0 and collection.requests == before, again


@check
def kills_beside_a_server_lose_and_double_nothing(world):
    server = ["--into", "d", "--server", f"127.0.0.1:{world.strand.port}", "--no-index", "--max-delete", "99%", "--wait"]
    client = world.client

    def is_due(dice):
        # After so many commands; asking costs one each time.
        until = client.info("stats")["total_commands_processed"] + dice.randrange(3, 80)
        return lambda: client.info("stats")["total_commands_processed"] >= until

    def held():
        return {key.decode(): client.hget(key, "subject").decode() for key in client.scan_iter("*", count=1000)}

    docs = kills(world, lambda docs: quiet(world, "import", docs, *server), is_due, held)
    again = world.imports(docs, "--no-index", "--wait")[0]
    assert counts(again)[:3] == [0, 0, 0] and again["opened"] == 0, again


@check
def kills_beside_a_pipe_lose_nothing(world):
    """What a reader of the standard output has read from killed runs is changed and deleted by later runs."""
    outs = []

    def start(docs):
        outs.append(f"{world.folder}/out{len(outs)}")
        with open(outs[-1], "wb") as out:
            words = arguments(world, docs, "-", "--max-delete", "100%")
            return subprocess.Popen([world.binary, *words], stdout=out, stderr=subprocess.DEVNULL)

    def is_due(dice):
        until = dice.randrange(1, 150_000)
        return lambda: os.path.getsize(outs[-1]) >= until

    def held():
        there = {}
        for out in outs:
            with open(out) as lines:
                # The last line of a killed run may be a part of a line.
                for line in (json.loads(line) for line in lines if line.endswith("\n")):
                    if line["op"] == "put":
                        there[line["id"]] = line["fields"]["subject"]
                    else:
                        there.pop(line["id"], None)
        return there

    kills(world, start, is_due, held)


@check
def an_atomic_import_is_seen_whole_or_not_at_all(world):
    client, docs = world.client, fill(world, 2_000)
    server = ["--into", "d", "--server", f"127.0.0.1:{world.strand.port}", "--no-index", "--atomic", "--wait"]

    def seen():
        """What a reader finds: how many documents, and the subjects of those that are changed below."""
        reads = client.pipeline(transaction=True)
        reads.dbsize()
        for name in changed:
            reads.hget(f"d:{name}", "subject")
        size, *subjects = reads.execute()
        return size, tuple(subjects)

    changed = []
    run = quiet(world, "import", docs, *server)
    sizes = set()
    while run.poll() is None:
        sizes.add(seen()[0])
    assert run.returncode == 0 and client.dbsize() == 2_000 and sizes <= {0, 2_000}, (run.returncode, sizes)

    # Documents change, leave and come; a run is killed when it has sent some of that.
    names = [f"{i // 50:03}/{i:05}.eml" for i in range(0, 2_000, 3)]
    changed = names[:100:9]
    for name in names:
        world.write(f"docs/{name}", mail(f"new {name}"))
    for i in range(1, 300, 3):
        os.remove(f"{docs}/{i // 50:03}/{i:05}.eml")
    world.write("docs/more.zip", sources.zipped(a_eml=mail("in an archive")))
    before = seen()
    killed = 0
    for turn in range(KILLS):
        run = quiet(world, "import", docs, *server)
        until = client.info("stats")["total_commands_processed"] + 20 * (turn + 1)
        while run.poll() is None and client.info("stats")["total_commands_processed"] < until:
            pass
        if run.poll() is None:
            run.send_signal(signal.SIGKILL)
        killed += run.wait() == -signal.SIGKILL
        after = seen()
        assert after == before or run.returncode == 0 or after[0] == 1_902, (after, before)
        if after != before:
            break
    run = quiet(world, "import", docs, *server)
    moments = set()
    while run.poll() is None:
        moments.add(seen())
    last = seen()
    assert run.returncode == 0 and last[0] == 2_000 - 100 + 2 and set(last[1]) == {f"new {name}".encode() for name in changed}, last
    assert moments <= {before, last} and killed > 0, (killed, moments)
    again, _ = world.imports(docs, "--no-index")
    assert counts(again) == [0, 0, 0, 1_902, 0] and again["opened"] == 0, again
    # Documents that have moved are copied within the transaction, also two that swap their names.
    for one, other in (("020/01001", "hold"), ("021/01051", "020/01001"), ("hold", "021/01051"), ("022/01100", "up")):
        os.rename(f"{docs}/{one}.eml", f"{docs}/{other}.eml")
    moved, _ = world.imports(docs, "--no-index", "--atomic")
    assert counts(moved) == [1, 2, 1, 1_899, 0] and moved["moved"] == 3, moved
    subjects = [client.hget(f"d:{name}.eml", "subject") for name in ("020/01001", "021/01051", "up")]
    assert subjects == [b"message 1051", b"message 1001", b"message 1100"] and client.dbsize() == 1_902, (subjects, client.dbsize())
    # A key that is no hash is a failed document here too.
    world.write("docs/taken.eml", mail("taken"))
    client.set("d:taken.eml", "text")
    dead, _ = world.imports(docs, "--no-index", "--atomic")
    assert counts(dead) == [0, 0, 0, 1_902, 1] and client.get("d:taken.eml") == b"text", dead


@check
def a_run_tells_the_server_how_it_goes(world):
    client, docs = world.client, fill(world, 300)
    run = quiet(world, "import", docs, "--into", "d", "--server", f"127.0.0.1:{world.strand.port}", "--no-index", "--rate", "40k")

    def status(*datasets):
        running = pairs(client.execute_command("IMPORT.STATUS", *datasets))
        assert running.keys() <= {b"d"}, running
        return pairs(running[b"d"]) if running else None

    def pairs(told):
        return dict(zip(told[::2], told[1::2])) if isinstance(told, list) else told

    deadline, told = time.time() + WAIT_S, None
    while not (told and int(told.get(b"done", 0)) > 0):
        assert run.poll() is None and time.time() < deadline, told
        told = status("other", "d")
    assert status("other") is None
    assert told[b"source"].decode() == docs and int(told[b"listed"]) >= int(told[b"done"]) and told[b"path"], told
    assert run.wait(WAIT_S) == 0
    while status() is not None:
        assert time.time() < deadline
    # What an import sent is found as soon as it is over.
    world.imports(docs)
    world.write("docs/001/00050.eml", mail("unheard-of zyzzyva"))
    world.imports(docs, "--atomic")
    found = client.execute_command("FT.SEARCH", "d", "zyzzyva", "NOCONTENT")
    # The reply's shape is that of the protocol which this version of redis-py speaks.
    found = [found[b"total_results"], *(one[b"id"] for one in found[b"results"])] if isinstance(found, dict) else found
    assert found == [1, b"d:001/00050.eml"], found
    # Who removed a document, and from where.
    os.remove(f"{docs}/001/00050.eml")
    done, lines = world.imports(docs, "--no-index")
    removed = [line for line in lines if line.get("outcome") == "removed"]
    assert len(removed) == 1 and (removed[0]["container"], removed[0]["entry"]) == ("001", "00050.eml") and removed[0]["token"], removed
    assert done["allocations"] > 0 and len(done["version"]) == 32, done


class SolrCloud:
    """Two nodes and ZooKeeper in one virtual machine (tests/real/solr)."""

    def __init__(self, world):
        self.ports = [free_port(), free_port()]
        self.data, out = f"{world.folder}/solr", os.environ["SOLR"]
        with open(f"{out}/cp.txt") as file:
            classes = f"{out}/out:{file.read().strip()}"
        os.makedirs(f"{world.folder}/tmp")
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={world.folder}/tmp", "-Dtests.seed=1"]
        command = ["java", *options, "-cp", classes, "SolrNode", self.data, f"{ROOT}/tests/real/solr/conf", *map(str, self.ports)]
        self.log = open(f"{world.folder}/solr.log", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.time() + WAIT_S
        while not os.path.exists(f"{self.data}/urls"):
            assert self.process.poll() is None and time.time() < deadline, "Solr does not start"
            time.sleep(0.05)
        self.get(0, "admin/collections", action="CREATE", name="c", numShards=2, replicationFactor=2, **{"collection.configName": "mini"})

    def get(self, node, path, **query):
        url = f"http://127.0.0.1:{self.ports[node]}/solr/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)

    def to(self, more="names=dynamic"):
        return f"solr+http://127.0.0.1:{self.ports[0]},127.0.0.1:{self.ports[1]}/solr/c?commit=true&{more}"

    def stop_node(self, node):
        open(f"{self.data}/kill-{node}", "w").close()

    def all(self, node):
        """Key and subject of each document, each as often as it is there."""
        answer = self.get(node, "c/select", q="*:*", rows=100_000, fl="id,subject_t", wt="json")["response"]
        assert len(answer["docs"]) == answer["numFound"]
        return sorted((d["id"], d.get("subject_t", [""])[0]) for d in answer["docs"])

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def real_solr(world):
    cloud = SolrCloud(world)
    try:
        count = 6_000
        docs = fill(world, count)
        run = subprocess.Popen([world.binary, *arguments(world, docs, cloud.to())], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # The node that is asked goes away in the middle.
        deadline = time.time() + WAIT_S
        while cloud.get(1, "c/select", q="*:*", rows=0, wt="json")["response"]["numFound"] == 0 and run.poll() is None:
            assert time.time() < deadline
            cloud.get(1, "c/update", commit="true", wt="json")
        assert run.poll() is None, "the import was over before a node could be stopped"
        cloud.stop_node(0)
        out, errors = run.communicate(timeout=600)
        assert run.returncode == 0 and f"d: {count} added" in out, (run.returncode, out[-500:], errors[-2000:])
        waited = errors.count("waiting:")
        expected = sorted((f"d:{i // 50:03}/{i:05}.eml", f"message {i}") for i in range(count))
        assert cloud.all(1) == expected
        print(f"     {count} documents, a node stopped in the middle, {waited} waits: each is there once")

        shutil.rmtree(f"{docs}/010")
        world.write("docs/011/00550.eml", mail("new one"))
        assert counts(imports(world, docs, cloud.to())[0]) == [0, 1, 50, count - 51, 0]
        there = dict(cloud.all(1))
        assert len(there) == count - 50 and there["d:011/00550.eml"] == "new one"
        # Fields that the schema does not have: each document is refused with Solr's words, nothing else happens.
        world.write("odd/a.eml", mail("odd"))
        odd, lines = imports(world, f"{world.folder}/odd", cloud.to("fields=subject:nosuch"), "--max-delete", "0", code=4)
        assert odd["exit_code"] == 4
        last, lines = imports(world, f"{world.folder}/odd", cloud.to("fields=subject:nosuch"), "--max-delete", "100%")
        assert counts(last)[4] == 1 and "nosuch" in json.dumps(lines), last
    finally:
        cloud.close()


if os.environ.get("SOLR"):
    check(real_solr)

if __name__ == "__main__":
    sources.main("sinks.py", CHECKS)
