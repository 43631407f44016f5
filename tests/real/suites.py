#!/usr/bin/env python3
"""Test suites of Redis and of its clients, each against Debian's redis-server, then against Strand. They are unchanged, but for a block
of Redis's own that would end the suite.

usage: suites.py STRAND_BINARY [--only NAME]. Fetches a suite in a pinned version (target/real-clients/suites), runs it in a network of
its own (`unshare`), as suites have fixed ports, and compares: what fails at Strand and not at redis-server fails here, unless EXPECTED
says why it does. What suites want of sentinels and clusters is redis-server in both runs.
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
#: At least this part of the tests that redis-server passes runs with Strand.
PART_MIN = 0.98
#: Of one answer that a suite waits for.
ANSWER_SECONDS_MAX = 60

#: Debian's redis-server.
REDIS = "7.0.15"
REDIS_PY = "5.2.1"
REDIS_PY_SHA256 = "16f2e22dff21d5125e8481515e386711a34cbec50f0e44413dd7d9c060a54e0f"
REDIS_PY_NEEDS = [f"redis=={REDIS_PY}", "pytest==7.4.4", "pytest-asyncio==0.23.8", "pytest-timeout==2.4.0", "mock==5.2.0",
                  "cachetools==5.5.2", "numpy<3", "packaging<27"]
GO_REDIS = "github.com/redis/go-redis/v9@v9.0.5"

#: What fails at Strand and not at redis-server, with the reason.
EXPECTED = {
    # These tests are skipped at Strand: a test that waits for what never comes would end the suite.
    "redis-server's tests": {name: reason for reason, names in {
        "an effect may be another command with an equal result": """
            GETDEL propagate as DEL command to replica
            /B?(L|Z)MPOP propagate as pop with count command to replica
            INCRBYFLOAT: We can call scripts expanding client->argv from Lua
            MULTI propagation of XREADGROUP
            All TTL in commands are propagated as absolute timestamp in replication stream
            SWAPDB wants to wake blocked client, but the key already expired""",
        "a message needs no database": """
            MULTI propagation of PUBLISH""",
        "SCAN and RANDOMKEY leave expired keys to the expiry": """
            SCAN: Lazy-expire should not be wrapped in MULTI/EXEC
            RANDOMKEY: Lazy-expire should not be wrapped in MULTI/EXEC""",
        "a script cannot choose who gets its effects": """
            Test selective replication of certain Redis commands from Lua""",
        "SIGSTOP stops the threads of a replica one after the other": """
            WAIT implicitly blocks on client pause since ACKs aren't sent""",
        "INFO does not run in a script": """
            FUNCTION - allow stale""",
        "DEBUG OBJECT finds no key that has expired": """
            Replication of an expired key does not delete the expired key""",
        "a primary loads keys that have expired, and then removes them": """
            PSYNC2: Partial resync after Master restart using RDB aux fields with expire
            PSYNC2: Full resync after Master restart when too many key expired""",
        "a long script keeps only clients of its keys waiting, and only they get BUSY": """
            /Timedout.*script.*
            SHUTDOWN NOSAVE can kill a timedout script anyway
            MULTI and script timeout
            EXEC and script timeout
            MULTI-EXEC body and script timeout
            just EXEC and script timeout
            FUNCTION - test function kill
            FUNCTION - test script kill not working on function
            FUNCTION - test function kill not working on eval
            not enough good replicas state change during long script""",
        "no process is forked, and none of its numbers is in INFO": """
            SRANDMEMBER with a dict containing long chain
            Don't rehash if redis has child process
            MULTI with BGREWRITEAOF
            Temp rdb will be deleted if we use bg_unlink when shutdown
            failed bgsave prevents writes
            Test child sending info
            CONFIG SET oom-score-adj works as expected""",
        "100,000 integers take less than a megabyte": """
            FLUSHDB ASYNC can reclaim memory in background""",
        "the test looks for redis-server's words in the log": """
            MULTI with config set appendonly
            Turning off AOF kills the background writing child if any
            SHUTDOWN will abort if rdb save failed on signal
            Server should not start if RDB is corrupted
            /Data divergence .*
            /.*: Server should have logged an error
            SHUTDOWN can proceed if shutdown command was with nosave""",
        "DEBUG SLEEP stops its own client only, and does not stand in a transaction": """
            SLOWLOG - EXEC is not logged, just executed commands
            MULTI + LPUSH + EXPIRE + DEBUG SLEEP on blocked client, key already expired
            PSYNC2 pingoff: pause replica and promote it
            Tracking gets notification of lazy expired keys
            MIGRATE timeout actually works""",
        "commands about the server run after the last command on data": """
            SLOWLOG - Rewritten commands are logged as their original command""",
        "the append-only file has RESTORE with REPLACE": """
            All time-to-live(TTL) in commands are propagated as absolute timestamp in milliseconds in AOF""",
        "FLUSHALL writes no snapshot": """
            FLUSHALL should reset the dirty counter to 0 if we enable save""",
        "a read of an expired key removes the key, also during a pause": """
            Test both active and passive expires are skipped during client pause""",
        "the keys that a script reads are tracked, not the keys that it declares": """
            Tracking only occurs for scripts when a command calls a read-only command""",
        "only commands that need memory evict, and a thread does the rest": """
            Tracking invalidation message of eviction keys should be before response""",
        "the process keeps its title": """
            Process title set as expected""",
        "there is no debugger of scripts": """
            Test scripting debug protocol parsing
            Test scripting debug lua stack overflow""",
        "an error of a command in a script counts for the command and for the script": """
            Consistent eval error reporting""",
        "clients have no query buffers of redis-server's kind, and at most 256 KiB of replies before they read": """
            No response for single command if client output buffer hard limit is enforced
            No response for multi commands in pipeline if client output buffer limit is enforced
            query buffer resized correctly
            query buffer resized correctly when not idle
            avoid client eviction when client is freed by output buffer limit
            client evicted due to output buf
            /client total memory grows during .*""",
        "a large request is read in parts, and other clients' commands run between them": """
            client evicted due to percentage of maxmemory""",
        "a client has at most 1,024 prefixes of CLIENT TRACKING": """
            client evicted due to client tracking prefixes""",
        "a negative count has a limit": """
            Obuf limit, HRANDFIELD with huge count stopped mid-run""",
        "a helper thread frees what is large, whatever the command": """
            lazy free a stream with all types of metadata
            lazy free a stream with deleted cgroup""",
        "DEBUG has fewer subcommands, and in a script only PROTOCOL": """
            CONFIG REWRITE sanity
            AOF fsync always barrier issue
            Script block the time during execution
            Script delete the expired key
            FUNCTION - test debug reload different options""",
        "while DEBUG LOADAOF runs, clients wait instead of getting LOADING": """
            EVAL timeout with slow verbatim Lua script from AOF""",
        "a write is in the append-only file after 20 ms, and the test looks at once": """
            Generate timestamp annotations in AOF""",
        "Strand has more options that are only read at the start": """
            CONFIG sanity""",
        "the default of bind is the loopback": """
            Default bind address configuration handling""",
        "the test needs a skipped one": """
            'x' should be '4' for EVALSHA being replicated by effects
            Make the old master a replica of the new one and check conditions
            Now use EVALSHA against the master, with both SHAs
            bgsave resets the change counter
            Temp rdb will be deleted in signal handle""",
        "a snapshot is of one moment and has no expired keys, and FLUSHALL does not end it": """
            Test FLUSHALL aborts bgsave
            Test RDB load info""",
        "a signal begins the stop at once, also while DEBUG PAUSE-CRON pauses periodic work": """
            SHUTDOWN ABORT can cancel SIGTERM""",
        "a set in a script keeps its order": """
            SORT BY <constant> output gets ordered for scripting""",
        "used_memory_lua counts all interpreters": """
            EVAL does not leak in the Lua stack""",
        "the configuration is read more strictly, and its errors have other words": """
            /redis-server command line arguments - .*
            CONFIG REWRITE handles rename-command properly""",
        "MIGRATE opens a connection for each call": """
            MIGRATE is caching connections
            MIGRATE cached connections are released after some time""",
    }.items() for name in map(str.strip, names.strip().split("\n"))},
    "redis-py": {},
    "go-redis": {
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


#: Stands where redis-server's tests look for redis-server. They wait for a line with the server's process, which redis-server writes
#: when it listens.
STAND_IN = """#!/bin/bash
strand=%s
[ -n "$strand" ] || exec /usr/bin/redis-server "$@"
me=$$
port=6379
[ -f "$1" ] && port=$(awk '$1 == "port" {p = $2} END {print p}' "$1")
{ for _ in {1..200}; do
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
      kill -0 $me 2>/dev/null || break
      sleep 0.02
  done
  echo "listens, PID: $me"; } &
exec "$strand" serve "$@" --http-port 0 --workers 1 2>&1
"""


def command(*words, **options):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, **options)


