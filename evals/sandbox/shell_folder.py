"""The folder that a read-only shell sees: paths, files and walks that never leave it.

Every path is followed to its real place before it is read, so a link cannot lead out. Imports the standard library only.
"""
# The paths of a shell are text, as its user wrote them.
# ruff: noqa: PTH110, PTH112, PTH116, PTH118, PTH123

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from evals.sandbox.shell_parser import CommandError

NAME = "/repo"
"""The folder's name for who uses the shell; absolute paths begin with it."""
MOST_READ = 8 << 20
"""Characters that are read of one file."""
MOST_DEPTH = 40
"""Folders within folders that a walk enters."""


@dataclass
class Folder:
    """A folder that is only read. `current` is the real place of the shell's working folder."""

    root: str
    current: str = ""

    def __post_init__(self) -> None:
        self.root = os.path.realpath(self.root)
        self.current = self.root

    def placed(self, path: str) -> str:
        """Return where a path lies, before links are followed. Raises: CommandError for an absolute path of another root."""
        if "\0" in path:
            raise CommandError("a path holds no NUL")
        if not path.startswith("/"):
            return os.path.join(self.current, path)
        if path == NAME or path.startswith(f"{NAME}/"):
            return self.root + path[len(NAME) :]
        raise CommandError(f"{path}: outside the repository, which is {NAME}")

    def inside(self, path: str) -> str:
        """Return the real place of a path. Raises: CommandError if it is outside, or does not exist."""
        place = os.path.realpath(self.placed(path))
        if not self.is_inside(place):
            raise CommandError(f"{path}: outside the repository, which is {NAME}")
        if not os.path.exists(place):
            raise CommandError(f"{path}: No such file or directory")
        return place

    def is_inside(self, place: str) -> bool:
        """Whether a real place is the folder or lies below it."""
        return place == self.root or place.startswith(self.root.rstrip("/") + "/")

    def shown(self, place: str, *, absolute: bool = False) -> str:
        """Return how the shell writes a place: relative to the working folder, or below `NAME`."""
        return NAME + place[len(self.root) :] if absolute else os.path.relpath(place, self.current)

    def read(self, path: str) -> list[str]:
        """Return the lines of a regular file. Raises: CommandError for anything else."""
        place = self.inside(path)
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise CommandError(f"{path}: {'Is a directory' if os.path.isdir(place) else 'not a regular file'}")
        with open(place, encoding="utf-8", errors="replace", newline="\n") as file:
            return lines_of(file.read(MOST_READ))

    def walk(self, path: str) -> Iterator[tuple[str, str, bool]]:
        """Yield (path as the user wrote it, place, whether it is a folder) below a path; links are not followed."""
        place = self.inside(path)
        yield path, place, os.path.isdir(place)
        if os.path.isdir(place):
            yield from self._below(path, place, 0)

    def _below(self, path: str, place: str, depth: int) -> Iterator[tuple[str, str, bool]]:
        if depth > MOST_DEPTH:
            return
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            name = f"{path.rstrip('/')}/{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            yield name, entry.path, is_folder
            if is_folder:
                yield from self._below(name, entry.path, depth + 1)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text; an end of line at its end begins no further line."""
    lines = text.split("\n")
    return lines[:-1] if lines and not lines[-1] else lines
