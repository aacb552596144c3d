"""Refuse system calls that reach around the walls: a seccomp filter for both processes of the sandbox.

Namespaces do not cover everything. Keyrings belong to users and sessions, so a program could read a key of the operator's
session, and leave notes for the next program. Pages of a memfd or a System V segment that no process maps are in no process's
resident size, so a program could fill the host's memory unseen. Both attacks worked on an earlier version (red team,
2026-11-23); the filter refuses the calls with EPERM. Without namespaces (`landlock.py`) the filter refuses much more: the
program is then one process, which starts no other, signals none and changes no file. `child.py` loads this file by its path.
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
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
"""A process that is not dumpable hides its memory from a supervisor that is not root."""
CLONE_THREAD = 0x00010000
NONE = -1
"""Marks a call that an architecture lacks."""

REFUSED_ALONE = {
    # other processes: start, signal, change how they run
    "fork": (57, NONE), "vfork": (58, NONE), "execve": (59, 221), "execveat": (322, 281), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "setpgid": (109, 154), "setpriority": (141, 140), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    # sockets, except pairs
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    # files: make, change, delete, watch
    "creat": (85, NONE), "openat2": (437, 437), "chmod": (90, NONE), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, NONE), "fchown": (93, 55), "lchown": (94, NONE), "fchownat": (260, 54),
    "utime": (132, NONE), "utimes": (235, NONE), "futimesat": (261, NONE), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "mkdir": (83, NONE), "mkdirat": (258, 34),
    "rmdir": (84, NONE), "unlink": (87, NONE), "unlinkat": (263, 35), "rename": (82, NONE), "renameat": (264, 38),
    "renameat2": (316, 276), "link": (86, NONE), "linkat": (265, 37), "symlink": (88, NONE), "symlinkat": (266, 36),
    "mknod": (133, NONE), "mknodat": (259, 33), "inotify_init": (253, NONE), "inotify_init1": (294, 26), "chroot": (161, 51),
    "sync": (162, 81), "syncfs": (306, 267),
    # System V and POSIX objects of the same user
    "shmctl": (31, 195), "semctl": (66, 191), "semop": (65, 193), "semtimedop": (220, 192), "msgctl": (71, 187),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "mq_unlink": (241, 181),
}  # fmt: skip
"""Refused beside `REFUSED`, for a program that shares its user and namespaces with others."""
OPEN, OPENAT, KILL, TGKILL, PRLIMIT = (2, NONE), (257, 56), (62, 129), (234, 131), (302, 261)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
KEYCTL = REFUSED["keyctl"]

libc = ctypes.CDLL(None, use_errno=True)


def leave_keyrings() -> None:
    """Join a new, empty session keyring, so that the process no longer possesses what the operator's session holds.

    A kernel without keyrings answers ENOSYS, and a container's filter answers EPERM. In both cases nothing is in reach.
    """
    libc.syscall(KEYCTL[machine()[1]], JOIN_SESSION_KEYRING, None, 0, 0, 0)


def refuse_calls(*, alone: bool = False) -> None:
    """Install the filter for this process and its descendants; it needs no_new_privs. `alone`: there are no namespaces.

    Raises: OSError.
    """
    program = filter_program(*machine(), os.getpid() if alone else None)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp filter: {os.strerror(number)}")


def machine() -> tuple[int, int]:
    """Return the audit number and the column of this machine's call numbers. Raises: OSError if they are unknown."""
    name = platform.machine()
    if name not in MACHINES:
        raise OSError(ENOSYS, f"no list of system calls for {name}; known are {', '.join(MACHINES)}")
    return MACHINES[name]


def filter_program(audit: int, column: int, alone: int | None = None) -> bytes:
    """Return the filter as BPF: calls of another architecture and listed calls get EPERM, all others pass.

    `clone3` gets ENOSYS, because its flags are in memory that a filter cannot read; C libraries then use `clone`, whose flags
    may not request a namespace. `alone`: the number of the only process that may be signalled; that process starts threads and
    no processes, and opens files for reading only.
    """
    lines = [
        instruction(LOAD_WORD, ARCHITECTURE),
        instruction(JUMP_EQUAL, audit, on_true=1),
        instruction(RETURN, REFUSE | EPERM),
        instruction(LOAD_WORD, NUMBER),
        instruction(JUMP_AT_LEAST, X32_CALLS, on_false=1),
        instruction(RETURN, REFUSE | EPERM),
    ]
    refused = REFUSED if alone is None else REFUSED | REFUSED_ALONE
    for numbers in refused.values():
        lines += refuse(numbers[column])
    lines += refuse(CLONE3[column], ENOSYS)
    lines += refuse_if(PRCTL[column], 0, JUMP_EQUAL, PR_SET_DUMPABLE)
    lines += refuse_if(CLONE[column], 0, JUMP_ANY_BIT, NEW_NAMESPACES)
    if alone is not None:
        lines += refuse_if(PRCTL[column], 0, JUMP_EQUAL, PR_SET_PDEATHSIG)
        lines += refuse_if(CLONE[column], 0, JUMP_ANY_BIT, CLONE_THREAD, holds=False)
        lines += refuse_if(OPEN[column], 1, JUMP_ANY_BIT, WRITING) + refuse_if(OPENAT[column], 2, JUMP_ANY_BIT, WRITING)
        lines += refuse_if(KILL[column], 0, JUMP_EQUAL, alone, holds=False)
        lines += refuse_if(TGKILL[column], 0, JUMP_EQUAL, alone, holds=False)
        lines += refuse_if(PRLIMIT[column], 0, JUMP_EQUAL, 0, holds=False)
    lines.append(instruction(RETURN, ALLOW))
    return b"".join(lines)


def refuse(number: int, error: int = EPERM) -> list[bytes]:
    """Refuse a call by its number, for all arguments."""
    return [] if number == NONE else [instruction(JUMP_EQUAL, number, on_false=1), instruction(RETURN, REFUSE | error)]


def refuse_if(number: int, argument: int, test: int, value: int, *, holds: bool = True) -> list[bytes]:
    """Refuse a call if the test of an argument's low word holds, or if it does not hold."""
    if number == NONE:
        return []
    return [
        instruction(JUMP_EQUAL, number, on_false=4),
        instruction(LOAD_WORD, FIRST_ARGUMENT + 8 * argument),
        instruction(test, value, on_true=0 if holds else 1, on_false=1 if holds else 0),
        instruction(RETURN, REFUSE | EPERM),
        instruction(LOAD_WORD, NUMBER),
    ]


def instruction(code: int, value: int, on_true: int = 0, on_false: int = 0) -> bytes:
    """Return one `struct sock_filter`: jumps count instructions to skip."""
    return struct.pack("HBBI", code, on_true, on_false, value)
