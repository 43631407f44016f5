#!/usr/bin/env python3
"""`strand import` and `strand diff` beside other programs, at size: versitygw as the S3 server, rclone and restic as oracles and peers.

usage: real.py STRAND_BINARY (make test-real sets the rest: VERSITYGW, .venv with rclone, Debian's restic). OBJECTS is how many
objects the large bucket has (100,000 unless told), PAIRS how many pairs of commits are compared with git (1,000), FILES how many files the
large repository and the large folder have (100,000), KEYS how many keys the longest
listing has (10,000,000), MAILBOX_GB how long the longest mailbox is (21 GB). Prints "N passed, M failed" and exits 1 when a check fails.
"""
import http.server
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse

import nfs
import sources
from harness import Handler, free_port
from sources import KEY, SECRET, counts, mail, rclone

OBJECTS = int(os.environ.get("OBJECTS", "100000"))
PAIRS = int(os.environ.get("PAIRS", "1000"))
KEYS = int(os.environ.get("KEYS", "10000000"))
# A listing of that many keys, whatever their number.
LISTING_MB = 256
MAILBOX_GB = float(os.environ.get("MAILBOX_GB", "21"))
# A mailbox, however long it is.
MAILBOX_MB = 64
FILES = int(os.environ.get("FILES", "100000"))
A_FOLDER = 1000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


# Runs a program and tells its status and peak memory (KB): all of it, and without the pages of files, of which the program's
# own are most. The kernel counts what a process held before it became the program: as a child of this script every program
# seems to hold what the script does. This parent holds next to nothing.
LAUNCHER = """
import os, sys, time
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
own = 0
while True:
    ended, status, usage = os.wait4(child, os.WNOHANG)
    if ended:
        break
    with open(f"/proc/{child}/status") as lines:
        own = max([own] + [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")])
    time.sleep(0.002)
sys.stderr.write(f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss} {own}\\n")
"""


def measured(arguments, environment):
    """Runs a program to its end; seconds, and peak memory in MB: all of it, and without the pages of files."""
    started = time.time()
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, *arguments], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    code, kilobytes, own = map(int, done.stderr.splitlines()[-1].split())
    assert code == 0, (arguments, code, done.stderr)
    return time.time() - started, kilobytes / 1024, own / 1024


def no_slower_with_a_tenth_of_the_memory(ours, theirs):
    """The two were measured in one run. Measured on a quiet machine, the peer takes 11 times the memory; 8 leaves room for noise."""
    assert ours[0] <= theirs[0] and ours[2] * 8 <= theirs[2], (ours, theirs)


@check
def a_large_bucket_is_decided_in_one_listing(world):
    endpoint = world.s3()
    for i in range(OBJECTS):
        world.write(f"s3/big/{i // A_FOLDER:04}/{i:07}.eml", mail(f"message {i}", f"text of {i}"))
    first, _ = world.imports("s3://big", "--endpoint", endpoint, "--no-index")
    assert counts(first) == [OBJECTS, 0, 0, 0, 0], first
    assert world.client.dbsize() == OBJECTS
    again, _ = world.imports("s3://big", "--endpoint", endpoint, "--no-index")
    assert counts(again) == [0, 0, 0, OBJECTS, 0] and again["opened"] == 0, again
    print(f"     {OBJECTS} objects: first {first['seconds']:.1f} s, unchanged {again['seconds']:.2f} s")

    dice = random.Random(7)
    touched = dice.sample(range(OBJECTS), 20)
    for i in touched[:10]:
        world.write(f"s3/big/{i // A_FOLDER:04}/{i:07}.eml", mail(f"message {i}", "another text"))
    for i in touched[10:]:
        os.remove(f"{world.folder}/s3/big/{i // A_FOLDER:04}/{i:07}.eml")
    changed, _ = world.imports("s3://big", "--endpoint", endpoint, "--no-index")
    assert counts(changed) == [0, 10, 10, OBJECTS - 20, 0] and changed["opened"] == 10, changed

    # Beside rclone: both find nothing to do.
    server = f"127.0.0.1:{world.strand.port}"
    environment = world.environment
    ours = measured(
        [world.binary, "import", "s3://big", "--into", "d", "--server", server, "--endpoint", endpoint, "--no-index", "-q"], environment
    )
    remote = f":s3,provider=Other,list_url_encode=false,endpoint='{endpoint}',access_key_id={KEY},secret_access_key='{SECRET}':big"
    peer = [rclone(), "--config", "", "-q", "sync", remote, f"{world.folder}/copy"]
    measured(peer, environment)
    theirs = measured(peer, environment)
    for name, (seconds, memory, own) in (("strand import", ours), ("rclone sync", theirs)):
        print(f"     {OBJECTS} unchanged objects, {name}: {seconds:.2f} s, {memory:.0f} MB ({own:.1f} MB without pages of files)")
    no_slower_with_a_tenth_of_the_memory(ours, theirs)


