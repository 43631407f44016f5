#!/usr/bin/env python3
"""A client of Strand's pack4 door. It has no RESP parser: it sends each command in a frame, and prints the replies as they come.

usage: client.py HOST PORT COMMAND... (each COMMAND a quoted line: client.py 127.0.0.1 6380 'SET k v' 'GET k')
"""
import socket
import struct
import sys


class Pack4:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self.input = self.socket.makefile("rb")

    def send(self, commands):
        """Sends each command in a frame, and all frames with one write. A command is bytes: a plain line, or RESP."""
        self.socket.sendall(b"".join(struct.pack(">I", len(c)) + c for c in commands))

    def receive(self):
        """Returns the next reply, in RESP. Returns None if the server has closed the connection."""
        length = self.input.read(4)
        return self.input.read(struct.unpack(">I", length)[0]) if len(length) == 4 else None


if __name__ == "__main__":
    client = Pack4(sys.argv[1], int(sys.argv[2]))
    commands = [line.encode() for line in sys.argv[3:]]
    client.send(commands)
    for _ in commands:
        sys.stdout.write((client.receive() or b"closed\r\n").decode(errors="replace"))
