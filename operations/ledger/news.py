"""Which addresses may have a new manifest, by the commit log, so that an update does not look into every folder.

The log names each commit and each deletion of this code. What somebody copies or deletes by hand it does not name. So every
folder of a local root is looked at again after LOOK_AGAIN_NS, and a bucket is listed once a day.
"""

import logging
import time
from collections.abc import Collection
from dataclasses import replace

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Store
from lineage.commit_log import news
from lineage.commit_log.entries import DamagedLogError
from lineage.commit_log.news import Cursor
from lineage.graph.by_log import LOOK_AGAIN_NS as LIST_AGAIN_NS
from lineage.graph.scan import is_made
from operations.ledger.stamps import Stamps, look

log = logging.getLogger(__name__)

LOOK_AGAIN_NS = 600 * 10**9


def is_fresh(cursor: Cursor, again_ns: int = LOOK_AGAIN_NS) -> bool:
    """Whether the root need not be looked at. A clock that goes back makes a cursor old."""
    return 0 <= time.time_ns() - cursor.looked_ns < again_ns


def after_look(cursor: Cursor, named: Collection[str], present: Collection[str]) -> Cursor:
    """Return the cursor after every folder was looked at just now. `present`: addresses with a manifest."""
    return replace(cursor, waiting=frozenset(a for a in named if a not in present), looked_ns=time.time_ns())


def read_news(store: Store, cursor: Cursor) -> tuple[set[str], Cursor] | None:
    """Return addresses that the log has named since the cursor, and the cursor after them; None without a whole log.

    It comes before folders are looked at, so that nothing is committed between the two unseen.
    """
    try:
        if not is_made(store):
            return None
        new = news.read_news(store.storage, cursor.files)
    except (DamagedLogError, FileNotFoundError) as error:  # FileNotFoundError: another process merges segments
        log.warning("the ledger looks at every folder: %s", error)
        return None
    return {*new.commits, *new.changes, *new.folded}, replace(cursor, files=new.files)


def look_at_bucket(store: Store, before: Stamps, cursor: Cursor) -> tuple[Stamps, Cursor]:
    """Return what is on a bucket now, and the cursor after it: by the log, or by a listing of the root once a day."""
    try:
        if not is_made(store):
            return look(store, before), Cursor()
        if not is_fresh(cursor, LIST_AGAIN_NS):
            new, looked_ns = news.read_entries_alone(store.storage), time.time_ns()
            listed = look(store, before)
            return Stamps(listed.manifests, before.folders), new.at_first(listed.manifests, looked_ns)
        new = news.read_news(store.storage, cursor.files)
        addresses = sorted(new.to_read(before.manifests, cursor.waiting))
    except (DamagedLogError, FileNotFoundError) as error:
        log.warning("the ledger lists the root: %s", error)
        return look(store, before), Cursor()
    news_of = frozenset(addresses)
    stamps = store.storage.read_each(lambda address: _stamp(store, address), addresses)
    now = {address: stamp for address, stamp in zip(addresses, stamps, strict=True) if stamp is not None}
    unchanged = {address: stamp for address, stamp in before.manifests.items() if address not in news_of}
    read_before = {address: before.manifests[address] for address in addresses if address in before.manifests}
    return Stamps(unchanged | now, before.folders), new.after(cursor, read_before, now)


def _stamp(store: Store, address: str) -> str | None:
    """Return the stamp of a manifest on a bucket as a listing of the root gives it; None if there is none."""
    facts = store.storage.files.listing(address, MANIFEST_NAME).get(f"{address}/{MANIFEST_NAME}")
    return None if facts is None else facts.stamp
