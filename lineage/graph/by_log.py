"""The lineage tables of a bucket as the commit log says what is new and what is gone: no query lists the root.

    tables = present_tables(store)

A listing of a bucket takes a request for each thousand files, data files included. The log takes two listings, and a read for
each manifest that is new. The root is listed the first time and once a day, because the log does not know what somebody copied
or deleted by hand, or what a rule of the bucket deleted. A local root is listed each time.
"""

import logging
import time
from dataclasses import replace

import polars as pl

from lineage.artifact.store import Store
from lineage.commit_log.entries import DamagedLogError
from lineage.commit_log.news import Cursor, News, read_entries_alone, read_news
from lineage.graph.edges import (
    SEEN_SCHEMA,
    LineageTables,
    Saved,
    lineage_tables,
    merged,
    read_manifests,
    read_saved,
    save_if_allowed,
)
from lineage.graph.scan import open_log

log = logging.getLogger(__name__)

LOOK_AGAIN_NS = 86_400 * 10**9
"""After this long the whole root is listed again."""
FEW = 16
"""Fewer new manifests are read again by the next query: that costs no more than another file to read for all later ones."""
SMALL = 4_096
"""Tables with fewer artifacts are saved after any news."""


def present_tables(store: Store) -> LineageTables:
    """Return the tables of the manifests that are there: of a bucket by the commit log, of a local root by a listing.

    Raises: ValueError naming a manifest that was edited, or a file of the commit log that cannot be read.
    """
    if store.storage.is_local:
        return lineage_tables(store)
    saved = read_saved(store)
    cursor = None if saved is None else _cursor(saved.tables.seen)
    if saved is None or cursor is None or not 0 <= time.time_ns() - cursor.looked_ns < LOOK_AGAIN_NS:
        return _by_listing(store)
    try:
        news = read_news(store.storage, cursor.files)
    except FileNotFoundError:  # another process merges segments
        return _by_listing(store)
    return _updated(store, saved, cursor, news)


def _by_listing(store: Store) -> LineageTables:
    """Return the tables by a listing of the root, and save with them where the log was read to before it."""
    try:
        open_log(store)
        news = read_entries_alone(store.storage)
    except DamagedLogError as error:
        log.warning("%s; until then every query lists the root", error)
        return lineage_tables(store)
    looked_ns = time.time_ns()
    return lineage_tables(store, seen_of=lambda tables: _seen(news.at_first(set(tables.artifacts["address"]), looked_ns)))


def _updated(store: Store, saved: Saved, cursor: Cursor, news: News) -> LineageTables:
    old = saved.tables
    addresses = news.to_read(set(old.artifacts["address"]), cursor.waiting)
    if not addresses and news.files == cursor.files:
        return old
    fresh = read_manifests(store, dict.fromkeys(sorted(addresses), ""))
    out = pl.Series(sorted(addresses), dtype=pl.String).implode()
    before = _rows(old.artifacts.filter(pl.col("address").is_in(out)))
    ahead = news.after(cursor, before, _rows(fresh.artifacts))
    tables = replace(merged(old, fresh, addresses), seen=_seen(ahead))
    if len(addresses) >= FEW or tables.artifacts.height < SMALL:
        save_if_allowed(store, tables, saved, fresh, addresses)
    return tables


def _rows(artifacts: pl.DataFrame) -> dict[str, object]:
    """Address -> all that the table says of a manifest, but for the stamp, which only a listing gives."""
    return {row[0]: row for row in artifacts.drop("stamp").iter_rows()}


def _seen(cursor: Cursor) -> pl.DataFrame:
    rows = [("file", name) for name in sorted(cursor.files)] + [("waiting", address) for address in sorted(cursor.waiting)]
    return pl.DataFrame([*rows, ("looked", str(cursor.looked_ns))], schema=SEEN_SCHEMA, orient="row")


def _cursor(seen: pl.DataFrame) -> Cursor | None:
    """Return the cursor that was saved; None if the tables were saved without one, or if somebody wrote another one."""
    names = {what: frozenset(seen.filter(what=what)["name"]) for what in ("file", "waiting", "looked")}
    looked = next(iter(names["looked"]), "")
    if len(names["looked"]) != 1 or not looked.isascii() or not looked.isdigit():
        return None
    return Cursor(names["file"], names["waiting"], int(looked))
