"""Describe files for manifests. The process that writes a file also digests it, so nobody has to read it again."""

import os
from pathlib import Path

import pyarrow.parquet as pq

from lineage.artifact.manifest import FileEntry
from lineage.names import check_relative
from lineage.storage.digests import file_digest


def file_entry(folder: Path, path: Path) -> FileEntry:
    """Describe a file for a manifest; make its bytes durable and read them once. Raises: ValueError for an odd name."""
    name = check_relative(path.relative_to(folder).as_posix(), f"a file written below {folder}")
    sync_file(path)
    rows = pq.read_metadata(path).num_rows if path.suffix == ".parquet" else None
    return FileEntry(name, path.stat().st_size, rows, file_digest(path))


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
