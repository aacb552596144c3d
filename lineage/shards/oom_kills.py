"""Count the processes that the kernel killed for memory, in the narrowest record that covers a given process.

A control group counts the kills of its own processes by any out-of-memory killer (`memory.events` of cgroup v2, which includes
the groups below it; `memory.oom_control` of v1). The machine-wide count in /proc/vmstat includes kills in other containers, so
it is used only if no record of the process's group can be read.
"""

from pathlib import Path

FIELD = "oom_kill "


def oom_record(pid: int, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Path:
    """Return the file that counts the out-of-memory kills of a living process's group, or the machine's file."""
    return next((path for path in _records_of_group(pid, proc, groups) if _counts(path)), proc / "vmstat")


def oom_kills(record: Path) -> int:
    """Return the number of processes killed for memory so far, from a file of `oom_record`; 0 if the group is gone."""
    return next((int(line.removeprefix(FIELD)) for line in _lines(record) if line.startswith(FIELD)), 0)


def _records_of_group(pid: int, proc: Path, groups: Path) -> list[Path]:
    """Yield where the record may be. A container often sees its group's folder at the root of the mount, with a path of the
    host."""
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
    except (
        FileNotFoundError,
        NotADirectoryError,
        ProcessLookupError,
        PermissionError,
    ):  # no cgroup here, or no permission to read it
        return []
