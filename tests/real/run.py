#!/usr/bin/env python3
"""Real clients, and what people run on Redis: each scenario against Debian's redis-server, then against Strand.

usage: run.py STRAND_BINARY [--jvm] [--only NAME] [--strand-alone]. A scenario says itself what it expects: redis-server shows that
the expectation is right, so `make test` leaves redis-server out (12 s of processor time) and `make test-real` does not. Builds what is to be built (target/real-clients), starts both servers on free
ports of 127.0.0.1 and ends them by their pids. Prints "N passed, M failed" and exits 1 when a scenario fails. A scenario whose
language is not on this machine is named and counted as skipped; with CI set that is a failure.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from harness import Process, free_port  # noqa: E402

BUILT = os.path.join(ROOT, "target", "real-clients")
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
#: No build and no scenario takes longer.
SECONDS_MAX = 240


class Client:
    """How a scenario is built (in `folder`, with the tools that it needs) and run; the port comes last."""

    def __init__(self, name, folder, run, build=(), tools=()):
        self.name, self.folder, self.run = name, os.path.join(HERE, folder), list(run)
        self.build, self.tools = list(build), tools

    def lacks(self):
        return [tool for tool in self.tools if shutil.which(tool) is None]


GO = Client("go-redis, redsync, redis_rate", "go", [f"{BUILT}/go"], ["go", "build", "-o", f"{BUILT}/go", "."], ["go"])
CLIENTS = [
    Client("redis-py, asyncio", "python", [PYTHON, "asyncio_redis.py"]),
    Client("RQ", "python", [PYTHON, "jobs.py"]),
    Client("Celery", "python", [PYTHON, "-W", "ignore", "celery_jobs.py"]),
    Client("ioredis", "node", ["node", "ioredis.mjs"], tools=["node"]),
    Client("node-redis", "node", ["node", "node_redis.mjs"], tools=["node"]),
    Client("BullMQ, bee-queue, redlock, rate-limiter-flexible", "node", ["node", "bullmq.mjs"], tools=["node"]),
    GO,
    Client(
        "redis-rs", "rust", [f"{BUILT}/debug/strand-real-clients"],
        [os.environ.get("CARGO", "cargo"), "build", "--quiet", "--locked", "--target-dir", BUILT],
    ),
    Client(
        "hiredis", "c", [f"{BUILT}/hiredis"],
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", f"{BUILT}/hiredis", "hiredis.c", "-lhiredis"],
    ),
]
JVM = [
    Client(
        "jedis and lettuce", "jvm", ["java", "-cp", "target/classes:target/lib/*", "RealClients"],
        ["mvn", "-q", "-B", "package", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], ["mvn", "java"],
    ),
]


def run(command, folder):
    """The output of a command and whether it succeeded."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            code = process.wait(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = "no end"
        out.seek(0)
        return out.read().decode(errors="replace"), code


class Server(Process):
    """A server on a free port, with a folder of its own. PORT in the command stands for the port."""

    def __init__(self, *command):
        self.folder = tempfile.TemporaryDirectory()
        port = free_port()
        super().__init__(port, [part.replace("PORT", str(port)) for part in command], folder=self.folder.name)

    def stop(self):
        code = super().stop()
        self.folder.cleanup()
        return code


def main():
    strand = os.path.abspath(sys.argv[1])
    clients = JVM if "--jvm" in sys.argv else CLIENTS
    if "--only" in sys.argv:
        word = sys.argv[sys.argv.index("--only") + 1]
        clients = [client for client in clients if word in client.name]
        assert clients, f"no scenario is called {word}"
    os.makedirs(BUILT, exist_ok=True)
    servers = []
    if "--strand-alone" not in sys.argv:
        servers.append(("redis-server", Server("redis-server", "--port", "PORT", "--bind", "127.0.0.1", "--save", "")))
    ours = Server(strand, "serve", "--port", "PORT", "--bind", "127.0.0.1", "--http-port", "0", "--loglevel", "warning", "--save", "")
    servers.append(("Strand", ours))
    passed = failed = skipped = 0
    try:
        for client in clients:
            if client.lacks():
                skipped += 1
                print(f"SKIP {client.name}: there is no {', '.join(client.lacks())} here")
                continue
            text, code = run(client.build, client.folder) if client.build else ("", 0)
            for name, server in servers:
                began = time.monotonic()
                if code == 0:
                    text, code = run([*client.run, str(server.port)], client.folder)
                if code != 0:
                    failed += 1
                    print(f"FAIL {client.name}, {name}: {code}\n{text}")
                    break
                passed += 1
                print(f"ok   {client.name}, {name}: {text.count('ok   ')} in {time.monotonic() - began:.1f} s", flush=True)
    finally:
        code = [server.stop() for _, server in servers][-1]
    if code != 0:
        failed += 1
        print(f"FAIL Strand ended with {code} on SIGTERM")
    failed += skipped if os.environ.get("CI") else 0
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