class Flat(Handler):
    """A bucket of KEYS keys without a slash: its listing, page by page. Its objects cannot be read."""

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        first = int(query.get("continuation-token", ["0"])[0])
        last = min(first + 1000, KEYS)
        entry = (
            "<Contents><Key>key-{:012}.bin</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            "<ETag>&quot;{:032x}&quot;</ETag><Size>1000</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < KEYS else ""
        body = (
            f"<?xml version='1.0'?><ListBucketResult><Name>flat</Name><IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
            + "".join(entry.format(i, i) for i in range(first, last))
            + "</ListBucketResult>"
        ).encode()
        self.send_response_only(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@check
def a_listing_of_very_many_keys_takes_bounded_memory(world):
    server = http.server.HTTPServer(("127.0.0.1", 0), Flat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        listing = [world.binary, "import", "s3://flat", "--into", "flat", "--endpoint", endpoint, "--to", "ndjson:/dev/null"]
        # All keys are listed and none is read.
        seconds, megabytes, _ = measured([*listing, "--include", "nothing", "-q"], world.environment)
        print(f"     {KEYS} keys of one prefix in {seconds:.0f} s, {megabytes:.0f} MB")
        assert megabytes <= LISTING_MB
    finally:
        server.shutdown()
        server.server_close()


def tree(world, name, seed, base=None):
    """A folder of random files; a copy of `base` with random changes, when there is one."""
    dice, whole = random.Random(seed), f"{world.folder}/{name}"
    if base:
        shutil.copytree(f"{world.folder}/{base}", whole)
    paths = [os.path.join(at, file) for at, _, files in os.walk(whole) for file in sorted(files)]
    for path in sorted(paths):
        if (roll := dice.random()) < 0.1:
            os.remove(path)
        elif roll < 0.2:
            with open(path, "ab") as file:
                file.write(b"more")
    for i in range(300):
        path = "/".join(f"d{dice.randrange(6)}" for _ in range(dice.randrange(4)))
        world.write(os.path.join(name, path, f"f{seed}-{i}.txt"), dice.randbytes(dice.randrange(3000)))


@check
def differences_are_those_that_restic_and_rclone_find(world):
    tree(world, "one", 1)
    tree(world, "two", 2, "one")
    ours = world.run("diff", f"{world.folder}/one", f"{world.folder}/two", "--json")
    assert ours.returncode == 1, ours.stderr
    lines = [json.loads(line) for line in ours.stdout.splitlines()]
    signs = {"added": "+", "removed": "-", "updated": "M"}
    ours = {(signs[line["outcome"]], line["path"]) for line in lines if line["event"] == "document"}

    environment = {**world.environment, "RESTIC_REPOSITORY": f"{world.folder}/repo", "RESTIC_PASSWORD": "p"}
    restic = lambda *a, **k: subprocess.run(["restic", "-q", *a], env=environment, check=True, capture_output=True, text=True, **k)
    restic("init")
    ids = []
    for name in ("one", "two"):
        os.rename(f"{world.folder}/{name}", f"{world.folder}/at")
        restic("backup", ".", cwd=f"{world.folder}/at")
        ids.append(json.loads(restic("snapshots", "--json").stdout)[-1]["id"])
        os.rename(f"{world.folder}/at", f"{world.folder}/{name}")
    told = subprocess.run(["restic", "diff", "--json", *ids], env=environment, check=True, capture_output=True, text=True).stdout
    theirs = set()
    for line in map(json.loads, told.splitlines()):
        if line.get("message_type") == "change" and not line["path"].endswith("/"):
            path = line["path"].removeprefix(f"{world.folder}/at").lstrip("/")
            # T and U say that rights or times differ: no bytes.
            if sign := line["modifier"].replace("U", "").replace("T", "")[:1]:
                theirs.add((sign, path))
    assert ours == theirs, (sorted(ours - theirs)[:5], sorted(theirs - ours)[:5])

    checked = subprocess.run(
        [rclone(), "--config", "", "-q", "check", "--combined", "-", f"{world.folder}/one", f"{world.folder}/two"],
        env=world.environment, capture_output=True, text=True, timeout=300,
    )
    # rclone calls it + what is only at the source.
    names = {"+": "-", "-": "+", "*": "M"}
    theirs = {(names[line[0]], line[2:]) for line in checked.stdout.splitlines() if line[0] in names}
    assert ours == theirs, (sorted(ours - theirs)[:5], sorted(theirs - ours)[:5])
    print(f"     {len(ours)} differences, the same to restic and rclone")


@check
def a_bucket_as_it_was_is_what_rclone_lists(world):
    if not (versitygw := os.environ.get("VERSITYGW")):
        print("     no versitygw: skipped (rclone's own server keeps no versions)")
        return
    port = free_port()
    for name in ("s3", "old"):
        os.makedirs(f"{world.folder}/{name}")
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    serve = [versitygw, "--port", f"127.0.0.1:{port}", "--quiet", "posix", "--versioning-dir", f"{world.folder}/old", f"{world.folder}/s3"]
    world.start(port, serve, environment)
    endpoint = f"http://127.0.0.1:{port}"
    remote = f":s3,provider=Other,list_url_encode=false,endpoint='{endpoint}',access_key_id={KEY},secret_access_key='{SECRET}':data"

    def call(*arguments, data=None):
        done = subprocess.run([rclone(), "--config", "", "-q", *arguments], input=data, capture_output=True, timeout=120)
        assert done.returncode == 0, (arguments, done.stderr[-500:])
        return done.stdout.decode()

    call("mkdir", remote)
    call("backend", "versioning", remote, "Enabled")
    moments = []
    for turn in range(3):
        call("rcat", f"{remote}/in/a.eml", data=mail(f"a{turn}").encode())
        call("rcat", f"{remote}/in/deep/{turn}.eml", data=mail(f"deep{turn}").encode())
        if turn == 1:
            call("deletefile", f"{remote}/in/deep/0.eml")
        # A moment is a second: nothing else happens in the one after this turn.
        moments.append(int(time.time()) + 1)
        while time.time() < moments[-1] + 1:
            time.sleep(0.05)
    told = set()
    for turn in (0, 2, 1):
        done, _ = world.imports("s3://data", "--endpoint", endpoint, "--as-of", str(moments[turn]), "--max-delete", "100%")
        assert done["failed"] == 0, done
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moments[turn]))
        oracle = call("lsf", "-R", "--files-only", "--s3-version-at", at, remote).splitlines()
        assert world.ids() == sorted(oracle), (turn, world.ids(), oracle)
        # A gateway may date a version by when it was replaced. Then another one counts, to rclone too.
        if "in/a.eml" in oracle:
            told.add(turn)
            theirs = call("cat", "--s3-version-at", at, f"{remote}/in/a.eml")
            assert theirs == mail(world.client.hget("d:in/a.eml", "subject").decode()), (turn, theirs)
    assert 2 in told, told
    now, _ = world.imports("s3://data", "--endpoint", endpoint, "--max-delete", "100%")
    assert world.ids() == ["in/a.eml", "in/deep/1.eml", "in/deep/2.eml"] and now["failed"] == 0, world.ids()


def git(folder, *arguments, data=None):
    """What git says, as bytes."""
    set_up = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "core.quotePath=false"]
    return subprocess.run(["git", "-C", folder, *set_up, *arguments], input=data, capture_output=True, check=True).stdout


