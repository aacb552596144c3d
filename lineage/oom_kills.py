"""How many processes the kernel has killed for memory, on the narrowest record that counts a given process.

A control group counts the kills of its own processes, by whichever out-of-memory killer (`memory.events` of cgroup v2, which
counts the groups below it too; `memory.oom_control` of v1). The machine's count in /proc/vmstat has everybody's: a kill in
another container would be taken for ours. It is asked only where a process's group has no record that can be read.
"""

from pathlib import Path

FIELD = "oom_kill "


def oom_record(pid: int, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Path:
    """The file that counts the out-of-memory kills of a living process's group, or the machine's."""
    return next((path for path in _records_of_group(pid, proc, groups) if _counts(path)), proc / "vmstat")


def oom_kills(record: Path) -> int:
    """Processes killed for memory so far, by a file of `oom_record`; 0 where it counts none, or its group is gone."""
    return next((int(line.removeprefix(FIELD)) for line in _lines(record) if line.startswith(FIELD)), 0)


def _records_of_group(pid: int, proc: Path, groups: Path) -> list[Path]:
    """Where the record may be. A container often sees its group's folder at the root of the mount, under a path of the host."""
    paths = []
    for line in _lines(proc / str(pid) / "cgroup"):
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths += [groups / "memory" / place / "memory.oom_control" for place in (group.lstrip("/"), "")]
        elif not controllers:
            paths += [groups / place / "memory.events" for place in (group.lstrip("/"), "")]
    return paths


def _counts(record: Path) -> bool:
    return any(line.startswith(FIELD) for line in _lines(record))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError):  # no cgroup here, or not ours to read
        return []
