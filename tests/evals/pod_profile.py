"""Become what the project's pods are: user 10001 without capabilities, behind the runtime's default seccomp profile.

The profile is an allow list (moby's and containerd's `default`); here stands what it refuses to a process without
capabilities, among the calls that the kernel has. It allows Landlock, seccomp and prctl.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path

from evals.sandbox.syscalls import (
    ALLOW,
    ARCHITECTURE,
    CLONE,
    CLONE3,
    ENOSYS,
    JUMP_ANY_BIT,
    JUMP_EQUAL,
    LOAD_WORD,
    NUMBER,
    PR_SET_SECCOMP,
    RETURN,
    SECCOMP_MODE_FILTER,
    instruction,
    machine,
    refuse,
    refuse_if,
)

USER = 10001
"""`runAsUser` of the pods (`deploy/helm/values.yaml`, `resources/manifests.py`)."""
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
CAP_DROP, NO_NEW_PRIVS = 24, 38
NEW_NAMESPACES = 0x7E020000
REFUSED = {
    "acct": 163, "add_key": 248, "bpf": 321, "chroot": 161, "clock_settime": 227, "delete_module": 176, "fanotify_init": 300,
    "finit_module": 313, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433, "get_mempolicy": 239,
    "init_module": 175, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425, "ioperm": 173, "iopl": 172,
    "kcmp": 312, "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "lookup_dcookie": 212, "mbind": 237,
    "migrate_pages": 256, "mount": 165, "mount_setattr": 442, "move_mount": 429, "move_pages": 279, "nfsservctl": 180,
    "open_by_handle_at": 304, "open_tree": 428, "perf_event_open": 298, "pidfd_getfd": 438, "pivot_root": 155,
    "process_madvise": 440, "quotactl": 179, "quotactl_fd": 443, "reboot": 169, "request_key": 249, "set_mempolicy": 238,
    "setdomainname": 171, "sethostname": 170, "setns": 308, "settimeofday": 164, "swapoff": 168, "swapon": 167, "_sysctl": 156,
    "sysfs": 139, "syslog": 103, "umount2": 166, "unshare": 272, "uselib": 134, "userfaultfd": 323, "ustat": 136,
    "vhangup": 153,
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def become(profile: str) -> None:
    """`root`: as we are; `user`: user 10001 without capabilities; `pod`: that, behind the profile. Raises: OSError."""
    if profile == "root":
        return
    show_interpreter()
    for capability in range(64):
        libc.prctl(CAP_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    check(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again, as a process is that was started by its user
    if profile == "pod":
        install(profile_filter())


def show_interpreter() -> None:
    """In a new mount namespace, show only Python's folder where only root could look before."""
    base = os.path.realpath(sys.base_prefix)
    closed = next((place for place in reversed(Path(base).parents) if not place.stat().st_mode & 0o001), None)
    if closed is None:
        return
    os.unshare(os.CLONE_NEWNS)
    check(libc.mount(b"none", b"/", b"", MS_REC | MS_PRIVATE, b""), "private mounts")
    held = os.open(base, os.O_PATH)
    check(libc.mount(b"tmpfs", str(closed).encode(), b"tmpfs", 0, b"size=1m,mode=755"), f"cover {closed}")
    Path(base).mkdir(parents=True)
    check(libc.mount(f"/proc/self/fd/{held}".encode(), base.encode(), b"", MS_BIND | MS_REC, b""), f"show {base}")
    os.close(held)


def profile_filter() -> bytes:
    audit, column = machine()
    lines = [
        instruction(LOAD_WORD, ARCHITECTURE),
        instruction(JUMP_EQUAL, audit, on_true=1),
        instruction(RETURN, ALLOW),
        instruction(LOAD_WORD, NUMBER),
    ]
    for number in REFUSED.values():
        lines += refuse(number)
    lines += refuse(CLONE3[column], ENOSYS) + refuse_if(CLONE[column], 0, JUMP_ANY_BIT, NEW_NAMESPACES)
    return b"".join([*lines, instruction(RETURN, ALLOW)])


def install(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header), 0, 0), "seccomp")
