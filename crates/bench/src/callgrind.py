#!/usr/bin/env python3
"""Runs the program BINARY under valgrind's callgrind, with this script's arguments. Each thread's count goes to a file OUT-NUMBER.

The crate rustix asks the kernel for the auxiliary vector by prctl(PR_GET_AUXV). valgrind passes the call on, and the answer
names a vDSO that valgrind does not map: the server would crash. A seccomp filter refuses that call. rustix then reads
/proc/self/auxv, which valgrind emulates.
"""
import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS, PR_GET_AUXV = 22, 2, 38, 0x41555856
PRCTL = {"x86_64": 157, "aarch64": 167}[platform.machine()]
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | errno.EINVAL

# Offsets 0 and 16 of the data of a filter: the call's number, and the lower half of its first argument.
program = b"".join(
    struct.pack("HBBI", *step)
    for step in [
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 3, PRCTL),
        (LOAD, 0, 0, 16),
        (JUMP_IF_EQUAL, 0, 1, PR_GET_AUXV),
        (RETURN, 0, 0, FAIL),
        (RETURN, 0, 0, ALLOW),
    ]
)
steps = ctypes.create_string_buffer(program)
filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(steps)))
libc = ctypes.CDLL(None, use_errno=True)
for arguments in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter_), 0, 0)]:
    if libc.prctl(*map(ctypes.c_ulong, arguments)):
        raise OSError(ctypes.get_errno(), "prctl")
valgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file=" + "OUT", "BINARY"]
os.execvp(valgrind[0], valgrind + sys.argv[1:])
