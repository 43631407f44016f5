#!/usr/bin/env python3
"""Real clients against a real Strand: redis-py (RESP2 and RESP3), redis-cli and redis-benchmark; requests, http.client, curl,
Prometheus's parser and schemathesis over HTTP.

usage: clients.py STRAND_BINARY. Starts the server on a free port of 127.0.0.1 and ends it by its pid. Prints
"N passed, M failed" and exits 1 when a check fails.
"""
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import redis
import requests

from harness import Ended, Process, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


# Starts of a server with other ports before a test gives up.
STARTS_MAX = 5


class Strand:
    """A server of our own; `options` as on its command line."""

    def __init__(self, binary, *options):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory()
        # Between the choice of a port and its use another program may take the port: the server ends, and gets other ones.
        for _ in range(STARTS_MAX):
            self.port, self.http_port = free_port(), free_port()
            self.url = f"http://127.0.0.1:{self.http_port}"
            doors = ["--port", str(self.port), "--http-port", str(self.http_port)]
            command = [binary, "serve", *doors, "--loglevel", "warning", "--save", "", "--dir", self.folder.name]
            command += ["--unixsocket", "strand.sock", *options]
            try:
                self.server = Process([self.port, self.http_port], command)
                return
            except Ended as ended:
                reason = ended
        raise reason

    def client(self, **options):
        options.setdefault("decode_responses", True)
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=20, **options)

    def cli(self, *words, **options):
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, timeout=30, **options
        )
        return done.stdout

    def stop(self):
        code = self.server.stop()
        self.folder.cleanup()
        return code


@check
def unix_socket(strand):
    path = os.path.join(strand.folder.name, "strand.sock")
    r = redis.Redis(unix_socket_path=path, socket_timeout=20, decode_responses=True)
    assert r.set("k", "v" * 1_000_000) is True and r.strlen("k") == 1_000_000
    assert r.client_info()["flags"] == "U"
    for cli in (["redis-cli"], [strand.binary, "cli"]):
        done = subprocess.run([*cli, "-s", path, "STRLEN", "k"], capture_output=True, text=True, timeout=30)
        assert done.stdout == "1000000\n", (cli, done)
    r.delete("k")


@check
def strings_and_hashes(strand):
    for protocol in (2, 3):
        r = strand.client(protocol=protocol)
        r.flushall()
        assert r.set("k", "v") is True and r.get("k") == "v"
        assert r.set("k", "w", nx=True) is None
        assert r.set("k", "w", get=True, ex=100) == "v" and 90 < r.ttl("k") <= 100
        assert r.incr("n", 41) == 41 and r.incr("n") == 42
        assert r.incrbyfloat("f", 10.5) == 10.5
        assert r.mset({"a": 1, "b": 2}) and r.mget("a", "b", "c") == ["1", "2", None]
        assert r.append("k", "x") == 2 and r.getrange("k", 0, -1) == "wx"
        assert r.hset("h", mapping={"x": 1, "y": "two"}) == 2
        assert r.hgetall("h") == {"x": "1", "y": "two"}
        assert r.hincrby("h", "x", 5) == 6 and r.hdel("h", "y") == 1 and r.hlen("h") == 1
        assert r.type("h") == "hash" and r.exists("h", "k", "zz") == 2
        assert sorted(r.scan_iter()) == sorted(r.keys())
        assert r.delete("k", "h") == 2 and r.dbsize() == 4


@check
def binary_values(strand):
    r = strand.client(decode_responses=False)
    blob = bytes(range(256)) * 4096
    r.set(b"\x00\xff\r\n", blob)
    assert r.get(b"\x00\xff\r\n") == blob
    assert r.strlen(b"\x00\xff\r\n") == len(blob)


@check
def pipelines(strand):
    r = strand.client()
    pipe = r.pipeline(transaction=False)
    for i in range(20_000):
        pipe.set(f"p:{i}", i)
    assert all(pipe.execute())
    assert r.get("p:19999") == "19999"


