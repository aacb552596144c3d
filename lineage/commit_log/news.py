"""What the commit log has said since somebody looked last: addresses whose manifests have to be read again.

    news = read_news(storage, cursor.files)
    addresses = news.to_read(known, cursor.waiting)  # read these manifests
    cursor = news.after(cursor, before, now)         # and go on from here the next time

So a table of everything that is there is kept without a listing of the root. It is no proof: what somebody copies or deletes
by hand, and what a rule of the bucket deletes, is not in the log. Whoever keeps such a table lists the root again at times.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from lineage.commit_log.entries import DamagedLogError, Entry, entry_names, read_entries
from lineage.commit_log.keys import CHANGED
from lineage.commit_log.segments import open_segment, segment_sizes
from lineage.names import check_relative
from lineage.storage.root import Storage


@dataclass(frozen=True)
class Cursor:
    """How far the log was read. `files`: names of its entries and segments.

    `waiting`: addresses that are asked again each time, because a commit or a deletion there may be under way.
    `looked_ns`: when the whole root was last listed, in ns since the epoch; 0: never.
    """

    files: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    looked_ns: int = 0


@dataclass(frozen=True)
class News:
    """Addresses that new files of the log name. `files`: names of all its files."""

    files: frozenset[str]
    commits: frozenset[str] = frozenset()
    """By entries: a manifest there is written, or about to be."""
    changes: frozenset[str] = frozenset()
    """By entries: a manifest there is deleted or replaced, or about to be."""
    folded: frozenset[str] = field(default=frozenset(), repr=False)
    """By segments."""
    folded_changes: frozenset[str] = frozenset()

    def to_read(self, known: Collection[str], waiting: Collection[str]) -> set[str]:
        """Return the addresses whose manifests have to be read. Rows of segments are old, so known addresses are left out.

        Raises: DamagedLogError for an address that would lead outside the root.
        """
        new = {address for address in self.folded if address not in known}
        addresses = {*self.commits, *self.changes, *self.folded_changes, *waiting, *new}
        for address in addresses:
            try:
                check_relative(address, "an address")
            except ValueError as error:
                raise DamagedLogError("the commit log", error) from error
        return addresses

    def after(self, cursor: Cursor, before: Mapping[str, object], now: Mapping[str, object]) -> Cursor:
        """Return the cursor after these addresses were read. `before` and `now` have a value for each manifest of an address.

        An address still waits if its entry announces a change that has not happened: no manifest yet, or still the deleted one.
        """
        coming = {a for a in self.commits if a not in now} | {a for a in cursor.waiting if a not in now and a not in before}
        going = {a for a in self.changes | cursor.waiting if a in now and a in before and before[a] == now[a]}
        return replace(cursor, files=self.files, waiting=frozenset(coming | going))

    def at_first(self, present: Collection[str], looked_ns: int) -> Cursor:
        """Return the cursor after a listing of the whole root that began later than this was read."""
        waiting = {a for a in self.commits if a not in present} | {a for a in self.changes if a in present}
        return Cursor(self.files, frozenset(waiting), looked_ns)


def read_news(storage: Storage, read_before: Collection[str]) -> News:
    """Return what the files of the log say that are not in `read_before`.

    Raises: lineage.commit_log.entries.DamagedLogError; FileNotFoundError if another process merges segments meanwhile.
    """
    names = entry_names(storage)  # before segments: what is folded in between is in one of them
    entries = read_entries(storage, [name for name in names if name not in read_before])
    sizes = segment_sizes(storage)
    fresh = [open_segment(storage, name, sizes[name]) for name in sizes if name not in read_before]
    rows = [segment.rows() for segment in fresh]
    is_change = pl.col("key") == pl.lit(CHANGED, pl.UInt64)
    return replace(
        _of_entries(entries, (*names, *sizes)),
        folded=frozenset(address for table in rows for address in table["address"].unique()),
        folded_changes=frozenset(address for table in rows for address in table.filter(is_change)["address"].unique()),
    )


def read_entries_alone(storage: Storage) -> News:
    """Return what entries say that no segment holds yet: to begin with, before a listing of the whole root.

    Raises: as `read_news`.
    """
    sizes = segment_sizes(storage)  # before entries: what is folded in between is in a segment that counts as not seen
    names = entry_names(storage)
    return _of_entries(read_entries(storage, names), (*names, *sizes))


def _of_entries(entries: Collection[Entry], files: Collection[str]) -> News:
    return News(
        frozenset(files),
        frozenset(entry.address for entry in entries if set(entry.keys) != {CHANGED}),
        frozenset(entry.address for entry in entries if CHANGED in entry.keys),
    )
