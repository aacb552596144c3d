"""Compaction: entries become a segment, and segments of about one size become a larger one.

Every step writes the new file before it deletes the old ones. A process that is killed in between leaves rows twice, which
changes no answer. Two compactors at once do the same. Rows that no manifest confirms are kept: their commit may be under way.
"""

import logging
import math
from collections.abc import Mapping, Sequence

import polars as pl

from lineage.commit_log.entries import Entry, delete_entries
from lineage.commit_log.reader import rows_of
from lineage.commit_log.segments import (
    MAX_ROWS,
    delete_segments,
    open_segment,
    rows_in_name,
    segment_sizes,
    write_segments,
)
from lineage.storage.root import Storage

log = logging.getLogger(__name__)

FOLD_AT = 128
"""Entries that queries read one by one. From this many on they become a segment."""
FAN_OUT = 8
"""Segments of one size that become one, so a row is written again once for each factor of eight, up to `MAX_ROWS`."""


def fold(storage: Storage, entries: Sequence[Entry]) -> None:
    """Write the rows of some entries as a segment, then delete the entries."""
    write_segments(storage, rows_of(entries))
    delete_entries(storage, [entry.name for entry in entries])
    log.info("commit log of %s: %d entries are a segment now", storage.root, len(entries))


def merge(storage: Storage) -> None:
    """Merge segments until fewer than `FAN_OUT` are of one size. Another process may merge the same ones meanwhile."""
    while chosen := _chosen(sizes := segment_sizes(storage)):
        try:
            rows = pl.concat([open_segment(storage, name, sizes[name]).rows() for name in chosen])
        except FileNotFoundError:  # another process has merged one of them
            continue
        write_segments(storage, rows)
        delete_segments(storage, chosen)
        log.info("commit log of %s: %d segments are one now, of %d rows", storage.root, len(chosen), rows.height)


def _chosen(sizes: Mapping[str, int]) -> list[str]:
    """Return segments that should become one: of the smallest size that has `FAN_OUT` of them, and together not too large."""
    tiers: dict[int, list[str]] = {}
    for name in sorted(sizes):
        tiers.setdefault(int(math.log(max(rows_in_name(name), 1), FAN_OUT)), []).append(name)
    for _, names in sorted(tiers.items()):
        if len(names) >= FAN_OUT and sum(map(rows_in_name, names[:FAN_OUT])) <= MAX_ROWS:
            return names[:FAN_OUT]
    return []
