#!/usr/bin/env python3
"""Test suites of Redis's clients, unchanged: each against Debian's redis-server, then against Strand.

usage: suites.py STRAND_BINARY [--only NAME]. Fetches a suite in a pinned version (target/real-clients/suites), runs it in a network of
its own (`unshare`), as suites have fixed ports, and compares: what fails at Strand and not at redis-server fails here, unless EXPECTED
says why it does. What suites want of sentinels, clusters and replicas is redis-server in both runs.
"""
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDER = os.path.join(ROOT, "target", "real-clients", "suites")
#: No suite takes longer.
SECONDS_MAX = 1200
#: With redis-server more pass.
PASSED_MIN = 400
#: Of one answer that a suite waits for.
ANSWER_SECONDS_MAX = 60

REDIS_PY = "5.2.1"
REDIS_PY_SHA256 = "16f2e22dff21d5125e8481515e386711a34cbec50f0e44413dd7d9c060a54e0f"
REDIS_PY_NEEDS = [f"redis=={REDIS_PY}", "pytest==7.4.4", "pytest-asyncio==0.23.8", "pytest-timeout==2.4.0", "mock==5.2.0",
                  "cachetools==5.5.2", "numpy<3", "packaging<27"]
GO_REDIS = "github.com/redis/go-redis/v9@v9.0.5"

#: What fails at Strand and not at redis-server, with the reason.
EXPECTED = {
    "redis-py": {},
    "go-redis": {
        "Commands server [It] should SlaveOf": "there is no replication yet",
        "Commands server [It] should Command": "it wants some 240 commands; Strand has more",
    },
}

#: Stands where go-redis looks for a redis-server that it has built.
SHIM = """#!/bin/bash
strand=%s
case " $* " in
    *" --sentinel "*|*" --slaveof "*|*" --cluster-enabled "*|*" 9123 "*) ;;
    *) [ -z "$strand" ] || exec "$strand" serve "$@" --http-port 0 --workers 1 --loglevel warning </dev/null ;;
esac
exec redis-server "$@"
"""


def command(*words, **options):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, **options)


def alone(words, folder, log):
    """Runs words in a network of their own and ends every process that is left there; the log's text."""
    with open(log, "wb") as out:
        words = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "bash", "-c",
                 'ip link set lo up && exec "$@"', "suite", *words]
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            process.wait(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with open(log, errors="replace") as text:
        return text.read()


class RedisPy:
    """redis-py's tests, of one server, sync and asyncio; not those of TLS, sentinels, clusters and modules."""

    name = "redis-py"
    LEFT_OUT = ["test_ssl.py", "test_sentinel.py", "test_cluster.py", "test_graph.py", "test_graph_utils", "test_search.py",
                "test_json.py", "test_timeseries.py", "test_bloom.py", "test_asyncio/test_sentinel.py", "test_asyncio/test_cluster.py",
                "test_asyncio/test_graph.py", "test_asyncio/test_search.py", "test_asyncio/test_cwe_404.py"]

    def fetch(self):
        self.folder = os.path.join(FOLDER, f"redis-{REDIS_PY}")
        self.python = os.path.join(FOLDER, "venv", "bin", "python")
        if os.path.exists(os.path.join(self.folder, ".fetched")):
            return
        venv.create(os.path.join(FOLDER, "venv"), with_pip=True)
        pip = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        command(*pip, "install", *REDIS_PY_NEEDS)
        command(*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", FOLDER, f"redis=={REDIS_PY}")
        packed = self.folder + ".tar.gz"
        with open(packed, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        assert digest == REDIS_PY_SHA256, f"{packed} is another one: {digest}"
        # Files belong to who runs this: in a namespace of its own root is nobody else.
        shutil.unpack_archive(packed, FOLDER, filter="data")
        # The library is the installed one; the suite finds `tests` in this folder.
        shutil.rmtree(os.path.join(self.folder, "redis"))
        open(os.path.join(self.folder, ".fetched"), "w").close()

    def run(self, strand, log):
        server = ["redis-server"] if strand is None else [strand, "serve", "--http-port", "0", "--loglevel", "warning"]
        server += ["--port", "6379", "--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"]
        marks = "not onlycluster and not redismod and not ssl"
        suite = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-m", marks, "--asyncio-mode=auto",
                 "--timeout", str(ANSWER_SECONDS_MAX), "--tb", "short", "tests"]
        suite += [word for left in self.LEFT_OUT for word in ("--ignore", f"tests/{left}")]
        both = '"${@:2:$1}" </dev/null >../server.log 2>&1 & for _ in {1..400}; do redis-cli ping >/dev/null 2>&1 && break; sleep 0.05; done; ' \
            '"${@:$1+2}"'
        text = alone(["bash", "-c", both, "both", str(len(server)), *server, *suite], self.folder, log)
        ended = re.search(r"(\d+) passed", text)
        return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.M)), int(ended[1]) if ended else 0


