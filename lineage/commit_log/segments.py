"""Segments: sorted rows of the commit log in files that never change.

    .lineage/segments/<rows>-<random>.segment

    groups     zlib of: keys (uint64 [rows]), then addresses joined by line feeds; at most `GROUP_ROWS` rows each
    index      of each group: first key (uint64), compressed bytes (uint32), rows (uint32)
    end        magic, number of groups (uint32), xxh3_64 of the index

Integers are little-endian. A question reads the end of the file and the groups that may hold the key: two ranges. The format is
our own because a changed byte in a Parquet footer ends the process (a segmentation fault in pyarrow, 2026-11-25).
"""

import itertools
import re
import struct
import uuid
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import xxhash

from lineage.commit_log.entries import DamagedLogError
from lineage.storage.root import Storage

FOLDER = ".lineage/segments"
ROWS_SCHEMA = {"key": pl.UInt64, "address": pl.String}
GROUP_ROWS = 1_024
MAX_ROWS = 1 << 22
GROUP_BYTES = 8 << 20
"""A group that becomes larger is refused. Ours take about 100 KiB."""
RUN_GROUPS = 64
"""Neighbouring groups that one request reads."""
TAIL_BYTES = 256 << 10
"""How much of the end of a file is read at once. The index of `MAX_ROWS` rows takes 64 KiB; a small segment is read whole."""
_INDEX = np.dtype([("first", "<u8"), ("bytes", "<u4"), ("rows", "<u4")])
_END = struct.Struct("<8sIQ")
_MAGIC = b"marinlg1"
_NAME = re.compile(r"(?P<rows>[0-9]{1,9})-[0-9a-f]{32}\.segment")


@dataclass(frozen=True, eq=False)
class Segment:
    """A segment whose index was read. `starts`: where each group begins in the file, and where the last one ends. `tail`: the
    bytes at its end."""

    storage: Storage
    name: str
    size: int
    index: np.ndarray
    starts: np.ndarray
    tail: bytes

    def runs(self, keys: Sequence[int]) -> list[range]:
        """Return the runs of groups that may hold some of the keys."""
        wanted, firsts = np.asarray(sorted(keys), np.uint64), self.index["first"]
        low = np.maximum(np.searchsorted(firsts, wanted, "left"), 1) - 1  # rows of a key may begin in the group before
        high = np.searchsorted(firsts, wanted, "right")
        groups = sorted({group for a, b in zip(low.tolist(), high.tolist(), strict=True) for group in range(a, b)})
        return _runs(groups)

    def read(self, run: range, keys: np.ndarray | None = None) -> pl.DataFrame:
        """Return the rows of a run of groups (ROWS_SCHEMA), by one request if they are not in the tail.

        `keys`: groups with none of them are left out.

        Raises: DamagedLogError; FileNotFoundError if the segment was merged away.
        """
        where = f"{FOLDER}/{self.name}"
        start, stop = int(self.starts[run.start]), int(self.starts[run.stop])
        tail_start = self.size - len(self.tail)
        data = (
            self.tail[start - tail_start : stop - tail_start]
            if start >= tail_start
            else self.storage.files.read_range(where, start, stop)
        )
        parts = [
            _group(data[int(self.starts[g]) - start : int(self.starts[g + 1]) - start], int(self.index["rows"][g]), where, keys)
            for g in run
        ]
        return pl.concat([pl.DataFrame(schema=ROWS_SCHEMA), *parts])

    def rows(self) -> pl.DataFrame:
        """Return every row (ROWS_SCHEMA)."""
        return pl.concat([pl.DataFrame(schema=ROWS_SCHEMA), *map(self.read, _runs(range(len(self.index))))])


def segment_sizes(storage: Storage) -> dict[str, int]:
    """Return the bytes of every segment by one listing. Raises: DamagedLogError for a file that is no segment."""
    sizes = {name: size for name, size in storage.sizes(FOLDER).items() if not name.startswith(".")}
    if strange := next((name for name in sizes if not _NAME.fullmatch(name)), None):
        raise DamagedLogError(storage.uri(f"{FOLDER}/{strange}"), "its name is not that of a segment")
    return sizes


def rows_in_name(name: str) -> int:
    """Return how many rows a segment says it has. It only decides what is merged."""
    match = _NAME.fullmatch(name)
    assert match is not None  # `segment_sizes` refuses other names
    return int(match["rows"])


