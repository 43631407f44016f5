#!/usr/bin/env python3
"""Foolscap's side of bindings/banana/tests/foolscap.rs.

peer.py record DIR   sends what NAMES lists with Foolscap's own sender and writes DIR/NAME.banana (the bytes) and
                     DIR/NAME.tokens (what Foolscap's own receiver makes of them, one line a token)
peer.py read CHUNK   reads streams on the standard input, each after its length (4 bytes, big end first), hands each to
                     Foolscap's receiver in chunks of CHUNK bytes, and prints its lines and then a line "."
peer.py objects      the same input; prints repr() of the object that foolscap.storage makes of each, in a line

Lines: INTEGER hex, FLOAT hex of 8 bytes, STRING hex (or its length and CRC-32 beyond 64 bytes), VOCAB n, OPEN n, CLOSE n,
ABORT, PING n, ERROR hex, and REFUSED where Foolscap gives the connection up. It does not tell a PONG.
"""
import io
import struct
import sys
import zlib

from foolscap import banana, slicer, storage, tokens
from foolscap.slicers.root import RootSlicer, RootUnslicer
from twisted.python import log

STRING_BYTES_SHOWN = 64


class Transport(io.BytesIO):
    def loseConnection(self, why=None):
        pass


class Word(bytes):
    """An entry of the vocabulary, by its index."""


class AnyWord(dict):
    def __getitem__(self, index):
        word = Word(b"word")
        word.index = index
        return word


class AnyRoot(RootUnslicer):
    """Lets every token through: what is looked at is the token layer."""

    def checkToken(self, typebyte, size):
        pass

    def openerCheckToken(self, typebyte, size, opentype):
        pass


class Receiver(banana.Banana):
    """Foolscap's receiver, which writes its tokens down where it would make objects of them."""

    unslicerClass = AnyRoot
    logReceiveErrors = False

    def __init__(self):
        super().__init__()
        self.lines = []
        self.transport = Transport()
        self.connectionMade()
        self.incomingVocabulary = AnyWord()

    def value(self, value):
        if isinstance(value, Word):
            line = "VOCAB %d" % value.index
        elif isinstance(value, int):
            line = "INTEGER %s" % hex(value)
        elif isinstance(value, float):
            line = "FLOAT %s" % struct.pack("!d", value).hex()
        elif len(value) <= STRING_BYTES_SHOWN:
            line = "STRING %s" % value.hex()
        else:
            line = "STRING %d bytes %08x" % (len(value), zlib.crc32(value))
        self.lines.append(line.strip())

    def handleOpen(self, openCount, objectCount, indexToken):
        self.inOpen = False
        self.lines.append("OPEN %d" % openCount)
        self.value(indexToken)

    def handleToken(self, token, ready_deferred=None):
        self.value(token)

    def handleClose(self, closeCount):
        self.lines.append("CLOSE %d" % closeCount)

    def handleViolation(self, f, methname, inOpen=False, inClose=False):
        self.lines.append("ABORT" if methname == "receive-abort" else "VIOLATION %s" % f.value)

    def handleError(self, msg):
        self.lines.append(("ERROR %s" % msg.hex()).strip())

    def sendPONG(self, number):
        self.lines.append("PING %d" % number)

    def sendError(self, msg):
        self.lines.append("REFUSED")

    def reportReceiveError(self, f):
        pass


def read(stream, chunk):
    receiver = Receiver()
    for at in range(0, len(stream), chunk):
        receiver.dataReceived(stream[at:at + chunk])
    return receiver.lines


class Sender(banana.Banana):
    slicerClass = RootSlicer

    def __init__(self):
        super().__init__()
        self.transport = Transport()
        self.connectionMade()

    def sent(self):
        return self.transport.getvalue()


class HalfSlicer(slicer.BaseSlicer):
    """Gives up after its first token, so that an ABORT is sent."""

    opentype = ("list",)

    def sliceBody(self, streamable, protocol):
        yield b"so far"
        raise tokens.Violation("no further")


def numbers():
    sender = Sender()
    for n in [0, 1, 127, 128, 130, 16383, 16384, 2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**63, 2**64, 2**200 - 1]:
        sender.sendToken(n)
        sender.sendToken(-n)
    for x in [0.0, -0.0, 1.5, -2.25, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")]:
        sender.sendToken(x)
    return sender.sent()


def strings():
    sender = Sender()
    for n in [0, 1, 2, 63, 64, 65, 66, 127, 128, 129, 200, 4095, 4096, 40_000]:
        sender.sendToken(bytes((i * 7 + i // 251) % 256 for i in range(n)))
    return sender.sent()


def objects():
    shared = [1, 2]
    value = [shared, (shared, {b"key": "text \u00e9", b"more": None}), True, False, {3}, frozenset([4]), 5.5, -6, 2**40, b"\xff"]
    out = []
    storage.serialize(value).addCallbacks(out.append)
    back = []
    storage.unserialize(out[0]).addCallbacks(back.append)
    assert back == [value], back
    return out[0]


def control():
    sender = Sender()
    sender.sendPING()
    sender.sendPING(5)
    sender.sendPONG(0)
    sender.sendPONG(300)
    sender.send([1, HalfSlicer(None), 2]).addErrback(lambda f: None)
    sender.sendPING(2**40)
    sender.sendError("no more")
    return sender.sent()


def vocabulary():
    sender = Sender()
    sender.setOutgoingVocabulary(["list", "dict", "a word"])
    sender.send([b"a word", b"another", {b"a word": 1}])
    sender.setOutgoingVocabulary(["another"])
    sender.send([b"another", b"a word"])
    return sender.sent()


def old_list():
    sender = Sender()
    banana.int2b128(2, sender.transport.write)
    sender.transport.write(tokens.LIST)
    return sender.sent()


NAMES = [numbers, strings, objects, control, vocabulary, old_list]


def record(folder):
    for name in NAMES:
        stream = name()
        lines = read(stream, len(stream))
        assert lines == read(stream, 1), "however it is cut"
        with open("%s/%s.banana" % (folder, name.__name__), "wb") as file:
            file.write(stream)
        with open("%s/%s.tokens" % (folder, name.__name__), "w") as file:
            file.write("".join(line + "\n" for line in lines))


def streams():
    while head := sys.stdin.buffer.read(4):
        (length,) = struct.unpack("!I", head)
        yield sys.stdin.buffer.read(length)


def main():
    log.msg = log.err = lambda *args, **kwargs: None
    if sys.argv[1] == "record":
        record(sys.argv[2])
    elif sys.argv[1] == "read":
        for stream in streams():
            print("\n".join(read(stream, int(sys.argv[2])) + ["."]))
    elif sys.argv[1] == "objects":
        for stream in streams():
            storage.unserialize(stream).addCallbacks(lambda value: print(repr(value)), lambda f: print("FAILED", f.value))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
