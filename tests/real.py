#!/usr/bin/env python3
"""`strand import` and `strand diff` beside other programs, at size: versitygw as the S3 server, rclone and restic as oracles and peers.

usage: real.py STRAND_BINARY (make test-real sets the rest: VERSITYGW, .venv with rclone, Debian's restic). OBJECTS is how many
objects the large bucket has (100,000 unless told). Prints "N passed, M failed" and exits 1 when a check fails.
"""
import json
import os
import random
import shutil
import subprocess
import time

import sources
from sources import KEY, SECRET, World, counts, mail, rclone

OBJECTS = int(os.environ.get("OBJECTS", "100000"))
A_FOLDER = 1000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def measured(arguments, environment):
    """Runs a program to its end; seconds, and peak memory in MB."""
    started = time.time()
    child = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (arguments, child.returncode)
    return time.time() - started, usage.ru_maxrss / 1024


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
    print(f"     unchanged: strand {ours[0]:.2f} s, {ours[1]:.0f} MB; rclone sync {theirs[0]:.2f} s, {theirs[1]:.0f} MB")


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


if __name__ == "__main__":
    sources.main("real.py", CHECKS + sources.CHECKS)
