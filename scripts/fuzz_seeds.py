#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets into fuzz/corpus/TARGET. The inputs come from real files of 13 server versions.

An input for a target of DUMP payloads is a byte that selects the RDB version, then the payload without version and checksum.
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RDB, AOF = ROOT / "crates/rdb/tests/data", ROOT / "crates/aof/tests/data"
# In the order of the fuzz targets' own list of versions.
VERSIONS = [10, 12, 80, 9]
TRAILER_BYTES = 10
# Larger seeds make mutation slow and find nothing more.
SEED_BYTES_MAX = 64 * 1024


def write(target: str, name: str, data: bytes) -> None:
    if len(data) <= SEED_BYTES_MAX:
        directory = ROOT / "fuzz/corpus" / target
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


for path in sorted(RDB.glob("dump-*.jsonl")):
    for n, line in enumerate(line for line in path.read_text().split("\n") if line):
        payload = bytes.fromhex(json.loads(line)["dump_hex"])
        body, trailer = payload[:-TRAILER_BYTES], payload[-TRAILER_BYTES:]
        version = int.from_bytes(trailer[:2], "little")
        selector = VERSIONS.index(version) if version in VERSIONS else VERSIONS.index(9)
        for target in ("restore", "rdb_payload"):
            write(target, f"{path.stem}-{n}", bytes([selector]) + body)
for path in RDB.glob("*.rdb"):
    write("rdb_file", path.name, path.read_bytes())
for path in AOF.rglob("*"):
    if path.is_file():
        write("aof_file", "-".join(path.relative_to(AOF).parts), path.read_bytes())
for directory in sorted((ROOT / "fuzz/corpus").iterdir()):
    print(f"{directory.name}: {len(list(directory.iterdir()))} inputs")
