#!/usr/bin/env python3
"""One string in 4 KiB chunks: what receiving it costs Foolscap with each kind of buffer, and Strand's Banana decoder.

usage: receive_table.py [--json]

It is what Foolscap's own bench_banana.py measures (that one does not run on Python 3): the stream is cut into chunks and
handed to a receiver until the string is whole. Columns: a plain byte string as the buffer, added to and cut at each chunk,
as receivers do that have no chain; StringChain as Foolscap ships it; strand_chain's in its place; and the decoder of
bindings/banana by its own bench (`cargo bench -p strand-banana --bench banana`). Processor time of the median repetition; memory
is how far the peak of the resident set rose, of the string's size, in one repetition. Each cell is a process of its own
(`receive_table.py --cell BUFFER BYTES`), without giving memory back to the kernel in between (ALLOCATOR): whether that
happens hangs on what else lies in the heap. The last column's strings are kept, so its memory is fresh each time. A cell that would take more than CELL_S_MAX seconds, to judge by
the one above it, is left out.
"""
import io
import json
import os
import statistics
import subprocess
import sys
import time

SIZES = [40_000, 1_000_000, 8_000_000, 64_000_000]
CHUNK = 4096
CELL_S_MAX = 10
# glibc's: nothing is trimmed, and up to 32 MiB (the most) comes from the heap.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 31), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
BUFFERS = ["plain", "foolscap", "strand"]
TITLES = {"plain": "plain buffer", "foolscap": "foolscap", "strand": "with strand_chain", "wire": "strand_banana"}


class PlainBuffer:
    """The methods that Foolscap's receiver calls, over one byte string."""

    def __init__(self):
        self.bytes = b""

    def append(self, s):
        self.bytes += s

    def appendleft(self, s):
        self.bytes = s + self.bytes

    def popleft(self, n):
        taken, self.bytes = self.bytes[:n], self.bytes[n:]
        return taken

    def clear(self):
        self.bytes = b""

    def __len__(self):
        return len(self.bytes)


def status_bytes(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def cell(buffer, size):
    import foolscap.stringchain

    if buffer == "plain":
        foolscap.stringchain.StringChain = PlainBuffer
    elif buffer == "strand":
        import strand_chain

        foolscap.stringchain.StringChain = strand_chain.StringChain
    from foolscap import storage
    from foolscap.banana import int2b128
    from foolscap.tokens import STRING

    header = []
    int2b128(size, header.append)
    stream = b"".join(header) + STRING + b"a" * size

    def receive():
        receiver, got = storage.StorageBanana(), []
        receiver.transport = io.BytesIO()
        receiver.connectionMade()
        receiver.prepare().addCallback(got.append)
        started = time.process_time()
        for at in range(0, len(stream), CHUNK):
            receiver.dataReceived(stream[at:at + CHUNK])
        took = time.process_time() - started
        assert len(got) == 1 and len(got[0]) == size
        return took

    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status_bytes("VmRSS:")
    times = [receive()]
    peak = status_bytes("VmHWM:") - before
    while len(times) < 3 or (len(times) < 40 and sum(times) < 1):
        times.append(receive())
    print(json.dumps({"ns_per_byte": statistics.median(times) / size * 1e9, "peak": peak / size}))


def cells(buffer):
    """By size; None for what is left out."""
    row, last = {}, None
    for size in SIZES:
        # As if it were quadratic, once it is slow enough to tell; three repetitions are the fewest.
        if last is not None and 3 * last[1] * (size / last[0]) ** 2 > CELL_S_MAX and last[1] > 0.2:
            row[size] = None
            continue
        command = [sys.executable, os.path.abspath(__file__), "--cell", buffer, str(size)]
        environment = dict(os.environ, **ALLOCATOR)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=20 * CELL_S_MAX, env=environment, check=True)
        row[size] = json.loads(done.stdout)
        last = (size, row[size]["ns_per_byte"] * size / 1e9)
    return row


def wire():
    cargo = os.environ.get("CARGO", "cargo")
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
    command = [cargo, "bench", "--quiet", "-p", "strand-banana", "--bench", "banana", "--", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, cwd=root, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rows = {row["string_bytes"]: row for row in rows if row["chunk_bytes"] == CHUNK}
    return {
        size: {"ns_per_byte": rows[size]["ns_per_byte"], "peak": rows[size]["resident_bytes"] / size} for size in SIZES
    }


def main():
    table = {buffer: cells(buffer) for buffer in BUFFERS}
    table["wire"] = wire()
    if "--json" in sys.argv:
        print(json.dumps(table))
        return
    import foolscap

    print("One string in chunks of 4 KiB; Foolscap %s, Python %s: ns/byte (peak memory gained)" % (
        foolscap.__version__, sys.version.split()[0]))
    print()
    print("| bytes | %s |" % " | ".join(TITLES[column] for column in table))
    print("|---|%s" % ("---|" * len(table)))
    for size in SIZES:
        shown = [
            "left out: slow" if row[size] is None else "%.2f (%.1fx)" % (row[size]["ns_per_byte"], row[size]["peak"])
            for row in table.values()
        ]
        print("| {:,} | {} |".format(size, " | ".join(shown)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cell"]:
        cell(sys.argv[2], int(sys.argv[3]))
    else:
        main()
