"""Measure the memory that the processes of a sandbox hold, and make a memory cgroup for them where that is allowed.

The supervisor polls `held_bytes`. The cgroup is a second bound that no program outruns, because the kernel counts every page,
also between two polls. It needs a cgroup that this process may write to: usually as root, or in a delegated cgroup. `child.py`
loads this file by its path.
"""

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

GROUP_PREFIX = "marin-sandbox-"
GROUP_EXTRA = 64 << 20
"""Bytes for the supervisor and the tests' process, which are in the group too."""


def held_bytes(processes: Iterable[Path], scratch: str | None) -> int:
    """Return the memory of processes (given as folders of /proc) and the size of the scratch file system, in bytes.

    A shared anonymous mapping counts once, with its whole size: `madvise(MADV_DONTNEED)` takes its pages out of the resident
    size of every process and leaves them in memory.
    """
    page = resource.getpagesize()
    total, shared = 0, dict[str, int]()
    for process in processes:
        try:
            pages = (process / "statm").read_text().split()
            mappings = shared_mappings(process)
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process ended while we looked
        for inode, size in mappings.items():
            shared[inode] = max(size, shared.get(inode, 0))
        total += (int(pages[1]) - int(pages[2])) * page  # resident size without files and shared memory
    total += sum(shared.values())
    if scratch is None:
        return total
    disk = os.statvfs(scratch)
    return total + (disk.f_blocks - disk.f_bfree) * disk.f_bsize


def shared_mappings(process: Path) -> dict[str, int]:
    """Return the bytes of each shared anonymous mapping of a process by inode; empty for the tests' process, which is not
    dumpable.

    Raises: FileNotFoundError or ProcessLookupError if the process has ended.
    """
    sizes = dict[str, int]()
    try:
        maps = (process / "maps").read_text()
    except PermissionError:  # happens if we are not root; the filter stops the program from hiding in the same way
        return sizes
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if words[1][3] == "s" and words[5:] == ["/dev/zero (deleted)"]:
            start, stop = (int(address, 16) for address in words[0].split("-"))
            sizes[words[4]] = sizes.get(words[4], 0) + stop - start
    return sizes


def threads(process: Path) -> int:
    """Return the number of threads of a process; 0 if it has ended."""
    try:
        status = (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:")), 0)


class MemoryGroup:
    """A cgroup below our own that limits this process and all its children to `limit` bytes."""

    def __init__(self, parent: Path, limit: int) -> None:
        """Make the cgroup. Raises: OSError if this process may not, or without the memory controller."""
        self.parent, self.place = parent, parent / f"{GROUP_PREFIX}{os.getpid()}"
        self.place.mkdir(exist_ok=True)
        try:
            unified = not (self.place / "memory.limit_in_bytes").exists()
            (self.place / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(str(limit))
            for swap, most in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(limit))):
                if (self.place / swap).exists():
                    (self.place / swap).write_text(most)
            (self.place / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            self.place.rmdir()
            raise

    def kills(self) -> int:
        """Return the number of processes that the kernel ended because the group was full."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(FileNotFoundError):  # the other version of cgroups has the other file
                words = dict(line.split() for line in (self.place / name).read_text().splitlines())
                return int(words.get("oom_kill", 0))
        return 0

    def leave(self) -> None:
        """Go back to the parent group. Delete this group, and groups of sandboxes that were killed before they could."""
        (self.parent / "cgroup.procs").write_text(str(os.getpid()))
        for group in self.parent.glob(f"{GROUP_PREFIX}*"):
            with contextlib.suppress(OSError):  # another sandbox uses it
                group.rmdir()


def enter_group(limit: int, own: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> MemoryGroup | None:
    """Return a memory cgroup for this process and its children; None if none can be made."""
    try:
        lines = [line.split(":", 2) for line in Path(own).read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in lines:
        if controllers == "memory" or (not controllers and (Path(root) / "cgroup.controllers").exists()):
            folder = "memory" if controllers else ""
            with contextlib.suppress(OSError):  # not allowed here: the supervisor's polls are the bound
                return MemoryGroup(Path(root, folder, path.strip("/")), limit)
    return None
