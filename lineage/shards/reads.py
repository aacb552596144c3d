"""Which files of a folder a task reads: a runner fetches these and no others (`lineage.shards.away.named_paths`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FilesOf:
    """A folder of the artifact, and the files or folders below it that a task reads.

    A file that is not named cannot be opened, with or without runners: so a task that forgets one fails everywhere.
    """

    folder: Path
    names: frozenset[str]

    def __truediv__(self, name: str) -> Path:
        """Return the path of a file. Raises: ValueError if the task does not name it or its folder."""
        if name not in self.names and name.rpartition("/")[0] not in self.names:
            raise ValueError(f"{self.folder / name} is read by a task that does not name it, so runners would not fetch it")
        return self.folder / name

    @property
    def paths(self) -> list[Path]:
        return [self.folder / name for name in sorted(self.names)]


type Folder = Path | FilesOf
"""Where a task finds files. A plain path names all files below it."""


def files_of(folder: Folder, names: Iterable[str]) -> FilesOf:
    """Return a folder of which a task reads these files or folders."""
    return FilesOf(folder.folder if isinstance(folder, FilesOf) else folder, frozenset(names))


def named_below(folder: Path, paths: Iterable[Path]) -> FilesOf:
    """Return a folder of which a task reads these paths below it."""
    return files_of(folder, (path.relative_to(folder).as_posix() for path in paths))
