"""Finished shards of one artifact in a place that many machines see, until the artifact is committed.

    <root>/.work/shards/<version>-<code>/<shard>/data-<attempt>/...     what the shard wrote
                                                /shard.json             written last, never replaced: the first runner wins

It is the commit of an artifact in small: files under a fresh name, then a record by exclusive create. So two runners that do
the same shard do no harm (the second discards its copy), and a runner that is killed leaves nothing that counts.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage.shards import ShardFolder, ShardFunction
from lineage.storage import Storage

SHARED_FOLDER = ".work/shards"
RECORD_NAME = "shard.json"
CODE_CHARS = 12


@dataclass(frozen=True)
class SharedShards:
    """The shared place of one artifact: `version` is its identity, `code` a digest of what makes it."""

    storage: Storage
    version: str
    code: str

    @property
    def address(self) -> str:
        return f"{SHARED_FOLDER}/{self.version}-{self.code[:CODE_CHARS]}"

    def finished(self) -> frozenset[str]:
        """Names of the shards that are there; one listing."""
        found = self.storage.sizes(self.address)
        return frozenset(path.rpartition("/")[0] for path in found if path.rpartition("/")[2] == RECORD_NAME)

    def publish(self, name: str, folder: Path, statistics: Mapping[str, Any]) -> bool:
        """Put what a shard wrote there; False, and nothing kept, when another runner was first. It may move the folder."""
        files = {p.relative_to(folder).as_posix(): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}
        data = f"{self.address}/{name}/data-{uuid.uuid4().hex[:8]}"
        if files:
            self.storage.publish(folder, data)
        record = {"data": data, "files": files, "statistics": dict(statistics)}
        won = self.storage.create(f"{self.address}/{name}/{RECORD_NAME}", json.dumps(record))
        if not won:
            self.storage.delete(data)
        return won

    def fetch(self, names: Iterable[str], into: ShardFolder, scratch: Path) -> None:
        """Take shards from there as finished in a working folder."""
        for name in sorted(names):
            text = self.storage.read_text(f"{self.address}/{name}/{RECORD_NAME}")
            if text is None:
                raise RuntimeError(f"shard {name} vanished from {self.storage.uri(self.address)}: was the artifact committed?")
            record = json.loads(text)
            folder = self.storage.local(record["data"]) if self.storage.is_local else scratch / uuid.uuid4().hex
            if not self.storage.is_local:
                self.storage.fetch(record["data"], list(record["files"]), folder)
            into.adopt(name, {path: folder / path for path in record["files"]}, record["statistics"], place=link_or_copy)
            if not self.storage.is_local:
                shutil.rmtree(folder, ignore_errors=True)

    def delete(self) -> None:
        self.storage.delete(self.address)


def run_and_publish(
    folder: Path, shared: SharedShards, name: str, function: ShardFunction, arguments: tuple[object, ...]
) -> Mapping[str, Any]:
    """A shard function: does another shard's work and puts it where every machine sees it."""
    inner = folder / "shard"
    inner.mkdir()
    statistics = function(inner, *arguments)
    shared.publish(name, inner, statistics)
    return statistics


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file that nobody changes, where the file system can; a copy elsewhere."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
