"""The walls of the sandbox: namespaces, a separate root, and no rights. `child.py` loads this file by its path."""

import ctypes
import os
import resource
import sys
from pathlib import Path

JAIL = "/jail"
"""The program's root is below that of its namespace: the kernel refuses user namespaces inside a chroot."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 1, 4, 38, 24
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin")

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raises: OSError with the error of the last libc call, if its result is not 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system. Raises: OSError."""
    check(libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()), f"mount {target}")


def enter_namespaces() -> None:
    """Put the next children of this process into new namespaces. Root needs no user namespace and leaves its user instead."""
    flags = os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET | os.CLONE_NEWIPC | os.CLONE_NEWUTS
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        os.unshare(flags)
        return
    os.unshare(flags | os.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def build_root(disk_mib: int, libraries: list[str], placed: dict[str, str] | None = None) -> None:
    """Build a root in memory: the system's libraries, this Python and `libraries` read-only, a small `/tmp`, three devices.

    `placed`: further folders, read-only, and the path at which the program sees each.
    """
    placed = placed or {}
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    top = "/tmp"  # any folder that exists: the pivot hides what the mount covers
    root = top + JAIL
    folders = [Path(folder) for folder in dict.fromkeys((*SYSTEM_FOLDERS, os.path.realpath(sys.base_prefix), *libraries))]
    given = {inside: os.open(folder, os.O_PATH) for folder, inside in placed.items()}
    held = {str(folder): os.open(folder, os.O_PATH) for folder in folders if folder.is_dir() and not folder.is_symlink()}
    links = {str(folder): folder.readlink() for folder in folders if folder.is_symlink()}
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in ("null", "zero", "urandom")}
    mount("tmpfs", top, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    Path(f"{root}/tmp").mkdir(parents=True)  # before the others, which may lie below it
    mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, f"size={disk_mib}m,nr_inodes=1k,mode=1777")
    for folder, descriptor in (*held.items(), *given.items()):
        if any(folder.startswith(f"{other}/") for other in held):
            continue  # it came with the other mount
        Path(root + folder).mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", root + folder, "", MS_BIND | MS_REC)
        locked = locked_flags(root + folder)
        mount("none", root + folder, "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | locked)
    for folder, target in links.items():
        Path(root + folder).symlink_to(target)
    Path(root + "/dev").mkdir()
    for name, descriptor in devices.items():
        os.close(os.open(f"{root}/dev/{name}", os.O_CREAT))
        mount(f"/proc/self/fd/{descriptor}", f"{root}/dev/{name}", "", MS_BIND)
    Path(f"{root}/proc").mkdir()
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for file in ("keys", "key-users"):  # keys of the operator's user; a kernel without keyrings has neither file
        if Path(f"{root}/proc/{file}").exists():
            mount(f"/proc/self/fd/{devices['null']}", f"{root}/proc/{file}", "", MS_BIND)
    for descriptor in (*held.values(), *given.values(), *devices.values()):
        os.close(descriptor)
    os.chdir(top)
    check(libc.pivot_root(b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "leaving the old root")
    os.chdir("/")
    mount("none", "/", "", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def locked_flags(folder: str) -> int:
    """Return the flags of the mount below, which a namespace of another user may not remove."""
    flags = os.statvfs(folder).f_flag
    known = {os.ST_NOEXEC: MS_NOEXEC, os.ST_NOATIME: 1024, os.ST_NODIRATIME: 2048, os.ST_RELATIME: 1 << 21}
    return sum(mount_flag for theirs, mount_flag in known.items() if flags & theirs)


def readable_places(libraries: list[str]) -> list[str]:
    """Return what a program may read without a root of its own: libraries, this Python, two devices."""
    places = (*SYSTEM_FOLDERS, os.path.realpath(sys.base_prefix), *libraries, "/dev/null", "/dev/urandom")
    return [place for place in places if Path(place).exists()]


def give_up_rights(limits: dict, is_root: bool, user: int, *, has_root: bool = True) -> None:
    """Drop all capabilities for good and set every limit. `has_root`: a separate root was built."""
    if has_root:
        os.chroot(JAIL)
    os.chdir("/tmp" if has_root else "/")
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if is_root:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    memory, disk = limits["memory_mib"] << 20, limits["disk_mib"] << 20
    # The kernel checks the hard limit first, with SIGKILL. One second above the soft limit, SIGXCPU still names the cause.
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_seconds"], limits["cpu_seconds"] + 1))
    for kind, value in (
        (resource.RLIMIT_AS, memory),
        *([(resource.RLIMIT_NPROC, limits["processes"])] if has_root else []),  # else it counts others of our user
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_FSIZE, disk if has_root else 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (value, value))
