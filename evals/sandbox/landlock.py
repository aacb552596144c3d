"""Walls for a process that may not make namespaces: Landlock, and the stricter filter of `syscalls.py`.

A container's default seccomp profile refuses `unshare` to processes without CAP_SYS_ADMIN and allows Landlock (moby's
`profiles/seccomp/default.json`; containerd's profile is equal here). Landlock says which files a process and its threads may
read. It does not cover modes, owners, times, signals and sockets, so the filter refuses these. `child.py` loads this file by
its path.
Source: Linux, Documentation/userspace-api/landlock.rst.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of the calls, equal on every architecture."""
CREATE_RULESET_VERSION, RULE_PATH_BENEATH = 1, 1
EXECUTE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Version of the interface -> rights on files that it can restrict from that version on."""
NETWORK_RIGHTS = 0b11
"""Binding and connecting of TCP sockets, from version 4 on."""
SCOPES = 0b11
"""Abstract Unix sockets and signals, from version 6 on."""

libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: object) -> int:
    """Make a system call. Raises: OSError."""
    result = libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


def version() -> int:
    """Return the kernel's version of the interface. Raises: OSError if there is none."""
    return call(CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)


def restrict(readable: Iterable[str]) -> None:
    """Let this thread and its children read only below these files and folders, and write nowhere.

    It needs no_new_privs. Descriptors that are open keep their rights. Raises: OSError.
    """
    abi = version()
    rights = FILE_RIGHTS[max(first for first in FILE_RIGHTS if first <= abi)]
    facts = struct.pack("QQQ", rights, NETWORK_RIGHTS if abi >= 4 else 0, SCOPES if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    rules = call(CREATE_RULESET, facts, size, 0)
    for path in readable:
        place = os.open(path, os.O_PATH)
        allowed = EXECUTE | READ_FILE | READ_DIRECTORY if Path(path).is_dir() else READ_FILE
        call(ADD_RULE, rules, RULE_PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
        os.close(place)
    call(RESTRICT_SELF, rules, 0)
    os.close(rules)