def diff_tree(folder, old, new):
    """What git finds of the files that are documents: sign and path."""
    fields = git(folder, "diff-tree", "-r", "--no-renames", "--raw", "-z", "--no-abbrev", old, new).split(b"\0")
    changes = set()
    for facts, path in zip(fields[::2], fields[1::2]):
        old_mode, new_mode, old_id, new_id, _ = facts.decode().split(" ")
        before, after = old_mode.startswith(":100"), new_mode.startswith("100")
        if before and after and old_id != new_id:
            changes.add(("updated", path.decode()))
        elif before != after:
            changes.add(("added" if after else "removed", path.decode()))
    return changes


@check
def pairs_of_commits_are_as_git_says(world):
    if not os.path.exists(f"{sources.ROOT}/.git"):
        print("     this is no checkout: skipped")
        return
    git(world.folder, "clone", "-q", "--bare", sources.ROOT, "history.git")
    folder = f"{world.folder}/history.git"
    commits = git(folder, "rev-list", "HEAD").decode().split()
    dice, found = random.Random(1), 0
    for _ in range(PAIRS):
        old, new = dice.choice(commits), dice.choice(commits)
        done = world.run("diff", f"git+file://{folder}@{old}", f"git+file://{folder}@{new}", "--json")
        assert done.returncode in (0, 1), done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        ours = {(line["outcome"], line["path"]) for line in lines if line["event"] == "document"}
        theirs = diff_tree(folder, old, new)
        assert ours == theirs, (old, new, sorted(ours - theirs)[:5], sorted(theirs - ours)[:5])
        found += len(ours)
    print(f"     {PAIRS} pairs of {len(commits)} commits, {found} changes, all as git diff-tree says")


