"""`strand cli` beside Debian's redis-cli: the same arguments and input against the same server give the same bytes and the same
exit code, with the output a pipe and a terminal. The editor is driven through a terminal by itself. Run: tests/cli.py STRAND"""

import contextlib
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time

from harness import Process, free_port

STRAND = os.path.abspath(sys.argv[1])
WAIT_S = 60
# Follows the output of a program whose output is a terminal.
END_MARK = b"\x1eend\x1e"
failures = []


class Server(Process):
    def __init__(self, command):
        self.folder = tempfile.TemporaryDirectory()
        port = free_port()
        args = ["--port", str(port), "--dir", self.folder.name, "--save", "", "--enable-debug-command", "yes"]
        super().__init__(port, command + args)

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()

    def __enter__(self):
        return self


def with_pipe(program, args, data, env):
    done = subprocess.run(program + args, input=data, capture_output=True, timeout=WAIT_S, env=env)
    return done.stdout, done.stderr, done.returncode


def with_terminal(program, args, data, env):
    """The output is a terminal, the input is not."""
    here, there = pty.openpty()
    child = subprocess.Popen(program + args, stdin=subprocess.PIPE, stdout=there, stderr=subprocess.PIPE, env=env)
    # A program may end before it has read its input; subprocess.run passes over that too.
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(data)
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    # When a program closes the terminal, the kernel may drop what nobody has read yet. So this end stays open too, and a mark
    # follows the program's last byte.
    out, end, is_marked = b"", time.monotonic() + WAIT_S, False
    while not out.endswith(END_MARK) and time.monotonic() < end:
        if not is_marked and child.poll() is not None:
            os.write(there, END_MARK)
            is_marked = True
        if select.select([here], [], [], 0.005)[0]:
            out += os.read(here, 65536)
    os.close(here)
    os.close(there)
    errors = child.stderr.read()
    return out.removesuffix(END_MARK), errors, child.wait(WAIT_S)