@check
def errors_have_their_classes(strand):
    r = strand.client()
    r.hset("h", "f", "v")
    for call, text in [
        (lambda: r.get("h"), "WRONGTYPE"),
        (lambda: r.execute_command("NOSUCH"), "unknown command"),
        (lambda: r.execute_command("GET"), "wrong number of arguments"),
        (lambda: r.execute_command("SELECT", 99), "out of range"),
    ]:
        try:
            call()
        except redis.ResponseError as e:
            assert text in str(e), e
        else:
            raise AssertionError(f"no error with {text}")


@check
def scripts_and_functions(strand):
    r = strand.client()
    increase = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert increase(keys=["script:n"], args=[5]) == 5
    r.script_flush()
    # The client sends EVALSHA, is told NOSCRIPT, loads the script and sends EVALSHA again.
    assert increase(keys=["script:n"], args=[5]) == 10
    pipe = r.pipeline()
    increase(keys=["script:n"], args=[1], client=pipe)
    pipe.get("script:n")
    r.script_flush()
    assert pipe.execute() == [11, "11"]
    assert r.script_exists(increase.sha, "0" * 40) == [True, False]
    # A lock that only its owner lets go.
    lock = r.lock("script:lock", timeout=10)
    assert lock.acquire(blocking=False)
    assert not r.lock("script:lock", timeout=10).acquire(blocking=False)
    lock.release()
    assert r.get("script:lock") is None
    code = "#!lua name=lib\nredis.register_function('add', function(keys, args) return redis.call('incrby', keys[1], args[1]) end)"
    assert r.function_load(code) == "lib"
    assert r.fcall("add", 1, "script:f", 3) == 3
    dump = strand.client(decode_responses=False).function_dump()
    r.function_flush()
    assert r.function_list() == []
    assert strand.client(decode_responses=False).function_restore(dump) in (b"OK", True)
    assert r.fcall("add", 1, "script:f", 3) == 6
    assert r.function_delete("lib") in ("OK", True)


@check
def expiry(strand):
    r = strand.client()
    r.set("gone", "v", px=30)
    end = time.time() + 5
    while r.exists("gone"):
        assert time.time() < end
    r.set("kept", "v", ex=1000)
    assert r.persist("kept") and r.ttl("kept") == -1


@check
def authentication(strand):
    guarded = Strand(strand.binary, "--requirepass", "sesame")
    try:
        try:
            guarded.client().get("k")
        except redis.AuthenticationError:
            pass
        else:
            raise AssertionError("served without a password")
        try:
            guarded.client(password="wrong").ping()
        except redis.AuthenticationError:
            pass
        else:
            raise AssertionError("served with a wrong password")
        for protocol in (2, 3):
            assert guarded.client(password="sesame", protocol=protocol).ping()
    finally:
        assert guarded.stop() == 0


@check
def users_and_rights(strand):
    for protocol in (2, 3):
        r = strand.client(protocol=protocol)
        r.flushall()
        r.acl_log_reset()
        assert r.acl_whoami() == "default" and r.acl_users() == ["default"]
        assert {"read", "write", "dangerous", "scripting"} <= set(r.acl_cat())
        assert "get" in r.acl_cat("string")
        assert len(r.acl_genpass()) == 64 and len(r.acl_genpass(512)) == 128
        assert r.acl_getuser("nobody") is None
        assert r.acl_setuser(
            "bob",
            enabled=True,
            passwords=["+sesame", "+other"],
            categories=["+@hash"],
            commands=["+get", "+set"],
            keys=["app:*"],
            selectors=[("+mget", "%R~shared:*")],
        )
        user = r.acl_getuser("bob")
        assert user["enabled"] and sorted(user["commands"]) == ["+get", "+set"], user
        assert user["categories"] == ["-@all", "+@hash"] and len(user["passwords"]) == 2, user
        assert any(line.startswith("user bob on ") for line in r.acl_list())
        assert r.acl_dryrun("bob", "get", "app:1") in ("OK", True)
        assert "no permissions" in r.acl_dryrun("bob", "get", "other")
        r.mset({"app:1": "a", "shared:1": "s", "other": "o"})
        bob = strand.client(username="bob", password="sesame", protocol=protocol)
        assert bob.get("app:1") == "a" and bob.set("app:2", "b") and bob.mget("shared:1") == ["s"]
        for call in (lambda: bob.get("other"), lambda: bob.set("shared:1", "x"), lambda: bob.ping()):
            try:
                call()
            except redis.exceptions.NoPermissionError:
                pass
            else:
                raise AssertionError("it was allowed")
        assert any(c["user"] == "bob" for c in r.client_list())
        try:
            strand.client(username="bob", password="wrong", protocol=protocol).ping()
        except redis.AuthenticationError:
            pass
        else:
            raise AssertionError("served with a wrong password")
        log = r.acl_log()
        assert {entry["reason"] for entry in log} == {"key", "command", "auth"}, log
        assert all(entry["username"] == "bob" and "user" in entry["client-info"] for entry in log), log
        assert r.acl_deluser("bob") == 1
        try:
            bob.get("app:1")
        except (redis.AuthenticationError, redis.ConnectionError):
            pass
        else:
            raise AssertionError("its user is gone")
        try:
            r.acl_load()
        except redis.ResponseError as e:
            assert "not configured to use an ACL file" in str(e)
        else:
            raise AssertionError("there is no file")


