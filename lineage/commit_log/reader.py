"""Questions to the commit log of a root, while others commit and compact it.

    log = CommitLog(store.storage)
    log.find({data_key((name, data_version))})      # key -> addresses of candidates

Entries are listed before segments: what is folded in between is in a segment that the second listing shows. A file that is
gone when it is read was folded or merged into another, so both listings are taken again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from lineage.commit_log.entries import Entry, entry_names, read_entries
from lineage.commit_log.segments import ROWS_SCHEMA, Segment, open_segment, segment_sizes
from lineage.storage.root import Storage

TRIES = 20


@dataclass
class CommitLog:
    """The log as of its last listing. Files never change, so each is read once."""

    storage: Storage
    besides: pl.DataFrame | None = None
    """Rows (ROWS_SCHEMA) that are not in storage: of a root that this process may not write to."""
    _entries: dict[str, Entry] = field(default_factory=dict)
    _segments: dict[str, Segment] = field(default_factory=dict)
    _is_listed: bool = False

    def find(self, keys: Collection[int]) -> dict[int, list[str]]:
        """Return the addresses of candidates for each key, in address order; keys without one are left out.

        Raises: DamagedLogError; RuntimeError if others never stop compacting.
        """
        for _ in range(TRIES):
            if not self._is_listed:
                self.refresh()
            try:
                return _by_key(self._rows(keys))
            except FileNotFoundError:
                self._is_listed = False
        raise self._never_still()

    @property
    def entries(self) -> list[Entry]:
        """Entries that no segment held at the last listing."""
        return list(self._entries.values())

    @property
    def segments(self) -> list[Segment]:
        """Segments of the last listing."""
        return list(self._segments.values())

    def refresh(self) -> None:
        """List the log again and read what is new. Raises: as `find`."""
        for _ in range(TRIES):
            names = entry_names(self.storage)
            fresh = read_entries(self.storage, [name for name in names if name not in self._entries])
            known = self._entries | {entry.name: entry for entry in fresh}
            self._entries = {name: known[name] for name in names if name in known}
            sizes = segment_sizes(self.storage)
            try:
                self._segments = {name: self._segments[name] for name in sizes if name in self._segments} | self._open(sizes)
            except FileNotFoundError:
                continue
            self._is_listed = True
            return
        raise self._never_still()

    def _open(self, sizes: Mapping[str, int]) -> dict[str, Segment]:
        new = [name for name in sizes if name not in self._segments]
        opened = self.storage.read_each(lambda name: open_segment(self.storage, name, sizes[name]), new)
        return dict(zip(new, opened, strict=True))

    def _never_still(self) -> RuntimeError:
        return RuntimeError(f"the commit log of {self.storage.root} was compacted {TRIES} times while it was read; ask again")

    def _rows(self, keys: Collection[int]) -> pl.DataFrame:
        wanted = pl.Series(sorted(keys), dtype=pl.UInt64).implode()
        is_wanted = pl.col("key").is_in(wanted)
        few = np.fromiter(keys, np.uint64, len(keys))
        reads = [(segment, run) for segment in self.segments for run in segment.runs(list(keys))]
        parts = self.storage.read_each(lambda read: read[0].read(read[1], few).filter(is_wanted), reads)
        recent = rows_of(self._entries.values())
        if self.besides is not None:
            recent = pl.concat([recent, self.besides])
        return pl.concat([*parts, recent.filter(is_wanted)])


def rows_of(entries: Collection[Entry]) -> pl.DataFrame:
    """Return the rows of some entries (ROWS_SCHEMA)."""
    pairs = [(key, entry.address) for entry in entries for key in entry.keys]
    return pl.DataFrame(pairs, schema=ROWS_SCHEMA, orient="row")


def _by_key(rows: pl.DataFrame) -> dict[int, list[str]]:
    grouped = rows.unique().sort("key", "address").group_by("key", maintain_order=True).agg("address")
    return dict(grouped.iter_rows())