def open_segment(storage: Storage, name: str, size: int) -> Segment:
    """Read the index of a segment by one range. Raises: DamagedLogError; FileNotFoundError if it was merged away."""
    where = f"{FOLDER}/{name}"
    tail = storage.files.read_range(where, max(0, size - TAIL_BYTES), size)
    magic, groups, digest = _END.unpack(tail[-_END.size :]) if len(tail) >= _END.size else (b"", 0, 0)
    wanted = groups * _INDEX.itemsize + _END.size
    if magic != _MAGIC or wanted > size:
        raise DamagedLogError(storage.uri(where), f"its {size:,} bytes do not end as they were written")
    if wanted > len(tail):
        tail = storage.files.read_range(where, size - wanted, size)
    index_bytes = tail[len(tail) - wanted : len(tail) - _END.size]
    if xxhash.xxh3_64_intdigest(index_bytes) != digest:
        raise DamagedLogError(storage.uri(where), "its index is not as it was written")
    index = np.frombuffer(index_bytes, _INDEX)
    starts = np.concatenate([[0], np.cumsum(index["bytes"], dtype=np.int64)])
    rows, most = int(index["rows"].sum(dtype=np.int64)), int(index["rows"].max(initial=0))
    if starts[-1] + len(index_bytes) + _END.size != size or most > GROUP_ROWS or rows != rows_in_name(name) or rows > MAX_ROWS:
        raise DamagedLogError(storage.uri(where), f"its index speaks of {rows:,} rows in {starts[-1]:,} of {size:,} bytes")
    return Segment(storage, name, size, index, starts, tail)


def write_segments(storage: Storage, rows: pl.DataFrame) -> list[str]:
    """Write rows (ROWS_SCHEMA) as new segments and return their names. Equal rows are written once."""
    ordered = rows.unique().sort("key", "address")
    return [_write(storage, ordered[start : start + MAX_ROWS]) for start in range(0, ordered.height, MAX_ROWS)]


def delete_segments(storage: Storage, names: Collection[str]) -> None:
    """Delete segments whose rows other segments hold."""
    for name in sorted(names):
        storage.delete(f"{FOLDER}/{name}")


def _write(storage: Storage, rows: pl.DataFrame) -> str:
    name = f"{rows.height:09d}-{uuid.uuid4().hex}.segment"
    groups, index = [], []
    for group in rows.iter_slices(GROUP_ROWS):
        keys = group["key"].to_numpy().astype("<u8")
        groups.append(zlib.compress(keys.tobytes() + "\n".join(group["address"]).encode(), 1))
        index.append((keys[0], len(groups[-1]), group.height))
    index_bytes = np.array(index, _INDEX).tobytes()
    end = _END.pack(_MAGIC, len(groups), xxhash.xxh3_64_intdigest(index_bytes))
    storage.replace(f"{FOLDER}/{name}", b"".join([*groups, index_bytes, end]))
    return name


def _group(data: bytes, rows: int, where: str, wanted: np.ndarray | None) -> pl.DataFrame:
    """Return the rows of a group, none if it has no wanted key. Raises: DamagedLogError for bytes that do not give them."""
    try:
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(data, GROUP_BYTES)
        keys = np.frombuffer(unpacked[: 8 * rows], "<u8")
        if unpacking.eof and wanted is not None and not np.isin(keys, wanted).any():
            return pl.DataFrame(schema=ROWS_SCHEMA)
        addresses = unpacked[8 * rows :].decode().split("\n")
        if not unpacking.eof or len(addresses) != rows:
            raise ValueError(f"{len(addresses):,} addresses of {rows:,}")
        return pl.DataFrame({"key": keys, "address": addresses}, schema=ROWS_SCHEMA)
    except (zlib.error, ValueError) as error:
        raise DamagedLogError(where, f"a group of rows cannot be read ({error})") from error


def _runs(groups: Iterable[int]) -> list[range]:
    """Return sorted numbers as runs of neighbours of at most `RUN_GROUPS`.

    >>> _runs([1, 2, 3, 7])
    [range(1, 4), range(7, 8)]
    """
    runs = []
    for _, neighbours in itertools.groupby(enumerate(groups), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in neighbours]
        first, last = numbers[0], numbers[-1]
        runs += [range(start, min(start + RUN_GROUPS, last + 1)) for start in range(first, last + 1, RUN_GROUPS)]
    return runs
