"""Finished shards of one artifact in a place that all machines can read, until the artifact is committed.

    <root>/.work/shards/<version>-<code>/about.json                     key and partition of what is to be made
                                         <shard>/data-<attempt>/...     what the shard wrote
                                                /shard.json             its files' digests; written last, never replaced
                                                /failed.json            why a runner gave it up, until one finishes it

It works like the commit of an artifact: files under a fresh name, then a record by exclusive create. If two runners do the
same shard, the second discards its copy; a runner that is killed leaves nothing that counts.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lineage.artifact.file_entries import file_entry
from lineage.artifact.manifest import FileEntry
from lineage.artifact.spec import ArtifactSpec
from lineage.config import from_jsonable
from lineage.names import check_relative
from lineage.shards.failures import ShardFailure
from lineage.shards.run import PARTIAL_SUFFIX, SHARD_FOLDER, ShardFolder, ShardFunction, split_digested
from lineage.storage.digests import Digested
from lineage.storage.root import Storage

SHARED_FOLDER = ".work/shards"
RECORD_NAME, FAILURE_NAME, ABOUT_NAME = "shard.json", "failed.json", "about.json"
CODE_CHARS = 12


@dataclass(frozen=True)
class SharedShard:
    """A finished shard: the address of its folder, its files as the runner wrote and digested them, its statistics."""

    data: str
    files: tuple[FileEntry, ...]
    statistics: Mapping[str, object]


@dataclass(frozen=True)
class SharedShards:
    """The shared place of one artifact: `version` is its identity, `code` a digest of the code that makes it."""

    storage: Storage
    version: str
    code: str

    @property
    def address(self) -> str:
        return f"{SHARED_FOLDER}/{self.version}-{self.code[:CODE_CHARS]}"

    def announce(self, spec: ArtifactSpec) -> None:
        """Write the key and partition of the artifact, for readers that have only the store."""
        self.storage.create(f"{self.address}/{ABOUT_NAME}", json.dumps({"key": spec.key, "partition": spec.partition}))

    def finished(self) -> frozenset[str]:
        """Return the names of finished shards; one listing of records."""
        return self._having(RECORD_NAME)

    def failed(self, names: Iterable[str]) -> dict[str, ShardFailure]:
        """Return the failures of the named shards that runners gave up, in name order; one listing and one read each."""
        records = {}
        for name in sorted(self._having(FAILURE_NAME) & set(names)):
            text = self.storage.read_text(f"{self.address}/{name}/{FAILURE_NAME}")
            if text is not None:
                records[name] = from_jsonable(ShardFailure, json.loads(text), FAILURE_NAME)
        return records

    def fail(self, failure: ShardFailure) -> None:
        """Record that a shard failed, in place of an earlier failure."""
        text = json.dumps(asdict(failure), ensure_ascii=False)
        self.storage.replace(f"{self.address}/{failure.name}/{FAILURE_NAME}", text.encode())

    def forget_failures(self, names: Iterable[str]) -> None:
        """Delete failures of earlier rounds, because the shards will be tried again."""
        for name in self._having(FAILURE_NAME) & set(names):
            self.storage.delete(f"{self.address}/{name}/{FAILURE_NAME}")

    def _having(self, record: str) -> frozenset[str]:
        records = self.storage.files.listing(self.address, record)
        return frozenset(path.split("/")[-2] for path in records)

    def publish(
        self, name: str, folder: Path, statistics: Mapping[str, Any], digested: Mapping[str, Digested] | None = None
    ) -> bool:
        """Publish what a shard wrote, with the digests of its files. `digested`: those that it took while it wrote.

        Returns False, and keeps nothing, if another runner was first. It may move the folder.
        """
        known = digested or {}
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        entries = [file_entry(folder, path, known.get(path.relative_to(folder).as_posix())) for path in paths]
        data = f"{self.address}/{name}/data-{uuid.uuid4().hex[:8]}"
        if entries:
            self.storage.publish(folder, data)
        if entries and not self.storage.is_local:  # the upload has compared them
            sums = self.storage.listed(data)
            entries = [replace(entry, crc32c=sums[entry.path].crc32c or None) for entry in entries]
        record = {"data": data, "files": [asdict(entry) for entry in entries], "statistics": dict(statistics)}
        won = self.storage.create(f"{self.address}/{name}/{RECORD_NAME}", json.dumps(record))
        if not won:
            self.storage.delete(data)
        return won

    def publish_copy(self, name: str, folder: ShardFolder) -> bool:
        """Publish a copy of a shard that a working folder has finished."""
        files, statistics = folder.records([name])[name]
        copy = folder.root / SHARD_FOLDER / f"{name}.{uuid.uuid4().hex[:8]}{PARTIAL_SUFFIX}"
        try:
            for path in files:
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(folder.root / path, copy / path)
            return self.publish(name, copy, statistics)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def read(self, names: Iterable[str]) -> dict[str, SharedShard]:
        """Return finished shards by name; one read each. Raises: RuntimeError for one that has vanished; ValueError."""
        return dict(self.storage.read_each(lambda name: (name, self._read(name)), sorted(names)))

    def _read(self, name: str) -> SharedShard:
        """Read a record, and refuse one that points outside its shard's folder."""
        address = f"{self.address}/{name}/{RECORD_NAME}"
        text, where = self.storage.read_text(address), self.storage.uri(address)
        if text is None:
            raise RuntimeError(f"shard {name} vanished from {self.storage.uri(self.address)}: was the artifact committed?")
        shard = from_jsonable(SharedShard, json.loads(text), where)
        folder, _, data = check_relative(shard.data, f"{where}: data").rpartition("/")
        if folder != f"{self.address}/{name}" or not data:
            raise ValueError(f"{where}: data is {shard.data!r}; it must be a folder of {self.address}/{name}")
        for entry in shard.files:
            check_relative(entry.path, f"{where}: a file's path")
        return shard

    def delete(self) -> None:
        self.storage.delete(self.address)


def about(storage: Storage, address: str) -> Mapping[str, Any] | None:
    """Return the key and partition of the artifact of a shared place, or None if no launcher of runners has written them."""
    text = storage.read_text(f"{address}/{ABOUT_NAME}")
    return None if text is None else json.loads(text)


def run_and_publish(
    folder: Path, shared: SharedShards, name: str, function: ShardFunction, arguments: tuple[object, ...]
) -> Mapping[str, Any]:
    """Run a shard and publish it in the shared place; itself a shard function."""
    inner = folder / "shard"
    inner.mkdir()
    statistics, digested = split_digested(function(inner, *arguments))
    shared.publish(name, inner, statistics, digested)
    shutil.rmtree(inner, ignore_errors=True)  # a local root has moved it; a bucket has a copy, which this runner does not read
    return statistics


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file that nobody changes, or copy it if the file system cannot link."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