def alone(words, folder, log):
    """Runs words in a network of their own and ends every process that is left there; the log's text."""
    with open(log, "wb") as out:
        words = ["unshare", "--map-root-user", "--net", "--pid", "--mount-proc", "--fork", "--kill-child", "bash", "-c",
                 'ip link set lo up && exec "$@"', "suite", *words]
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            process.wait(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with open(log, errors="replace") as text:
        return text.read()


class Redis:
    """redis-server's own tests, from Debian's source package: all of one server, and most of replication. Left out are those of clusters,
    sentinels, TLS, modules and the report of a crash; of replication with the child of a fork (replication, replication-buffer) and with
    DEBUG SLEEP in MULTI (replication-psync); of manifests (each test needs the state that the one before left, and some need forks); and
    of broken dumps (they need DEBUG subcommands that Strand refuses)."""

    name = "redis-server's tests"
    UNITS = """auth protocol keyspace scan info info-command type/string type/incr type/list type/list-2 type/list-3 type/set type/zset
        type/hash type/stream type/stream-cgroups sort expire other multi quit aofrw acl acl-v2 latency-monitor dump pubsub pubsubshard
        tracking slowlog scripting functions introspection introspection-2 limits obuf-limits bitops bitfield geo hyperloglog lazyfree
        wait pause querybuf client-eviction shutdown violations networking
        oom-score-adj""".split()
    INTEGRATION = """block-repl replication-2 replication-3 replication-4 psync2 psync2-reg psync2-pingoff psync2-master-restart failover
        aof rdb convert-zipmap-hash-on-load convert-ziplist-hash-on-load convert-ziplist-zset-on-load dismiss-mem
        redis-cli redis-benchmark shutdown""".split()
    #: Clients of the suite that test at the same time, and what one test may take.
    CLIENTS, TEST_SECONDS_MAX = 3, 120

    def fetch(self):
        self.folder = os.path.join(FOLDER, "redis")
        if os.path.exists(os.path.join(self.folder, ".fetched")):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        apt = os.path.join(self.folder, "apt")
        os.makedirs(os.path.join(apt, "lists", "partial"))
        os.makedirs(os.path.join(apt, "sources"))
        # Debian's packages come from where this machine gets them, as sources.
        for folder, _, names in os.walk("/etc/apt"):
            for name in names:
                with open(os.path.join(folder, name), errors="replace") as file:
                    text = file.read()
                if name.endswith((".list", ".sources")) and "debian" in text and "/debian" in text:
                    text = re.sub(r"^Types:.*$", "Types: deb-src", re.sub(r"^deb ", "deb-src ", text, flags=re.M), flags=re.M)
                    with open(os.path.join(apt, "sources", name), "w") as file:
                        file.write(text)
        get = ["apt-get", "-q", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={apt}/sources",
               "-o", f"Dir::State::lists={apt}/lists", "-o", "APT::Sandbox::User=root"]
        command(*get, "update", stdout=subprocess.DEVNULL)
        command(*get, "source", "--download-only", "redis", cwd=self.folder, stdout=subprocess.DEVNULL)
        packed = next(name for name in os.listdir(self.folder) if name.endswith(".orig.tar.gz"))
        assert packed == f"redis_{REDIS}.orig.tar.gz", f"{packed}: the tests of another version than {REDIS}"
        shutil.unpack_archive(os.path.join(self.folder, packed), self.folder, filter="data")
        os.rename(os.path.join(self.folder, f"redis-{REDIS}"), os.path.join(self.folder, "source"))
        # Outside a test, so it would end the suite: Strand has no debugger of scripts.
        scripting = os.path.join(self.folder, "source", "tests", "unit", "scripting.tcl")
        with open(scripting) as file:
            text = file.read()
        debugger = re.compile(r"^start_server \{[^\n]*\{\n    r script debug sync\n.*?^\}\n", re.M | re.S)
        assert debugger.search(text), scripting
        with open(scripting, "w") as file:
            file.write(debugger.sub("", text))
        for program in ("redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
            os.symlink(shutil.which(program), os.path.join(self.folder, "source", "src", program))
        open(os.path.join(self.folder, ".fetched"), "w").close()

    def run(self, strand, log):
        source = os.path.join(self.folder, "source")
        server = os.path.join(source, "src", "redis-server")
        with open(server, "w") as file:
            file.write(STAND_IN % (f"'{strand}'" if strand else ""))
        os.chmod(server, 0o755)
        skipped = os.path.join(self.folder, "skipped")
        with open(skipped, "w") as file:
            file.writelines(f"{name}\n" for name in EXPECTED[self.name] if strand)
        shutil.rmtree(os.path.join(source, "tests", "tmp"))
        os.makedirs(os.path.join(source, "tests", "tmp"))
        suite = ["./runtest", "--durable", "--clients", str(self.CLIENTS), "--timeout", str(self.TEST_SECONDS_MAX), "--tags",
                 "-large-memory", "--skipfile", skipped]
        units = [f"unit/{name}" for name in self.UNITS] + [f"integration/{name}" for name in self.INTEGRATION]
        suite += [word for unit in units for word in ("--single", unit)]
        text = re.sub(r"\x1b\[[0-9;]*m", "", alone(suite, source, log))
        failed = re.findall(r"^\[(?:err|exception|timeout)\]: (.*?)(?: in tests/\S+)?$", text, re.M)
        return set(failed), len(re.findall(r"^\[(?:ok|skip)\]: ", text, re.M))


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
    for suite in [Redis(), RedisPy(), GoRedis()]:
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
        # A suite that ends early has few failures. Some tests run as often as their time allows.
        ended_early = theirs[1] < PASSED_MIN or ours[1] + len(ours[0]) < PART_MIN * theirs[1]
        if ended_early:
            print(f"FAIL {suite.name}: it did not run to its end")
        bad += len(more) + ended_early
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
