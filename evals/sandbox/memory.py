"""How much memory the processes of a sandbox hold, and a memory cgroup of their own where one can be made.

The supervisor polls `held_bytes`. The cgroup is a second bound, which no program outruns: the kernel counts every page, also
those between two polls. It needs a cgroup that this process may write to, so as a rule root or a delegated one. Loaded by
its path.
"""

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

GROUP_PREFIX = "marin-sandbox-"
GROUP_EXTRA = 64 << 20
"""For the supervisor and the tests' process, which the group holds too."""


def held_bytes(processes: Iterable[Path], scratch: str | None) -> int:
    """Memory of processes (their folders of /proc), and what lies in the scratch file system.

    Of shared anonymous memory the whole mapping counts, once: `madvise(MADV_DONTNEED)` takes its pages out of the resident
    size of every process and leaves them in memory.
    """
    page = resource.getpagesize()
    total, shared = 0, dict[str, int]()
    for process in processes:
        try:
            pages = (process / "statm").read_text().split()
            mappings = shared_mappings(process)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        for inode, size in mappings.items():
            shared[inode] = max(size, shared.get(inode, 0))
        total += (int(pages[1]) - int(pages[2])) * page  # resident without files and shared memory
    total += sum(shared.values())
    if scratch is None:
        return total
    disk = os.statvfs(scratch)
    return total + (disk.f_blocks - disk.f_bfree) * disk.f_bsize


def shared_mappings(process: Path) -> dict[str, int]:
    """Bytes of each shared anonymous mapping of a process, by inode; none of the tests' process, which is not dumpable.

    Raises: FileNotFoundError or ProcessLookupError when it has ended.
    """
    sizes = dict[str, int]()
    try:
        maps = (process / "maps").read_text()
    except PermissionError:  # where we are not root; the filter keeps the program from hiding in the same way
        return sizes
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        if words[1][3] == "s" and words[5:] == ["/dev/zero (deleted)"]:
            start, stop = (int(address, 16) for address in words[0].split("-"))
            sizes[words[4]] = sizes.get(words[4], 0) + stop - start
    return sizes


def threads(process: Path) -> int:
    """How many threads a process has; 0 when it has ended."""
    try:
        status = (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:")), 0)


class MemoryGroup:
    """A cgroup below our own that holds this process and all that it starts to `limit` bytes."""

    def __init__(self, parent: Path, limit: int) -> None:
        """Raises: OSError where this process may not make one, or the memory controller is not there."""
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
        """How many processes the kernel ended because the group was full."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(FileNotFoundError):
                words = dict(line.split() for line in (self.place / name).read_text().splitlines())
                return int(words.get("oom_kill", 0))
        return 0

    def leave(self) -> None:
        """Go back to the parent and delete the group, and those of sandboxes that were killed before they could."""
        (self.parent / "cgroup.procs").write_text(str(os.getpid()))
        for group in self.parent.glob(f"{GROUP_PREFIX}*"):
            with contextlib.suppress(OSError):  # another sandbox is in it
                group.rmdir()


def enter_group(limit: int, own: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> MemoryGroup | None:
    """A memory cgroup for this process and its children; None where none can be made."""
    try:
        lines = [line.split(":", 2) for line in Path(own).read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in lines:
        if controllers == "memory" or (not controllers and (Path(root) / "cgroup.controllers").exists()):
            folder = "memory" if controllers else ""
            with contextlib.suppress(OSError):
                return MemoryGroup(Path(root, folder, path.strip("/")), limit)
    return None