@check
def client_commands(strand):
    r = strand.client(client_name="tester")
    assert r.client_getname() == "tester"
    assert any(c["name"] == "tester" for c in r.client_list())
    info = r.info()
    assert info["redis_version"].startswith("7.") and info["connected_clients"] >= 1
    assert r.config_get("maxclients")["maxclients"] == "10000"
    assert r.config_set("timeout", 0)
    assert r.command_count() > 80
    assert r.time()[0] > 1_600_000_000


@check
def slow_log_with_and_without_phases(strand):
    for protocol in (2, 3):
        # With decode_responses redis-py parses bytes in RESP2 and texts in RESP3, and its own slowlog_get trips over the latter.
        r = strand.client(protocol=protocol, decode_responses=False)
        r.config_set("slowlog-log-slower-than", 0)
        r.set("slow", "one")
        entry = next(e for e in r.slowlog_get(20) if e["command"] == b"SET slow one")
        assert entry["client_address"] and entry["duration"] >= 0, entry
        # redis-py takes what it knows of an entry, and passes by what stands behind.
        rows = r.execute_command("SLOWLOG GET", 20, "PHASES")
        assert any(row["command"] == b"SET slow one" for row in rows), rows
        r.config_set("slowlog-log-slower-than", 10000)
        r.slowlog_reset()


def heard(subscriber, count, wait_s=20):
    """So many messages, within a bounded time."""
    found, deadline = [], time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < deadline:
        message = subscriber.get_message(ignore_subscribe_messages=True, timeout=1)
        if message is not None:
            found.append(message)
    assert len(found) == count, found
    return found


@check
def publish_and_subscribe(strand):
    for protocol in (2, 3):
        r = strand.client(protocol=protocol)
        subscriber = r.pubsub()
        subscriber.subscribe("news", "other")
        subscriber.psubscribe("n*")
        acknowledged = [subscriber.get_message(timeout=20)["type"] for _ in range(3)]
        assert acknowledged == ["subscribe", "subscribe", "psubscribe"]
        assert r.publish("news", "hello") == 2
        first, second = heard(subscriber, 2)
        assert (first["type"], first["channel"], first["data"]) == ("message", "news", "hello")
        assert (second["type"], second["pattern"], second["data"]) == ("pmessage", "n*", "hello")
        with r.pipeline() as p:
            for i in range(100):
                p.publish("other", i)
            assert p.execute() == [1] * 100
        assert [m["data"] for m in heard(subscriber, 100)] == [str(i) for i in range(100)]
        assert r.pubsub_channels() and dict(r.pubsub_numsub("news")) == {"news": 1} and r.pubsub_numpat() == 1
        subscriber.unsubscribe()
        subscriber.punsubscribe()
        subscriber.close()
        # The connection is closed; the server sees it soon.
        deadline = time.monotonic() + 20
        while r.pubsub_numpat() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert r.publish("news", "nobody") == 0


