"""Which addresses may have a new manifest, by the commit log, so that an update does not look into every folder.

The log names each commit of this code. What somebody copies by hand it does not name, so every folder is looked at again after
LOOK_AGAIN_NS. Addresses without a manifest are asked each time: their commit may be under way, or a purge may restore them.
"""

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from lineage.artifact.store import Store
from lineage.commit_log.entries import DamagedLogError, entry_names, read_entries
from lineage.commit_log.segments import open_segment, segment_sizes
from lineage.graph.scan import is_made

log = logging.getLogger(__name__)

LOOK_AGAIN_NS = 600 * 10**9


@dataclass(frozen=True)
class Cursor:
    """How far the log was read. `files`: names of its entries and segments; `waiting`: addresses that had no manifest.

    `looked_ns`: when every folder was last looked at, in ns since the epoch; 0: never.
    """

    files: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    looked_ns: int = 0

    def is_fresh(self) -> bool:
        """Whether folders need not be looked at. A clock that goes back makes it old."""
        return 0 <= time.time_ns() - self.looked_ns < LOOK_AGAIN_NS

    def after_look(self, named: Collection[str], present: Collection[str]) -> "Cursor":
        """Return the cursor after every folder was looked at just now. `present`: addresses with a manifest."""
        return replace(self, waiting=frozenset(a for a in named if a not in present), looked_ns=time.time_ns())


def read_news(store: Store, cursor: Cursor) -> tuple[set[str], Cursor] | None:
    """Return addresses that the log has named since the cursor, and the cursor after them; None without a whole log.

    It comes before folders are looked at, so that nothing is committed between the two unseen.
    """
    if not store.storage.is_local:
        return None  # a bucket lists its manifests by pages; its folders have no times
    try:
        if not is_made(store):
            return None
        names = entry_names(store.storage)  # before segments: what is folded in between is in one of them
        entries = read_entries(store.storage, [name for name in names if name not in cursor.files])
        sizes = segment_sizes(store.storage)
        fresh = [open_segment(store.storage, name, sizes[name]) for name in sizes if name not in cursor.files]
        addresses = {entry.address for entry in entries}
        for segment in fresh:
            addresses.update(segment.rows()["address"].unique())
    except (DamagedLogError, FileNotFoundError) as error:  # FileNotFoundError: another process merges segments
        log.warning("the ledger looks at every folder: %s", error)
        return None
    return addresses, replace(cursor, files=frozenset((*names, *sizes)))