@check
def one_changed_file_of_many_opens_few_trees(world):
    folder = f"{world.folder}/many.git"
    git(world.folder, "init", "-q", "--bare", "-b", "main", "many.git")
    # 100 x 100 folders.
    name = lambda i: f"{i % 100:02}/{i // 100 % 100:02}/{i // 10000:04}.txt"
    stream = ["blob\nmark :1\ndata 2\nx\n\ncommit refs/heads/main\ncommitter n <e> 0 +0000\ndata 1\na\n"]
    stream += [f"M 100644 :1 {name(i)}\n" for i in range(FILES)]
    stream += [f"\nblob\nmark :2\ndata 2\ny\n\ncommit refs/heads/main\ncommitter n <e> 1 +0000\ndata 1\nb\nM 100644 :2 {name(FILES // 2)}\n\n"]
    git(folder, "fast-import", "--quiet", data="".join(stream).encode())
    first, _ = world.imports(f"git+file://{folder}@main~1", "--no-index")
    assert counts(first) == [FILES, 0, 0, 0, 0], first
    best = None
    for revision in ("main", "main~1", "main"):
        changed, _ = world.imports(f"git+file://{folder}@{revision}", "--no-index")
        assert counts(changed) == [0, 1, 0, FILES - 1, 0] and changed["opened"] == 1, changed
        assert changed["containers"] < 10, changed
        best = min(best or 9, changed["seconds"])
    print(f"     1 of {FILES} files in git: {changed['containers']} trees opened, {best * 1000:.1f} ms")