@check
def search_by_redis_py(strand):
    from redis.commands.search.field import NumericField, TagField, TextField
    try:
        from redis.commands.search.index_definition import IndexDefinition
    except ImportError:
        from redis.commands.search.indexDefinition import IndexDefinition
    from redis.commands.search.query import Query

    r = strand.client(protocol=2)
    ft = r.ft("books")
    fields = [TextField("title", weight=2.0), TagField("genre"), NumericField("year", sortable=True)]
    ft.create_index(fields, definition=IndexDefinition(prefix=["book:"]))
    try:
        for i in range(50):
            genre = "novel" if i % 2 else "essay"
            r.hset(f"book:{i}", mapping={"title": f"the book number {i}", "genre": genre, "year": 1950 + i})
            assert ft.search(Query(f"@year:[{1950 + i} {1950 + i}]")).total == 1, "a search sees every write before it"
        found = ft.search(Query("book @genre:{novel}").sort_by("year", asc=False).paging(0, 3))
        assert found.total == 25 and [d.year for d in found.docs] == ["1999", "1997", "1995"], found
        r.delete("book:49")
        assert ft.search(Query("@year:[1999 1999]")).total == 0
        assert ft.info()["index_name"] == "books"
    finally:
        ft.dropindex(delete_documents=True)
    assert not list(r.scan_iter("book:*"))