def fill(server):
    """The data that each program finds. By a socket: a process of redis-cli takes 15 ms of processor time."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as connection, connection.makefile("rb") as replies:
        connection.sendall(FILL)
        for line in FILL.splitlines():
            reply = replies.readline()
            assert reply[:1] in b"+:$", (line, reply)
            if reply.startswith(b"$"):
                replies.readline()


def compare(server, args, data=b"", env=None, mask=None, terminal=True):
    environment = dict(os.environ, **(env or {}))
    for way in [with_pipe] + ([with_terminal] if terminal else []):
        got = []
        for program in (["redis-cli"], [STRAND, "cli"]):
            fill(server)
            out, errors, code = way(program, ["-p", str(server.port)] + args, data, environment)
            # Of a connection that was closed a moment ago the kernel says the one or the other.
            errors = errors.replace(b"Connection reset by peer", b"Server closed the connection")
            got.append([mask(out) if mask else out, errors, code])
        if got[0] != got[1]:
            failures.append(f"{way.__name__} {args} {data!r}:\n  redis-cli {got[0]}\n  strand    {got[1]}")


FILL = b"""flushall
set s "a\\x00b\\n\\"q\\\\ \\xff"
set n 41
rpush l one two three 4 5 6 7 8 9 10 11
hset h f1 v1 f2 "v 2"
sadd u only
zadd z 1.1 a 2.5 b
xadd x 1-1 f v g w
xadd x 2-1 f v
"""

COMMANDS = [
    ["ping"], ["get", "s"], ["get", "none"], ["incr", "n"], ["lrange", "l", "0", "-1"], ["hgetall", "h"],
    ["smembers", "u"], ["zrange", "z", "0", "-1", "withscores"], ["zscore", "z", "a"], ["xrange", "x", "-", "+"],
    ["xinfo", "stream", "x", "full"], ["nosuch", "a"], ["lpush", "s", "x"], ["get"], ["keys", "none*"], ["config", "get", "nosuch"],
    ["command", "info", "get", "nosuch"], ["client", "setname", "n"], ["echo", "\u00e9\x01\x7f\t\x08\x0c\"\\"], ["type", "z"],
    ["exists", "s", "none"], ["set", "new", "v", "NX", "EX", "100"], ["object", "help"],
    ["eval", "return {1,{'a',false,{ok='x'}},redis.error_reply('ERR no'),{}}", "0"], ["latency", "doctor"],
    ["eval", "redis.setresp(3); return {double=1.25}", "0"], ["memory", "doctor"], ["debug", "sleep", "0"],
]

# Forms that each command gets in a process of its own: the exit code, the terminal and the arguments are compared.
FORMS = [[], ["-e"], ["-3"]]
# Forms that all commands get in one process, as lines: only the text differs. A process for each took 10 s more of processor time.
FORMS_OF_LINES = [["--no-raw"], ["--raw"], ["--csv"], ["--json"], ["--quoted-json"], ["-3", "--no-raw"], ["--json", "-2"],
                  ["-3", "--csv"], ["-d", "--", "-D", "##\n"], ["-2"]]



def digits(text):
    return re.sub(rb"\d+(\.\d+)?[BKMG]?", b"N", re.sub(rb" +", b" ", text))


def line(command):
    """The command as a line of input."""
    return b" ".join(b'"%s"' % re.sub(rb'[^ -!#-[\]-~]', lambda c: b"\\x%02x" % c[0][0], word.encode()) for word in command) + b"\n"


def check_commands(server):
    for command in COMMANDS:
        for form in FORMS:
            # A terminal changes what is the default alone.
            masked = digits if command == ["memory", "doctor"] else None
            compare(server, form + command, terminal=not form, mask=masked)
    lines = b"".join(line(command) for command in COMMANDS if command != ["memory", "doctor"])
    for form in FORMS_OF_LINES:
        compare(server, form, lines, terminal=False)
    protocols = ["map", "set", "push", "verbatim", "true", "false", "null", "double", "string", "integer", "array"]
    for form in (["-3", "--no-raw"], ["-3"], ["-3", "--csv"], ["-3", "--json"]):
        compare(server, form, b"".join(line(["debug", "protocol", protocol]) for protocol in protocols), terminal=False)


def check_options(server):
    folder = server.folder.name
    script = os.path.join(folder, "script.lua")
    with open(script, "w") as f:
        f.write("return {KEYS[1], #KEYS, ARGV[1], #ARGV}")
    with_login = f"redis://nobody:secret@127.0.0.1:{server.port}/2"
    for args, data in [
        (["-n", "3", "set", "k", "v"], b""), (["-n", "99", "ping"], b""), (["-n", "-1", "ping"], b""), (["-r", "3", "incr", "n"], b""),
        (["-r", "2", "-i", "0.01", "incr", "n"], b""), (["-x", "set", "k"], b"a\x00b\n"), (["-X", "tag", "set", "tag", "v"], b"k1"),
        (["-X", "none", "set", "tag", "v"], b"k1"), (["--quoted-input", "set", '"\\x00k"', "'v'"], b""),
        (["--quoted-input", "echo", '"a'], b""), (["-a", "wrong", "ping"], b""), (["--user", "u", "--pass", "p", "ping"], b""),
        (["--no-auth-warning", "-a", "wrong", "ping"], b""), (["-n", "99", "--pipe"], b"SET a b\r\n"), (["-n", "99", "--scan"], b""),
        (["--user", "u", "--pass", "p", "--pipe"], b"SET a b\r\n"), (["-n", "99", "--bigkeys"], b""),
        (["-u", f"REDIS://127.0.0.1:{server.port}/2?x=1", "ping"], b""),
        (["-u", with_login, "ping"], b""), (["--eval", script, "k1", "k2", ",", "a"], b""),
        (["--eval", script, "k1", ",", "a", ",", "b"], b""), (["--eval", script, ",", ","], b""),
        (["--eval", script], b""), (["-n", "99", "--eval", script], b""), (["--eval", script, "k1"], b""), (["--eval", "/no/such/file"], b""), (["-e", "nosuch"], b""),
        (["--show-pushes", "q", "ping"], b""), (["-h", "localhost", "ping"], b""), (["-h", "no.such.host.invalid", "ping"], b""),
        (["-p", "1", "ping"], b""), (["-s", "/no/such/socket", "ping"], b""), (["--no-raw", "-3", "client", "tracking", "on"], b""),
        (["--scan"], b""), (["--scan", "--pattern", "[hl]"], b""), (["--scan", "--quoted-pattern", '"\\x68"'], b""), (["--bigkeys"], b""),
        (["--memkeys"], b""), (["--memkeys-samples", "0"], b""), (["--hotkeys"], b""), (["-p", "1", "--scan"], b""),
        (["--pipe"], b""), (["--pipe"], b"SET a b\r\nNOSUCH\r\n*1\r\n$4\r\nPING\r\n"), (["--pipe"], b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n" * 20000),
        (["-c", "get", "n"], b""), (["subscribe"], b""), (["monitor", "x"], b""),
    ]:
        compare(server, args, data)
    compare(server, ["ping"], env={"REDISCLI_AUTH": "wrong"})


def check_lines(server):
    for data in [
        b"ping\nset a \"b\nget n\n3 incr n\n0 incr n\nmulti\nincr n\nexec\nquit\nping\n", b"select 3\nset k v\ndbsize\nmulti\nselect 1\nexec\n",
        b"", b"\n\n  \nget s\n", b"lrange l 0 -1\nhgetall h", b"hello 3\nhgetall h\nzscore z a\nreset\nhgetall h\n", b"nosuch\nget\n",
        b"client tracking on\nclient kill type normal skipme no\nping\n", b"multi\nnosuch\nexec\ndiscard\n", b"info\n"[:0] + b"exit\n", b"auth x\n",
        b"echo 'a\\'b'\necho \"\\x41\\n\"\n", b"config get maxmemory\n", b"debug sleep 0.01\n", b"reset\nping\n",
        b":set hints\nget n\n", b"shutdown nosuch\nping\n",
    ]:
        # The reply of HELLO has the connection's number.
        masked = digits if data.startswith(b"hello") else None
        compare(server, [], data, mask=masked)
        compare(server, ["--json"], data, terminal=False, mask=masked)


def first_lines(program, args, lines):
    """The first lines of what never ends; it is ended then."""
    child = subprocess.Popen(program + args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    got = [child.stdout.readline() for _ in range(lines)]
    child.kill()
    child.wait(WAIT_S)
    return got


def check_endless(server):
    # How many samples an interval has depends on the time that each takes, so only the kinds of lines are compared.
    for args, lines, seen in [(["--stat", "-i", "0.01"], 25, list), (["--latency-history", "-i", "0.05"], 25, set)]:
        theirs = seen(digits(line) for line in first_lines(["redis-cli", "-p", str(server.port)], args, lines))
        ours = seen(digits(line) for line in first_lines([STRAND, "cli", "-p", str(server.port)], args, lines))
        if theirs != ours:
            failures.append(f"{args}:\n  redis-cli {theirs}\n  strand    {ours}")
    compare(server, ["--latency", "-i", "0.05"], mask=digits, terminal=False)
    for args in (["subscribe", "c", "d"], ["monitor"]):
        got = []
        for program in (["redis-cli"], [STRAND, "cli"]):
            child = subprocess.Popen(program + ["-p", str(server.port)] + args, stdout=subprocess.PIPE)
            begin = child.stdout.readline()
            # What is published before the second subscription would not be seen by it; the reply says when both are there.
            begin += b"".join(child.stdout.readline() for _ in range(5 if args[0] == "subscribe" else 0))
            subprocess.run(["redis-cli", "-p", str(server.port), "publish", "c", "hello"], capture_output=True, check=True)
            begin += b"".join(child.stdout.readline() for _ in range(3 if args[0] == "subscribe" else 1))
            child.kill()
            child.wait(WAIT_S)
            got.append(re.sub(rb"^(OK\n)?[\d.]+ \[0 [^\]]*\]", rb"\1T", begin))
        if got[0] != got[1]:
            failures.append(f"{args}: {got}")


class Terminal:
    """A person at `strand cli`."""

    def __init__(self, port, home, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(HOME=home, TERM="xterm")
            os.execv(STRAND, [STRAND, "cli", "-p", str(port), *args])
        self.seen = b""

    def until(self, text):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", self.seen)
            if text in plain:
                return
            ready, _, _ = select.select([self.fd], [], [], 1)
            if ready:
                part = os.read(self.fd, 65536)
                # The editor asks where the cursor is.
                for _ in range(part.count(b"\x1b[6n")):
                    os.write(self.fd, b"\x1b[1;1R")
                self.seen += part
        raise AssertionError(f"the editor never showed {text!r}, but {self.seen[-2000:]!r}")

    def type(self, text):
        self.seen = b""
        os.write(self.fd, text)

    def ended(self):
        """The exit code of a program that ends by itself."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            # A program that writes to a terminal that nobody reads may wait for the reader.
            if select.select([self.fd], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    os.read(self.fd, 65536)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the program does not end")

    def end(self):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            # What is typed before the editor has the terminal again is the terminal's own: so it is typed again.
            try:
                os.write(self.fd, b"\x04")
                if select.select([self.fd], [], [], 0.2)[0] and b"\x1b[6n" in os.read(self.fd, 65536):
                    os.write(self.fd, b"\x1b[1;1R")
            except OSError:
                pass
        os.kill(self.pid, signal.SIGKILL)
        failures.append("the editor does not end")


def check_editor(server):
    home = server.folder.name
    person = Terminal(server.port, home)
    person.until(b"> ")
    person.type(b"get")
    person.until(b" key")
    person.type(b" n\r")
    person.until(b'"4')
    person.type(b"hgeta\t")
    person.until(b"hgetall")
    person.type(b"h\r")
    person.until(b"v 2")
    person.type(b"select 2\r")
    person.until(f"127.0.0.1:{server.port}[2]> ".encode())
    person.type(b"multi\r")
    person.until(b"[2](TX)> ")
    person.type(b"discard\r")
    person.until(b"[2]> ")
    # The prompt on a line of its own: the editor has the terminal again.
    prompt = f"\r\n127.0.0.1:{server.port}[2]> ".encode()
    for line in (b"auth sesame\r", b"3 auth sesame\r"):
        person.type(line)
        person.until(b"correct?" + prompt)
    # Ctrl-C ends SUBSCRIBE and MONITOR, and the connection is made anew.
    for command, shown in ((b"subscribe news", b'"news"'), (b"monitor", b"OK\r\n")):
        person.type(command + b"\r")
        person.until(shown)
        person.type(b"\x03")
        person.until(prompt)
    if person.end() != 0:
        failures.append("the editor did not end well")
    check_history(home, "get n")
    # A signal that ends the process leaves the history.
    person = Terminal(server.port, home)
    person.until(b"> ")
    person.type(b"echo last\r")
    person.until(b'"last"\r\n127.0.0.1')
    os.kill(person.pid, signal.SIGTERM)
    person.ended()
    check_history(home, "echo last")


def check_history(home, command):
    file = os.path.join(home, ".strandcli_history")
    with open(file) as f:
        lines = f.read()
    mode = os.stat(file).st_mode & 0o777
    if command not in lines or "sesame" in lines or mode != 0o600:
        failures.append(f"the history has mode {mode:o} and the lines {lines!r}")


def check_password(server):
    """Ctrl-C at the question for the password leaves a terminal that shows what is typed."""
    person = Terminal(server.port, server.folder.name, "--askpass", "ping")
    person.until(b"password: ")
    person.type(b"x\x03")
    person.until(b"no password was entered")
    # The terminal is alive while this process holds it.
    if not termios.tcgetattr(person.fd)[3] & termios.ECHO or person.ended() != 1:
        failures.append("after Ctrl-C the terminal has no echo, or the exit code is not 1")
    # Backspace removes a whole character, and other control characters are no part of the password.
    set_password = ["redis-cli", "-p", str(server.port), "config", "set", "requirepass"]
    subprocess.run([*set_password, "key"], check=True, stdout=subprocess.DEVNULL)
    person = Terminal(server.port, server.folder.name, "--askpass", "ping")
    person.until(b"password: ")
    person.type("k\x01e\u00e9\x7fy\r".encode())
    person.until(b"PONG")
    person.ended()
    subprocess.run([*set_password[:3], "-a", "key", *set_password[3:], ""], check=True, capture_output=True)


def check_hangup(server):
    """In a process that ignores SIGHUP, the end of the terminal ends the program."""
    usual = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    person = Terminal(server.port, server.folder.name)
    signal.signal(signal.SIGHUP, usual)
    person.until(b"> ")
    os.close(person.fd)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if os.waitpid(person.pid, os.WNOHANG)[0]:
            return
        time.sleep(0.05)
    os.kill(person.pid, signal.SIGKILL)
    failures.append("the editor goes on without a terminal")


for program in (["redis-server"], [STRAND, "serve", "--http-port", "0"]):
    with Server(program) as server:
        check_commands(server)
        check_options(server)
        check_lines(server)
        check_endless(server)
        try:
            check_editor(server)
            check_password(server)
            check_hangup(server)
        except (AssertionError, OSError) as e:
            failures.append(f"editor: {e}")
for failure in failures:
    print(failure)
print(f"strand cli: {len(failures)} differences from redis-cli")
sys.exit(1 if failures else 0)