@check
def an_unchanged_folder_beside_rclone_and_restic(world):
    dice = random.Random(3)
    for i in range(FILES // 5):
        world.write(f"plain/{i // 500:04}/{i:06}.txt", dice.randbytes(dice.randrange(200, 2000)).hex())
    server = f"127.0.0.1:{world.strand.port}"
    environment = {**world.environment, "RESTIC_REPOSITORY": f"{world.folder}/repo", "RESTIC_PASSWORD": "p"}
    restic = ["restic", "-q", "--no-cache"]
    subprocess.run([*restic, "init"], env=environment, check=True, capture_output=True)
    ours = [world.binary, "import", f"{world.folder}/plain", "--into", "d", "--server", server, "--no-index", "-q"]
    sync = [rclone(), "--config", "", "-q", "sync", f"{world.folder}/plain", f"{world.folder}/copy"]
    for first in (ours, sync, [*restic, "backup", f"{world.folder}/plain"]):
        measured(first, environment)
    figures = {}
    for name, again in (("strand import", ours), ("rclone sync", sync), ("restic backup --dry-run", [*restic, "backup", "--dry-run", f"{world.folder}/plain"])):
        figures[name] = min(measured(again, environment) for _ in range(3))
    for name, (seconds, memory, own) in figures.items():
        print(f"     {FILES // 5} unchanged files, {name}: {seconds:.2f} s, {memory:.0f} MB ({own:.1f} MB without pages of files)")
    for peer in ("rclone sync", "restic backup --dry-run"):
        no_slower_with_a_tenth_of_the_memory(figures["strand import"], figures[peer])


@check
def a_mailbox_of_any_length_takes_bounded_memory(world):
    path, count = f"{world.folder}/docs/all.mbox", 0
    os.makedirs(f"{world.folder}/docs")
    with open(path, "wb") as file:
        while file.tell() < MAILBOX_GB * 1e9:
            # An attachment that is a hole: the file system has no bytes for it, and the import writes none of it.
            begin = f"From a@b.example Mon Jan  6 10:00:00 2025\nFrom: a@b.example\nSubject: mail {count}\nMIME-Version: 1.0\n"
            parts = "Content-Type: multipart/mixed; boundary=x\n\n--x\n\na line of it\n--x\nContent-Type: application/octet-stream\n"
            file.write(f"{begin}{parts}Content-Disposition: attachment; filename=hole\n\n".encode())
            file.seek(4 << 20, os.SEEK_CUR)
            file.write(b"\n--x--\n\n")
            count += 1
    out = f"{world.folder}/out.ndjson"
    seconds, memory, own = measured([world.binary, "import", f"{world.folder}/docs", "--into", "d", "--to", f"file:{out}", "-q"], world.environment)
    with open(out) as file:
        found = sum('"kind":"mail"' in line for line in file)
    print(f"     {MAILBOX_GB:g} GB in one mailbox: {found} mails, {seconds:.0f} s, {memory:.0f} MB ({own:.1f} MB without pages of files)")
    assert found == count and memory < MAILBOX_MB, (found, count, memory)
    # With records of what was sent, a mail more costs the mail, and not the mailbox.
    state = ["--to", f"ndjson:{out}", "--state", f"{world.folder}/state", "-q"]
    command = [world.binary, "import", f"{world.folder}/docs", "--into", "d", *state]
    whole, _, _ = measured(command, world.environment)
    with open(path, "ab") as file:
        file.write(b"From a@b.example Mon Jan  6 10:00:00 2025\nFrom: a@b.example\nSubject: appended\n\nbody\n\n")
    appended, memory, _ = measured(command, world.environment)
    with open(out) as file:
        mails = sum('"kind":"mail"' in line for line in file)
    print(f"     one mail more: {appended:.2f} s (all of it {whole:.0f} s), {memory:.0f} MB")
    assert mails == 1 and appended < whole / 10, (mails, appended, whole)


@check
def snapshots_of_restic_are_imported_as_the_folder_is(world):
    tree(world, "one", 1)
    tree(world, "two", 2, "one")
    environment = {**world.environment, "RESTIC_REPOSITORY": f"{world.folder}/repo", "RESTIC_PASSWORD": "p"}
    restic = lambda *a, **k: subprocess.run(["restic", "-q", *a], env=environment, check=True, capture_output=True, text=True, **k)
    restic("init")
    for name in ("one", "two"):
        os.rename(f"{world.folder}/{name}", f"{world.folder}/at")
        restic("backup", f"{world.folder}/at")
        os.rename(f"{world.folder}/at", f"{world.folder}/{name}")
    ids = [snapshot["id"] for snapshot in json.loads(restic("snapshots", "--json").stdout)]
    for name, snapshot in zip(("one", "two"), ids):
        source = f"restic:{world.folder}/repo@{snapshot}:{world.folder}/at"
        done, _ = world.imports(source, "--max-delete", "100%", environment=environment)
        assert done["failed"] == 0, done
        same = world.run("diff", source, f"{world.folder}/{name}", environment=environment)
        assert same.returncode == 0, (same.stdout[-500:], same.stderr[-500:])
    files = sum(len(files) for _, _, files in os.walk(f"{world.folder}/two"))
    assert len(world.ids()) == files and done["containers_skipped"] >= 0, (len(world.ids()), files)


@check
def a_clock_that_is_behind_or_ahead_loses_no_change(world):
    server = f"127.0.0.1:{world.strand.port}"
    for clock in ("-1h", "+1h"):
        dataset = f"at{clock}"
        world.write("clock/a.txt", "one\n")
        world.write("clock/b.txt", "other\n")
        # Each text is as long as the one before, and comes at once after a run.
        for text, expected in (("one", [2, 0, 0, 0, 0]), (None, [0, 0, 0, 2, 0]), ("two", [0, 1, 0, 1, 0]), ("six", [0, 1, 0, 1, 0])):
            if text:
                world.write("clock/a.txt", f"{text}\n")
            command = ["faketime", "-f", clock, world.binary, "import", f"{world.folder}/clock", "--into", dataset, "--server", server]
            done = subprocess.run([*command, "--no-index", "--json"], env=world.environment, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr[-500:]
            summary = json.loads(done.stdout.splitlines()[-1])
            assert counts(summary) == expected, (clock, text, summary)
            held = world.client.hget(f"{dataset}:a.txt", "body").decode().strip()
            assert held == (text or "one"), (clock, text, held)


if __name__ == "__main__":
    sources.main("real.py", CHECKS + nfs.CHECKS + sources.CHECKS)