@check
def the_commands_that_make_run_prints(strand):
    done = subprocess.run(
        [strand.binary, "import", "examples/mail", "--into", "mail", "--server", f"127.0.0.1:{strand.port}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("mail: ") and " added, 0 updated, 0 removed, 0 unchanged" in last, last
    found = strand.cli("FT.SEARCH", "mail", "invoice -draft", "LIMIT", "0", "5", "RETURN", "2", "subject", "from")
    assert int(found.split()[0]) >= 3 and "nvoice" in found, found
    found = strand.cli("RX.GREP", "VALUES", "ticket-[0-9]{4}", "PREFIX", "mail:", "LIMIT", "10")
    assert "mail:" in found, found
    mail = strand.cli("HGETALL", "mail:support/0107-ticket-1051.eml")
    assert "subject" in mail, mail
    assert strand.cli("SET", "greeting", "hello").strip() == "OK"
    again = subprocess.run(
        [strand.binary, "import", "examples/mail", "--into", "mail", "--server", f"127.0.0.1:{strand.port}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )
    assert "mail: 0 added, 0 updated, 0 removed, " in again.stdout, again.stdout + again.stderr


@check
def redis_cli_and_benchmark(strand):
    assert strand.cli("PING").strip() == "PONG"
    assert strand.cli("-3", "HELLO").strip()
    assert "redis_version" in strand.cli("INFO")
    bulk = "".join(f"SET bulk:{i} {i}\r\n" for i in range(1000))
    piped = strand.cli("--pipe", input=bulk)
    assert "errors: 0, replies: 1000" in piped, piped
    done = subprocess.run(
        ["redis-benchmark", "-p", str(strand.port), "-q", "-n", "20000", "-P", "16", "-t", "ping,set,get,incr,hset,mset"],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0 and done.stdout.count("requests per second") >= 6, done.stdout + done.stderr


@check
def clients_that_frame(strand):
    port = free_port()
    framed = Strand(strand.binary, "--pack4-port", str(port))
    try:
        words = ["SET k v", "GET k", "GET", "MGET k nothing"]
        want = "+OK\r\n$1\r\nv\r\n-ERR wrong number of arguments for 'get' command\r\n*2\r\n$1\r\nv\r\n$-1\r\n"
        clients = [[sys.executable, "examples/pack4/client.py", "127.0.0.1", str(port)]]
        go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
        if go:
            clients.append([go, "run", "examples/pack4/client.go", f"127.0.0.1:{port}"])
        for client in clients:
            done = subprocess.run([*client, *words], cwd=ROOT, capture_output=True, timeout=240)
            assert done.stdout.decode() == want, (client, done.stdout, done.stderr)
    finally:
        framed.stop()


class Certificates:
    """An authority and what it signed, made by openssl in a folder of their own."""

    def __init__(self, folder, name):
        self.folder = folder
        self.ca = os.path.join(folder, f"{name}.crt")
        self.ca_key = os.path.join(folder, f"{name}.key")
        self.openssl("req", "-x509", *self.NEW_KEY, "-keyout", self.ca_key, "-out", self.ca, "-subj", f"/CN={name}")

    NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

    def openssl(self, *words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)

    def sign(self, name):
        """The paths of a certificate for 127.0.0.1 and of its key."""
        crt, key, csr, ext = (os.path.join(self.folder, f"{name}.{end}") for end in ("crt", "key", "csr", "ext"))
        with open(ext, "w") as f:
            f.write("subjectAltName=IP:127.0.0.1\n")
        self.openssl("req", *self.NEW_KEY, "-keyout", key, "-out", csr, "-subj", f"/CN={name}")
        self.openssl("x509", "-req", "-in", csr, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial",
                     "-days", "2", "-extfile", ext, "-out", crt)
        return crt, key


@check
def tls(strand):
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Certificates(folder, "ours"), Certificates(folder, "theirs")
        (crt, key), (client_crt, client_key) = ours.sign("server"), ours.sign("client")
        locked = key + ".locked"
        ours.openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:for the key")
        port = free_port()
        https = free_port()
        server = Strand(strand.binary, "--tls-port", str(port), "--tls-http-port", str(https), "--tls-cert-file", crt, "--tls-key-file", locked,
                        "--tls-key-file-pass", "for the key", "--tls-ca-cert-file", ours.ca)
        wrong = server.cli("CONFIG", "SET", "tls-key-file-pass", "another")
        assert "Unable to update TLS configuration. Check server logs." in wrong, wrong
        try:
            tls_clients(server, port, ours, theirs, client_crt, client_key)
            https_clients(https, ours, theirs, client_crt, client_key)
        finally:
            server.stop()


def https_clients(port, ours, theirs, crt, key):
    url = f"https://127.0.0.1:{port}/v1/keys/secret"
    value = os.urandom(5_000_000)
    with requests.Session() as s:
        # Else an authority named in the environment counts more than ours.
        s.trust_env, s.verify, s.cert = False, ours.ca, (crt, key)
        assert s.put(url, data=value).status_code == 201
        assert s.get(url).content == value
        assert s.get(url, headers={"Range": "bytes=-3"}).content == value[-3:]
        assert all(s.get(f"https://127.0.0.1:{port}/healthz").text == "ok\n" for _ in range(50))
    for bad in (dict(verify=theirs.ca, cert=(crt, key)), dict(verify=ours.ca)):
        try:
            requests.get(url, timeout=20, **bad)
        except requests.exceptions.ConnectionError:
            pass
        else:
            raise AssertionError("served to whom it should not trust")
    # Plain text where TLS is spoken: no answer but an end.
    try:
        requests.get(url.replace("https:", "http:"), timeout=20)
    except requests.exceptions.ConnectionError:
        pass
    else:
        raise AssertionError("served without TLS")


def tls_clients(server, port, ours, theirs, crt, key):
    def cli(*words, ca=ours.ca, mine=("--cert", crt, "--key", key), input=None):
        done = subprocess.run(["redis-cli", "-p", str(port), "--tls", "--cacert", ca, *mine, *words],
                              capture_output=True, text=True, timeout=30, input=input)
        return done.stdout + done.stderr

    assert cli("SET", "k", "v").strip() == "OK" and server.cli("GET", "k").strip() == "v"
    piped = cli("--pipe", input="".join(f"SET bulk:{i} {i}\r\n" for i in range(1000)))
    assert "errors: 0, replies: 1000" in piped, piped
    assert "certificate verify failed" in cli("PING", ca=theirs.ca)
    assert "PONG" not in cli("PING", mine=())
    done = subprocess.run(["redis-benchmark", "-p", str(port), "--tls", "--cacert", ours.ca, "--cert", crt, "--key", key,
                           "-q", "-n", "5000", "-P", "16", "-t", "set,get"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("requests per second") == 2, done.stdout + done.stderr

    def py(port=port, ca=ours.ca, **options):
        return redis.Redis(host="127.0.0.1", port=port, socket_timeout=20, ssl=True, ssl_ca_certs=ca, ssl_certfile=crt,
                           ssl_keyfile=key, **options)

    for protocol in (2, 3):
        r = py(protocol=protocol)
        big = os.urandom(3_000_000)
        assert r.set("big", big) and r.get("big") == big
        with r.pipeline(transaction=False) as p:
            for i in range(1000):
                p.incr("n")
            assert len(p.execute()) == 1000
        r.delete("n")
        r.close()
    for wrong in (py(ca=theirs.ca), py(port=server.port)):
        try:
            wrong.ping()
            raise AssertionError("it is let in")
        except redis.exceptions.ConnectionError:
            pass
    # Plain text is answered by an alert, on its connection alone.
    assert "PONG" not in subprocess.run(["redis-cli", "-p", str(port), "PING"], capture_output=True, text=True, timeout=30).stdout
    assert cli("PING").strip() == "PONG"


@check
def http_by_requests(strand):
    r = strand.client(decode_responses=False)
    with requests.Session() as s:
        value = bytes(range(256)) * 1000
        url = f"{strand.url}/v1/keys/web%2F%00%FF"
        assert s.put(url, data=value, headers={"Strand-TTL-Ms": "100000"}).status_code == 201
        assert r.get(b"web/\x00\xff") == value and 0 < r.pttl(b"web/\x00\xff") <= 100000
        got = s.get(url)
        assert got.content == value and got.headers["Strand-Type"] == "string"
        assert s.get(url, headers={"If-None-Match": got.headers["ETag"]}).status_code == 304
        part = s.get(url, headers={"Range": "bytes=255-257"})
        assert part.status_code == 206 and part.content == b"\xff\x00\x01"
        assert s.head(url).headers["Content-Length"] == str(len(value))
        pieces = s.put(f"{strand.url}/v1/keys/pieces", data=(b"x" * 1000 for _ in range(100)))
        assert pieces.status_code == 201 and r.strlen("pieces") == 100_000
        assert s.delete(url).status_code == 204 and s.get(url).json()["status"] == 404
        done = s.post(f"{strand.url}/v1/commands", json=[["SET", "k", "é"], ["GET", "k"], ["NOPE"]]).json()
        assert done[:2] == [{"result": "OK"}, {"result": "é"}] and "unknown command" in done[2]["error"]

        def lines():
            for i in range(5000):
                yield json.dumps(["ECHO", str(i)]).encode() + b"\n"

        results = s.post(
            f"{strand.url}/v1/commands", data=lines(), stream=True, headers={"Content-Type": "application/x-ndjson"}
        ).iter_lines()
        assert [json.loads(line)["result"] for line in results] == [str(i) for i in range(5000)]
        found = s.post(
            f"{strand.url}/v1/update",
            data="<add><doc><field name='id'>é</field><field name='t'>one</field></doc></add>".encode(),
            headers={"Content-Type": "text/xml"},
        ).json()
        assert found["responseHeader"]["status"] == 0 and found["added"] == 1
        assert r.hget("doc:é", "t") == b"one"


@check
def http_by_http_client(strand):
    c = http.client.HTTPConnection("127.0.0.1", strand.http_port, timeout=20)
    c.connect()
    port = c.sock.getsockname()[1]
    for i in range(50):
        c.request("PUT", f"/v1/keys/hc{i}", body=str(i))
        assert c.getresponse().read() == b""
        c.request("GET", f"/v1/keys/hc{i}")
        assert c.getresponse().read() == str(i).encode()
    assert c.sock.getsockname()[1] == port, "one connection for all of them"
    row = [x for x in strand.client().client_list() if x["addr"] == f"127.0.0.1:{port}"]
    assert len(row) == 1 and row[0]["laddr"].endswith(f":{strand.http_port}"), row
    c.close()


@check
def http_by_curl(strand):
    def curl(*words, **options):
        done = subprocess.run(["curl", "-sS", "-i", *words], capture_output=True, timeout=60, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    url = f"{strand.url}/v1/keys/curl"
    value = os.urandom(3_000_000)
    # curl waits for 100-continue with a body this long.
    assert b" 201 Created" in curl("-T", "-", url, input=value)
    assert curl(url).endswith(value)
    assert curl("-r", "1000000-1999999", url).endswith(b"\r\n\r\n" + value[1_000_000:2_000_000])
    two = curl(url, f"{strand.url}/healthz")
    assert two.endswith(b"ok\n") and two.count(b"HTTP/1.1 200 OK") == 2
    guarded = Strand(strand.binary, "--requirepass", "sesame")
    try:
        key = f"{guarded.url}/v1/keys/x"
        assert b" 401 " in curl(key) and b" 401 " in curl("-u", "default:wrong", key)
        assert b" 404 " in curl("-u", "default:sesame", key)
        assert b" 404 " in curl("-H", "Authorization: Bearer sesame", key)
    finally:
        assert guarded.stop() == 0


@check
def metrics_by_prometheus(strand):
    from prometheus_client.parser import text_string_to_metric_families

    strand.client().set("counted", 1)
    families = {f.name: f for f in text_string_to_metric_families(requests.get(f"{strand.url}/metrics").text)}
    assert families["strand_commands_processed"].type == "counter"
    assert any(s.labels == {"command": "set"} and s.value >= 1 for s in families["strand_commands"].samples)
    assert families["strand_db_keys"].samples[0].value >= 1 and len(families) > 50


@check
def http_by_schemathesis(strand):
    """The description against the server, with a bounded number of examples.

    Without /v1/live, whose replies never end: each example waited for its timeout, 120 s in all. tests/server/history.rs reads it.
    """
    done = subprocess.run(
        [
            os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", f"{strand.url}/v1/openapi.json",
            "--max-examples", "10", "--seed", "1", "--request-timeout", "60", "--exclude-path", "/v1/live", "--suppress-health-check", "all",
            "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ],
        capture_output=True, text=True, timeout=240, cwd="/tmp",
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert requests.get(f"{strand.url}/healthz").text == "ok\n"


@check
def blocking_pops(strand):
    for protocol in (2, 3):
        r = strand.client(protocol=protocol)
        r.flushall()
        assert r.blpop(["a", "b"], timeout=0.01) is None
        assert r.blmove("a", "b", 0.01) is None
        r.rpush("b", "1", "2", "3", "4")
        assert tuple(r.blpop(["a", "b"], timeout=1)) == ("b", "1")
        assert tuple(r.brpop("b")) == ("b", "4")
        assert r.brpoplpush("b", "c", 1) == "3" and r.blmove("b", "c", 1) == "2"
        assert r.blmpop(1, 2, "b", "c", direction="LEFT", count=5) == ["c", ["3", "2"]]
        r.zadd("z", {"m": 1, "n": 2, "o": 3})
        assert list(r.bzpopmin("z", 1)) == ["z", "m", 1.0] and list(r.bzpopmax("z", 1)) == ["z", "o", 3.0]
        assert r.wait(1, 10) == 0

        # A queue: workers wait in other threads, a producer pushes.
        results = []

        def work():
            mine = strand.client(protocol=protocol)
            while (job := mine.blpop("jobs", timeout=20)) and job[1] != "end":
                results.append(job[1])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for i in range(200):
            r.rpush("jobs", i)
        r.rpush("jobs", *["end"] * 4)
        for t in threads:
            t.join(60)
        assert sorted(map(int, results)) == list(range(200)), results

        # A stream with a consumer group.
        r.xgroup_create("s", "g", mkstream=True)
        read = []

        def consume():
            mine = strand.client(protocol=protocol)
            read.append(mine.xreadgroup("g", "c", {"s": ">"}, block=20_000))

        t = threading.Thread(target=consume)
        t.start()
        r.xadd("s", {"f": "v"}, id="1-1")
        t.join(60)
        assert len(read) == 1 and "1-1" in repr(read), read


@check
def many_threads(strand):
    r = strand.client()
    r.set("counter", 0)

    def work():
        mine = strand.client()
        for _ in range(500):
            mine.incr("counter")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert r.get("counter") == "4000"


def main():
    strand = Strand(os.path.abspath(sys.argv[1]))
    failed = 0
    try:
        for function in CHECKS:
            began = time.time()
            try:
                function(strand)
                print(f"ok   {function.__name__} ({time.time() - began:.1f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {function.__name__}")
                traceback.print_exc()
    finally:
        code = strand.stop()
    if code != 0:
        failed += 1
        print(f"FAIL the server ended with {code} on SIGTERM")
    print(f"{len(CHECKS) - min(failed, len(CHECKS))} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
