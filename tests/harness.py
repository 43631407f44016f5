"""What the Python tests share: free ports, and servers as processes of their own."""
import contextlib
import http.server
import random
import signal
import socket
import subprocess
import tempfile
import time

# Longest wait for a server to take connections: this number of tries, and the pause after each.
TRIES_MAX, TRY_S = 800, 0.025
# Longest wait for a server to end after SIGTERM.
END_S = 20


# Linux gives ports above these to who asks for any port. So no other test's connection or server takes a port between
# free_port's look and the start of the server there.
PORTS = range(16_000, 32_000)


def free_port():
    """A port of 127.0.0.1 that is free now, by random."""
    for port in random.sample(PORTS, TRIES_MAX):
        with socket.socket() as s:
            with contextlib.suppress(OSError):
                s.bind(("127.0.0.1", port))
                return port
    raise RuntimeError(f"none of {TRIES_MAX} ports is free")


class Handler(http.server.BaseHTTPRequestHandler):
    """What the tests' own HTTP servers share: connections that stay open, and no lines on stderr."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: with Nagle's algorithm the second waits 40 ms for the first one's delayed ACK.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass


class Ended(RuntimeError):
    """The server ended before it took connections. The text has the end of its log."""


class Process:
    """A server, started by `arguments` and ready when it takes connections at each of `ports`."""

    def __init__(self, ports, arguments, environment=None, folder=None):
        self.ports = [ports] if isinstance(ports, int) else ports
        self.port = self.ports[0]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment
        )
        for _ in range(TRIES_MAX):
            try:
                for port in self.ports:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                if self.process.poll() is None:
                    time.sleep(TRY_S)
                    continue
            if self.process.poll() is None:
                return
            self.log.seek(0)
            raise Ended(f"{arguments[:3]} ended at start: {self.log.read()[-2000:]}")
        self.stop()
        raise RuntimeError(f"{arguments[:3]} does not listen")

    def stop(self):
        """Ends the server by SIGTERM, or else by SIGKILL. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_S)
        self.log.close()
        return self.process.returncode
