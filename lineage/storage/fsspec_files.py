"""Files of any other URL (`s3://`, `memory://`, ...), as far as its fsspec file system keeps the promises.

Exclusive creation is fsspec's `mode="create"`. fsspec cannot compare and swap, so leases are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from lineage.names import check_relative
from lineage.storage.files import Listed, Versioned


@dataclass(frozen=True)
class UrlFiles:
    """Operations of `lineage.storage.root.Files` on an fsspec URL."""

    root: str

    def read(self, name: str) -> bytes | None:
        filesystem, path = self._at(name)
        try:
            return filesystem.cat_file(path)
        except FileNotFoundError:
            return None

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        filesystem, path = self._at(name)
        return filesystem.cat_file(path, start=start, end=stop)

    def create(self, name: str, data: bytes) -> bool:
        filesystem, path = self._at(name)
        try:
            filesystem.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        filesystem, path = self._at(name)
        filesystem.pipe_file(path, data)

    def read_versioned(self, name: str) -> Versioned | None:
        raise NotImplementedError(f"{self.root}: fsspec has no generations; leases need a local folder or gs://")

    def swap(self, name: str, data: bytes | None, generation: str) -> str | None:
        raise NotImplementedError(f"{self.root}: fsspec cannot compare and swap; leases need a local folder or gs://")

    def publish(self, folder: Path, name: str) -> None:
        filesystem, path = self._at(name)
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            filesystem.put_file(str(file), f"{path}/{file.relative_to(folder).as_posix()}")

    def copy(self, names: Mapping[str, str]) -> None:
        for source, target in names.items():
            filesystem, path = self._at(source)
            filesystem.cp_file(path, self._at(target)[1])

    def download(self, names: Mapping[str, Path]) -> None:
        for name, target in names.items():
            filesystem, path = self._at(name)
            filesystem.get_file(path, str(target))

    def listing(self, prefix: str, name: str | None) -> dict[str, Listed]:
        filesystem, base = fsspec.url_to_fs(self.root)
        _, path = self._at(prefix)
        if not filesystem.exists(path):
            return {}
        skip = len(base.rstrip("/")) + 1
        return {
            entry[skip:]: Listed(facts["size"], _stamp(facts))
            for entry, facts in filesystem.find(path, detail=True).items()
            if name is None or entry.rsplit("/", 1)[-1] == name
        }

    def listing_up_to(self, prefix: str, most: int) -> dict[str, Listed] | None:
        return self.listing(prefix, None)  # one walk gives all of them

    def written_ns(self, name: str) -> int | None:
        del name  # each kind of URL calls it otherwise, or does not keep it
        return None

    def location(self) -> None:
        return None

    def folders(self, name: str) -> list[str]:
        filesystem, path = self._at(name)
        if not filesystem.exists(path):
            return []
        return [e["name"].rstrip("/").rsplit("/", 1)[-1] for e in filesystem.ls(path, detail=True) if e["type"] == "directory"]

    def delete(self, name: str) -> None:
        filesystem, path = self._at(name)
        while filesystem.exists(path):
            try:
                filesystem.rm(path, recursive=True)
            except FileNotFoundError:  # a winner and its loser delete the loser's data at the same time
                continue

    def _at(self, name: str) -> tuple[Any, str]:
        """Return the file system and path of a name below the root. Raises: ValueError for a name outside the root."""
        inside = check_relative(name, f"a file name below {self.root}") if name else ""
        return fsspec.url_to_fs(f"{self.root.rstrip('/')}/{inside}")


def _stamp(facts: Mapping[str, object]) -> str:
    """Return the size with the first of ETag, generation, modification or creation time that the listing has."""
    marks = [facts[key] for key in ("ETag", "etag", "generation", "mtime", "created") if facts.get(key) is not None]
    return f"{facts['size']}:{marks[0] if marks else ''}"
