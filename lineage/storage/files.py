"""The operations on files that a root must provide, and their promises.

A local folder keeps them by `link(2)` and `rename(2)` (`local.py`), a bucket by preconditions (`gs.py`:
`if_generation_match`), any other URL as far as its fsspec file system does (`fsspec_files.py`). See docs/design/storage.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol


class RootGoneError(RuntimeError):
    """The root itself does not exist, so nothing is known about files below it; they must not count as missing."""


class Listed(NamedTuple):
    """One file of a listing: its bytes, a stamp that changes whenever they do, and the checksum that a bucket keeps."""

    size: int
    stamp: str
    crc32c: str = ""
    """In base64; empty where the root keeps none."""

    storage_class: str = ""
    """As the bucket names it (`STANDARD`); empty where the root has no classes."""


class Versioned(NamedTuple):
    """A small file as it was read, with the generation to compare when it is swapped."""

    data: bytes
    generation: str


class Reads(Protocol):
    """What gives the bytes of small files."""

    def read_bytes(self, address: str) -> bytes | None:
        """Return the bytes of a file, or None when there is none."""


class Files(Protocol):
    """The operations of a root. Names are relative to it and use `/`."""

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None when there is none."""

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of a file. Raises: FileNotFoundError."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file atomically; False, and nothing written, when it exists already."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file whether it exists or not; a reader sees the old bytes or the new ones, whole."""

    def read_versioned(self, name: str) -> Versioned | None:
        """Return a file with its generation, or None when there is none."""

    def swap(self, name: str, data: bytes | None, generation: str) -> str | None:
        """Replace (None: delete) a file only if it still has a generation; the new one, or None when another writer was first.

        The new generation of a deleted file is the empty string.
        """

    def publish(self, folder: Path, name: str) -> None:
        """Put a finished local folder at `name`, which must not exist: a root on the same machine moves it, others copy."""

    def copy(self, names: Mapping[str, str]) -> None:
        """Copy files within the root, on the server if possible. Raises: FileNotFoundError."""

    def download(self, names: Mapping[str, Path]) -> None:
        """Copy files to paths whose folders exist. Raises: FileNotFoundError."""

    def listing(self, prefix: str, name: str | None) -> dict[str, Listed]:
        """Return every file below a folder, or only those called `name`; unordered."""

    def listing_up_to(self, prefix: str, most: int) -> dict[str, Listed] | None:
        """Return every file below a folder, or None if there are more than `most` and counting them on would take requests."""

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders directly below one."""

    def delete(self, name: str) -> None:
        """Delete a file or a folder; nothing happens when there is none."""

    def written_ns(self, name: str) -> int | None:
        """Return when a file was written, in ns since the epoch, by the storage's clock and not its writer's; None if there is
        no such file, or if the storage does not say."""

    def location(self) -> str | None:
        """Return the region of the root's storage, or None if it has none or does not say."""
