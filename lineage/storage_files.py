"""What a root must be able to do with files, and what it says of them.

A local folder keeps it by `link(2)` and `rename(2)` (`storage_local.py`), a bucket by preconditions (`storage_gs.py`:
`if_generation_match`), any other URL as far as its fsspec file system does (`storage_fsspec.py`). docs/design/storage.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol


class RootGoneError(RuntimeError):
    """The root itself is not there: nothing can be said of what lies below it, least of all that it is missing."""


class Listed(NamedTuple):
    """One file of a listing: its bytes, and a stamp that changes whenever they do."""

    size: int
    stamp: str


class Versioned(NamedTuple):
    """A small file as it was read, with the generation to compare when it is swapped."""

    data: bytes
    generation: str


class Files(Protocol):
    """What a root must be able to do. Names are relative to it and use `/`."""

    def read(self, name: str) -> bytes | None:
        """Bytes of a file, or None when there is none."""

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)` of a file. Raises: FileNotFoundError."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file atomically; False, and nothing written, when it exists already."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file whether it exists or not; a reader sees the old bytes or the new ones, whole."""

    def read_versioned(self, name: str) -> Versioned | None:
        """A file with its generation, or None when there is none."""

    def swap(self, name: str, data: bytes | None, generation: str) -> str | None:
        """Replace (None: delete) a file only if it still has a generation; the new one, or None when another writer was first.

        The new generation of a deleted file is the empty string.
        """

    def publish(self, folder: Path, name: str) -> None:
        """Put a finished local folder at `name`, which must not exist: a root on the same machine moves it, others copy."""

    def copy(self, names: Mapping[str, str]) -> None:
        """Copy files within the root, by itself where it can: no byte passes through here. Raises: FileNotFoundError."""

    def download(self, names: Mapping[str, Path]) -> None:
        """Copy files to paths whose folders exist. Raises: FileNotFoundError."""

    def listing(self, prefix: str, name: str | None) -> dict[str, Listed]:
        """Every file below a folder, or only those called `name`; unordered."""

    def folders(self, name: str) -> list[str]:
        """Names of the folders directly below one."""

    def delete(self, name: str) -> None:
        """Delete a file or a folder; nothing happens when there is none."""

    def location(self) -> str | None:
        """Region of the root's storage, where it has one and tells."""