class GoRedis:
    """go-redis's tests: all that is of one server, and of rings; sentinels and clusters start, and are not tested."""

    name = "go-redis"

    def fetch(self):
        self.folder = os.path.join(FOLDER, "go-redis")
        self.binary = os.path.join(FOLDER, "go-redis.test")
        if os.path.exists(self.binary):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(os.path.join(FOLDER, "module"), exist_ok=True)
        with open(os.path.join(FOLDER, "module", "go.mod"), "w") as module:
            module.write("module suites\n")
        # Go compares the module with the checksum database.
        told = subprocess.run(["go", "mod", "download", "-json", GO_REDIS], check=True, capture_output=True, text=True,
                              cwd=os.path.join(FOLDER, "module"))
        shutil.copytree(re.search(r'"Dir": "(.*)"', told.stdout)[1], self.folder)
        command("chmod", "-R", "u+w", self.folder)
        os.makedirs(os.path.join(self.folder, "testdata", "redis", "src"), exist_ok=True)
        open(os.path.join(self.folder, "testdata", "redis", "redis.conf"), "w").close()
        command("go", "test", "-c", "-o", self.binary, ".", cwd=self.folder)

    def run(self, strand, log):
        shim = os.path.join(self.folder, "testdata", "redis", "src", "redis-server")
        with open(shim, "w") as file:
            file.write(SHIM % (f"'{strand}'" if strand else ""))
        os.chmod(shim, 0o755)
        suite = [self.binary, "-test.timeout", f"{SECONDS_MAX}s", "-test.run", "TestGinkgoSuite", "--ginkgo.no-color",
                 "--ginkgo.seed", "1", "--ginkgo.skip", "ClusterClient (ClusterClient|with)|Sentinel|withConn"]
        text = alone(suite, self.folder, log)
        ended = re.search(r"(\d+) Passed", text)
        failed = re.findall(r"^\s*\[(?:FAIL|PANICKED!|TIMEDOUT)\] (.+)$", text.partition("Summarizing")[2], re.M)
        return set(failed), int(ended[1]) if ended else 0


def main():
    strand = os.path.abspath(sys.argv[1])
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    os.makedirs(FOLDER, exist_ok=True)
    bad = 0
    for suite in [RedisPy(), GoRedis()]:
        if only not in suite.name:
            continue
        if suite.name == "go-redis" and shutil.which("go") is None:
            print(f"SKIP {suite.name}: there is no go here")
            bad += "CI" in os.environ
            continue
        suite.fetch()
        found = {}
        for name, binary in (("redis-server", None), ("Strand", strand)):
            began = time.monotonic()
            log = os.path.join(FOLDER, f"{suite.name}-{name}.log")
            found[name] = suite.run(binary, log)
            failed, passed = found[name]
            print(f"{suite.name}, {name}: {passed} passed, {len(failed)} failed in {time.monotonic() - began:.0f} s ({log})", flush=True)
        theirs, ours = found["redis-server"], found["Strand"]
        reasons = EXPECTED[suite.name]
        more = sorted(ours[0] - theirs[0] - set(reasons))
        for test in more:
            print(f"FAIL {test}: only at Strand")
        for test in sorted(set(reasons) & ours[0]):
            print(f"     {test}: {reasons[test]}")
        # A suite that ends early has few failures.
        ended_early = theirs[1] < PASSED_MIN or ours[1] + len(ours[0]) < theirs[1]
        if ended_early:
            print(f"FAIL {suite.name}: it did not run to its end")
        bad += len(more) + ended_early
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
