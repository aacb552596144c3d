"""Make the commit log of a store from its manifests: on first use, and as the repair of a log that lacks some.

A manifest has no rows in the log if an older checkout committed it, if it was copied by hand, or if somebody deleted files of
the log. `./marin lineage --check` names it and `--rebuild` comes here.
"""

import errno
import json
import logging
from collections.abc import Mapping
from itertools import batched

import polars as pl

from lineage.artifact.manifest import MANIFEST_NAME, Manifest
from lineage.artifact.store import Store
from lineage.commit_log.compact import FOLD_AT, fold, merge
from lineage.commit_log.entries import FOLDER as ENTRIES
from lineage.commit_log.entries import DamagedLogError, Entry, delete_entries, read_entries
from lineage.commit_log.keys import data_key, keys_of, stage_key
from lineage.commit_log.reader import CommitLog, rows_of
from lineage.commit_log.segments import FOLDER as SEGMENTS
from lineage.commit_log.segments import MAX_ROWS, ROWS_SCHEMA, delete_segments, write_segments
from lineage.graph.edges import LineageTables, read_manifests

log = logging.getLogger(__name__)

MARKER = ".lineage/log.json"
"""Says that the log holds every manifest that was there when it was made; commits since have added their own."""
FORMAT = 2
"""A log of format 1 has no rows for a stage of any version. The next question makes it again."""
BATCH = 1 << 16
"""Manifests whose rows are held in memory at once."""


def open_log(store: Store) -> CommitLog:
    """Return the commit log of a store. It is made first if there is none, and compacted if it has many entries.

    Where this process may not write, the log stays as it is, and without one every manifest is read.
    Raises: DamagedLogError; ValueError naming a manifest that was edited.
    """
    if not is_made(store):
        return make_log(store)
    opened = CommitLog(store.storage)
    opened.refresh()
    if len(opened.entries) >= FOLD_AT:
        try:
            fold(store.storage, opened.entries)
            merge(store.storage)
        except Exception as error:
            _allow_refusal(store, error)
            return opened
        opened.refresh()
    return opened


def make_log(store: Store) -> CommitLog:
    """Add the rows of every manifest to the log, by one listing of the root; nothing is taken away.

    The rows are kept in memory where this process may not write.
    """
    stamps = store.storage.stamps(MANIFEST_NAME)
    rows, is_refused = pl.DataFrame(schema=ROWS_SCHEMA), not stamps  # nothing is written to an empty root
    for batch in batched(stamps.items(), BATCH):
        tables = read_manifests(store, {where.removesuffix(f"/{MANIFEST_NAME}"): stamp for where, stamp in batch})
        rows = pl.concat([rows, rows_of_tables(tables)])
        if rows.height >= MAX_ROWS and not is_refused:
            is_refused = not _written(store, rows)
            rows = rows if is_refused else rows.clear()
    if is_refused or not _written(store, rows):
        return CommitLog(store.storage, besides=rows)
    store.storage.replace(MARKER, _marker(FORMAT).encode())
    log.info("commit log of %s: made from %d manifests", store.root, len(stamps))
    return CommitLog(store.storage)


def rebuild_log(store: Store) -> None:
    """Make the log again, whatever state it is in: rows of artifacts that are gone and damaged files are dropped.

    A commit that is under way keeps its rows if it has an entry. One that a segment holds already, and whose manifest
    appears after the listing, loses them; `./marin lineage --check` would name it.
    """
    entries, segments = _whole_files(store, ENTRIES), _whole_files(store, SEGMENTS)
    rows = _readable_entries(store, entries)
    if make_log(store).besides is None:
        write_segments(store.storage, rows)
        delete_segments(store.storage, segments)
        delete_entries(store.storage, entries)
        merge(store.storage)


def unlogged(store: Store, manifests: Mapping[str, Manifest]) -> list[str]:
    """Return the addresses of manifests that the log does not find by each of their keys; none where there is no log."""
    if not is_made(store):
        return []
    keys = {address: keys_of(manifest) for address, manifest in manifests.items()}
    logged = CommitLog(store.storage).find({key for each in keys.values() for key in each})
    pairs = {(key, address) for key, addresses in logged.items() for address in addresses}
    return sorted(address for address, each in keys.items() if not pairs.issuperset((key, address) for key in each))


def rows_of_tables(tables: LineageTables) -> pl.DataFrame:
    """Return the rows (ROWS_SCHEMA) of every artifact in some tables, as `keys_of` gives them for each manifest."""
    own = [(data_key((n, d)), a) for a, n, d in tables.artifacts.select("address", "name", "data_version").iter_rows()]
    stages = list(tables.artifacts.select("address", "stage", "stage_version").iter_rows())
    by = [(key, a) for a, stage, version in stages for key in (stage_key(stage), stage_key(stage, version))]
    edges = tables.edges.select("child", "parent_name", "parent_data_version").iter_rows()
    read = [(data_key((n, d)), a) for a, n, d in edges]
    return pl.DataFrame([*own, *by, *read], schema=ROWS_SCHEMA, orient="row")


def is_made(store: Store) -> bool:
    """Whether the log holds every manifest that a root had. Raises: DamagedLogError for a marker that says something else."""
    text = store.storage.read_text(MARKER)
    if text is not None and text not in (_marker(1), _marker(FORMAT)):
        raise DamagedLogError(store.storage.uri(MARKER), f"it holds {text[:80]!r}; this checkout reads {_marker(FORMAT)!r}")
    return text == _marker(FORMAT)


def _whole_files(store: Store, folder: str) -> list[str]:
    """Return the names of files in a folder, also strange ones; those that begin with a dot are being written."""
    return [name for name in store.storage.sizes(folder) if not name.startswith(".")]


def _marker(number: int) -> str:
    return json.dumps({"format": number}) + "\n"


def _readable_entries(store: Store, names: list[str]) -> pl.DataFrame:
    """Return the rows of entries; damaged ones are dropped, and a warning names them."""

    def read(name: str) -> list[Entry]:
        try:
            return read_entries(store.storage, [name])
        except DamagedLogError as error:
            log.warning("dropped: %s", error)
            return []

    return rows_of([entry for each in store.storage.read_each(read, names) for entry in each])


def _written(store: Store, rows: pl.DataFrame) -> bool:
    try:
        write_segments(store.storage, rows)
    except Exception as error:
        _allow_refusal(store, error)
        return False
    return True


def _allow_refusal(store: Store, error: Exception) -> None:
    """Warn about a write that this process has no right to; any other error is raised again."""
    is_refused = isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    if not is_refused and getattr(error, "code", None) != 403:  # Google's Forbidden; its client is optional
        raise error
    log.warning("the commit log of %s cannot be written (%s); every query reads the manifests again", store.root, error)
