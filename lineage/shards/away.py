"""Finished shards that stay in the shared place: fetched when they are read, committed by the storage's own copy.

Nothing is taken on trust. A fetched file must have the digest that its runner recorded when it wrote it. A copied file must
have the checksum that the bucket gave to the runner's upload; the commit compares them (`lineage.writing.commit`).
"""

import pickle
import shutil
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path, PurePath
from types import FunctionType
from typing import Any

from lineage.artifact.later import is_later
from lineage.artifact.manifest import FileEntry
from lineage.shards.reads import FilesOf
from lineage.shards.run import PARTIAL_SUFFIX, SCRATCH_FOLDER, SHARD_FOLDER, Written
from lineage.shards.shared import SharedShard, SharedShards, link_or_copy
from lineage.storage.digests import other_bytes
from lineage.storage.root import Storage


@dataclass
class AwayShards:
    """Shards of one artifact that runners have finished, and which of their files the working folder has."""

    shards: dict[str, SharedShard] = field(default_factory=dict)
    fetched: dict[str, int] = field(default_factory=dict)
    """Time of the last change of each fetched file, by its path below the working folder."""

    def take(self, shared: SharedShards, names: Iterable[str]) -> None:
        """Read the records of finished shards. None of their files is fetched."""
        self.shards |= shared.read(names)

    def records(self) -> dict[str, tuple[list[str], Mapping[str, Any]]]:
        """Return files and statistics by shard, as `ShardFolder.records`."""
        return {name: (sorted(e.path for e in shard.files), shard.statistics) for name, shard in sorted(self.shards.items())}

    @property
    def files(self) -> dict[str, tuple[str, FileEntry]]:
        """The address and entry of every file, by its path below the working folder."""
        return {entry.path: (f"{one.data}/{entry.path}", entry) for one in self.shards.values() for entry in one.files}

    def bring(self, storage: Storage, root: Path, paths: Iterable[Path]) -> None:
        """Fetch what is missing of files, or of all files below folders, into the working folder `root`.

        Paths outside it, and files of no shard, are passed over. Raises: ValueError naming a file with other bytes than its
        runner wrote.
        """
        files = self.files
        if not files:
            return
        wanted = _below(root, files, paths) - self.fetched.keys()
        private = root / SHARD_FOLDER / f"away.{uuid.uuid4().hex[:8]}{PARTIAL_SUFFIX}"
        try:
            for path in wanted:
                (private / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).parent.mkdir(parents=True, exist_ok=True)
            if storage.is_local:
                for path in wanted:
                    link_or_copy(storage.local(files[path][0]), private / path)
            else:
                storage.files.download({files[path][0]: private / path for path in wanted})
            for path in sorted(wanted):
                _check(private / path, files[path][1], storage.uri(files[path][0]))
                self.fetched[path] = (private / path).stat().st_mtime_ns
                (private / path).replace(root / path)
        finally:
            shutil.rmtree(private, ignore_errors=True)

    def settle(self, storage: Storage, root: Path, *, by_copy: bool) -> tuple[dict[str, FileEntry], dict[str, FileEntry]]:
        """Return the files to copy within the storage, by address, and the entries of those in the working folder, by path.

        Files are copied if `by_copy`, on a storage that keeps checksums; their local copies are deleted. What the stage has
        changed or deleted since it was fetched is the stage's own and in neither. Scratch files are not committed.
        """
        copied, here = dict[str, FileEntry](), dict[str, FileEntry]()
        for path, (address, entry) in self.files.items():
            is_own = path in self.fetched or (root / path).exists()
            if path.startswith(f"{SCRATCH_FOLDER}/") or (
                is_own and not Written(entry, self.fetched.get(path, -1)).is_untouched(root)
            ):
                continue
            if by_copy and entry.crc32c and not storage.is_local:
                (root / path).unlink(missing_ok=True)
                copied[address] = entry
            else:
                here[path] = entry
        self.bring(storage, root, [root / path for path in here])
        return copied, here


def named_paths(root: Path, value: object) -> set[Path]:
    """Return the paths below a folder that a value has at any depth, as paths or as text; of a `FilesOf` those it names.
    Paths of inputs that are fetched later (`lineage.artifact.later`) are returned too.

    >>> sorted(named_paths(Path("/w"), ([Path("/w/a")], {"b": "/w/b/c"}, Path("/elsewhere"), 1)))
    [PosixPath('/w/a'), PosixPath('/w/b/c')]
    """
    found = set[Path]()
    _Pickler(root, found).dump(value)
    return found


class _Pickler(pickle.Pickler):
    """Shows every object of a value. What it writes is thrown away."""

    def __init__(self, root: Path, found: set[Path]):
        super().__init__(_Nowhere(), pickle.HIGHEST_PROTOCOL)
        self._root, self._text, self._found = root, str(root), found

    def persistent_id(self, obj: object) -> object:
        if isinstance(obj, FilesOf):
            self._found.update(filter(self._is_wanted, obj.paths))
            return True
        if isinstance(obj, PurePath) or (isinstance(obj, str) and obj.startswith(self._text)):
            self._found.update(filter(self._is_wanted, [Path(obj)]))
            return True
        return True if isinstance(obj, FunctionType) else None  # None: look inside

    def _is_wanted(self, path: Path) -> bool:
        return path.is_relative_to(self._root) or is_later(path)


class _Nowhere(RawIOBase):
    """A file that keeps nothing."""

    def write(self, piece: Any) -> int:
        return len(piece)


def _below(root: Path, files: Collection[str], paths: Iterable[Path]) -> set[str]:
    """Return those of the files that the paths name, or that lie below folders that they name."""
    names = {path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)}
    folders = tuple("" if name == "." else f"{name}/" for name in names if name not in files)
    return {file for file in files if file in names or file.startswith(folders)}


def _check(path: Path, entry: FileEntry, uri: str) -> None:
    """Raises: ValueError if a file does not have the bytes that its runner wrote."""
    if has := other_bytes(path, entry.bytes, entry.digest):
        raise ValueError(changed(uri, has, f"{entry.bytes} bytes, digest {entry.digest}"))


def changed(uri: str, has: str, wrote: str) -> str:
    """Say that a file of a finished shard has changed in the shared place, and what to do."""
    shard = uri.rsplit("/data-", 1)[0]
    return f"{uri} has {has}; its runner wrote {wrote}. Delete {shard} and materialize again: that shard is then made again"
