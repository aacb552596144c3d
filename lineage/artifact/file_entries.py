"""Describe files for manifests. The process that writes a file also digests it, so nobody has to read it again."""

import os
from pathlib import Path

import pyarrow.parquet as pq

from lineage.artifact.manifest import FileEntry
from lineage.names import check_relative
from lineage.storage.digests import Digested, file_digest


def file_entry(folder: Path, path: Path, digested: Digested | None = None) -> FileEntry:
    """Describe a file for a manifest and make its bytes durable. They are read unless they were digested while they were
    written, and the file has not changed since. Raises: ValueError for an odd name.
    """
    name = check_relative(path.relative_to(folder).as_posix(), f"a file written below {folder}")
    sync_file(path)
    rows = pq.read_metadata(path).num_rows if path.suffix == ".parquet" else None
    facts = path.stat()
    digest = digested.digest if digested is not None and digested.is_of(facts) else file_digest(path)
    return FileEntry(name, facts.st_size, rows, digest)


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
