"""What a manifest says of a file: taken where the file is written, so that nobody reads it again for it."""

import os
from pathlib import Path

import pyarrow.parquet as pq

from lineage.digests import file_digest
from lineage.manifest import FileEntry


def file_entry(folder: Path, path: Path) -> FileEntry:
    """What a manifest says of a file; its bytes are made durable and read once."""
    sync_file(path)
    rows = pq.read_metadata(path).num_rows if path.suffix == ".parquet" else None
    return FileEntry(path.relative_to(folder).as_posix(), path.stat().st_size, rows, file_digest(path))


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
