"""Refuse system calls that reach around the walls: a seccomp filter for both processes of the sandbox.

Namespaces do not cover everything. Keyrings belong to users and sessions, so a program could read a key that the
operator's session holds and leave notes for the next program. Pages of a memfd or of a System V segment that no process
maps are in no process's resident size, so a program could fill the host's memory unseen. Both were shown against an
earlier version (red team, 2026-11-23); the filter refuses the calls with EPERM. Loaded by its path, like its neighbours.
"""

import ctypes
import os
import platform
import struct

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD_WORD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets into `struct seccomp_data`; the argument's low word, on a little-endian machine."""
X32_CALLS = 0x40000000
NEW_NAMESPACES = 0x7E020000 | 0x80
"""Every CLONE_NEW* flag of clone(2)."""
JOIN_SESSION_KEYRING = 1

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Audit number of each architecture, and the column of its call numbers below."""

REFUSED = {
    # keyrings belong to users and sessions, not to namespaces
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # memory that no process has to map
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196), "userfaultfd": (323, 282),
    # queues and semaphores outlive their process within the namespace
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    # other processes, and ways to a file that is not below the root
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # new namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442),
    # large parts of the kernel that no benchmark needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "fanotify_init": (300, 262),
    "personality": (135, 92), "quotactl": (179, 60), "syslog": (103, 116), "kexec_load": (246, 104),
}  # fmt: skip
CLONE, CLONE3, PRCTL = (56, 220), (435, 435), (157, 167)
PR_SET_DUMPABLE = 4
"""A process that is not dumpable hides its memory from the supervisor where that is not root."""
KEYCTL = REFUSED["keyctl"]

libc = ctypes.CDLL(None, use_errno=True)


def leave_keyrings() -> None:
    """Join a new, empty session keyring: what the operator's session holds is not possessed any more.

    A kernel without keyrings answers ENOSYS, and one behind a container's filter EPERM; both leave nothing to reach.
    """
    libc.syscall(KEYCTL[machine()[1]], JOIN_SESSION_KEYRING, None, 0, 0, 0)


def refuse_calls() -> None:
    """Install the filter for this process and its descendants; it needs no_new_privs. Raises: OSError."""
    program = filter_program(*machine())
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter: {os.strerror(number)}")


def machine() -> tuple[int, int]:
    """Audit number and column of this machine's call numbers. Raises: OSError where they are not known."""
    name = platform.machine()
    if name not in MACHINES:
        raise OSError(ENOSYS, f"no list of system calls for {name}; known are {', '.join(MACHINES)}")
    return MACHINES[name]


def filter_program(audit: int, column: int) -> bytes:
    """The filter as BPF: calls of another architecture and listed calls get EPERM, all others pass.

    `clone3` gets ENOSYS, because its flags lie in memory where a filter cannot look; C libraries then use `clone`, whose
    flags may not ask for a namespace.
    """
    lines = [
        instruction(LOAD_WORD, ARCHITECTURE),
        instruction(JUMP_EQUAL, audit, on_true=1),
        instruction(RETURN, REFUSE | EPERM),
        instruction(LOAD_WORD, NUMBER),
        instruction(JUMP_AT_LEAST, X32_CALLS, on_false=1),
        instruction(RETURN, REFUSE | EPERM),
    ]
    for numbers in REFUSED.values():
        lines += [instruction(JUMP_EQUAL, numbers[column], on_false=1), instruction(RETURN, REFUSE | EPERM)]
    lines += [
        instruction(JUMP_EQUAL, CLONE3[column], on_false=1),
        instruction(RETURN, REFUSE | ENOSYS),
        instruction(JUMP_EQUAL, PRCTL[column], on_false=3),
        instruction(LOAD_WORD, FIRST_ARGUMENT),
        instruction(JUMP_EQUAL, PR_SET_DUMPABLE, on_false=5),
        instruction(RETURN, REFUSE | EPERM),
        instruction(JUMP_EQUAL, CLONE[column], on_false=3),
        instruction(LOAD_WORD, FIRST_ARGUMENT),
        instruction(JUMP_ANY_BIT, NEW_NAMESPACES, on_false=1),
        instruction(RETURN, REFUSE | EPERM),
        instruction(RETURN, ALLOW),
    ]
    return b"".join(lines)


def instruction(code: int, value: int, on_true: int = 0, on_false: int = 0) -> bytes:
    """One `struct sock_filter`: jumps count instructions to skip."""
    return struct.pack("HBBI", code, on_true, on_false, value)
