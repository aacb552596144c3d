"""The tables that come from manifests. They are kept as Parquet below the store's root, and only what changed is updated.

Manifests are authoritative; the files are a cache and may be deleted at any time.
"""

import io
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import batched
from multiprocessing import get_context
from typing import Any

import polars as pl

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, from_json
from lineage.artifact.store import Store
from lineage.commit_log.news import Cursor
from lineage.storage.digests import identity_digest
from lineage.strangers import json_object
from operations.ledger.manifests import rows_of
from operations.ledger.news import after_look, is_fresh, look_at_bucket, read_news
from operations.ledger.schema import FROM_MANIFESTS, KEYS, VERSION
from operations.ledger.stamps import NEVER, Stamps, look, look_at

FOLDER = ".operations/ledger"
CURSOR = f"{FOLDER}/cursor.json"
FOLDERS = {"folder": pl.String, "changed": pl.Int64}
CHUNK = 2_048
"""Manifests that one process reads at a time; fewer are read in this process."""
READERS = 16

type Tables = dict[str, pl.DataFrame]


def update_tables(store: Store) -> tuple[Tables, dict[str, str]]:
    """Return the tables of the present manifests, and address -> reason of each manifest that cannot be read.

    A bad manifest does not stop the tables of the others.
    """
    saved, before, bad, cursor = _load(store)
    now, ahead = _look(store, before, cursor)
    fresh = {a: stamp for a, stamp in now.manifests.items() if before.manifests.get(a) != stamp}
    gone = (before.manifests.keys() - now.manifests.keys()) | fresh.keys()
    bad = {address: why for address, why in bad.items() if address not in gone}
    if fresh or gone:
        fresh_rows, unread = _read_all(store, fresh)
        bad |= unread
        saved = {name: _merged(name, table, fresh_rows[name], gone) for name, table in saved.items()}
    if fresh or gone or now.folders != before.folders or ahead != cursor:
        _save(store, saved, now, bad, ahead, has_tables=bool(fresh or gone), has_folders=now.folders != before.folders)
    return saved, bad


def _look(store: Store, stamps: Stamps, cursor: Cursor) -> tuple[Stamps, Cursor]:
    """Return what exists now: by the commit log if folders were looked at lately, else by a look at every folder."""
    if not store.storage.is_local:
        return look_at_bucket(store, stamps, cursor)
    news = read_news(store, cursor)
    if news is None:
        return look(store, stamps), Cursor()
    named, ahead = news[0] | cursor.waiting, news[1]
    if is_fresh(cursor):
        now, missing = look_at(store.root, stamps, named)
        return now, replace(ahead, waiting=missing)
    now = look(store, stamps)
    return now, after_look(ahead, named, now.manifests)


def _merged(name: str, table: pl.DataFrame, new: pl.DataFrame, gone: set[str]) -> pl.DataFrame:
    if not table.height or not gone:
        return pl.concat([table, new])
    out = pl.Series(list(gone), dtype=pl.String).implode()
    return pl.concat([table.filter(~pl.col(KEYS[name]).is_in(out)), new])


def _load(store: Store) -> tuple[Tables, Stamps, dict[str, str], Cursor]:
    names = [*FROM_MANIFESTS, "folders", "unreadable"]
    loaded: dict[str, pl.DataFrame] = {}
    ids = set()
    for name in names:
        data = store.storage.read_bytes(f"{FOLDER}/{name}.parquet")
        if data is None:
            break
        table = pl.read_parquet(io.BytesIO(data))
        ids.add(pl.read_parquet_metadata(io.BytesIO(data)).get("marin.snapshot" if name in FROM_MANIFESTS else "marin.version"))
        loaded[name] = table
    whole = len(loaded) == len(names) and len(ids) == 2 and VERSION in ids
    if not whole or any(dict(loaded[n].schema) != dict(pl.Schema(s)) for n, s in FROM_MANIFESTS.items()):
        return {name: pl.DataFrame(schema=schema) for name, schema in FROM_MANIFESTS.items()}, Stamps(), {}, Cursor()
    bad = {address: why for address, why, _ in loaded["unreadable"].iter_rows()}
    stamps = dict(loaded["artifacts"].select("address", "stamp").iter_rows())
    stamps |= {address: stamp for address, _, stamp in loaded["unreadable"].iter_rows()}
    saved = Stamps(stamps, dict(loaded["folders"].iter_rows()))
    return {name: loaded[name] for name in FROM_MANIFESTS}, saved, bad, _load_cursor(store, _snapshot(loaded["artifacts"]))


def _load_cursor(store: Store, snapshot: str) -> Cursor:
    """Return the cursor that was saved with these tables; that of other tables would hide what they lack."""
    text = store.storage.read_text(CURSOR)
    record = {} if text is None else json_object(text, store.storage.uri(CURSOR))
    if record.get("snapshot") != snapshot:
        return Cursor()
    return Cursor(frozenset(record["files"]), frozenset(record["waiting"]), record["looked_ns"])


def _snapshot(artifacts: pl.DataFrame) -> str:
    return identity_digest([artifacts.height, int(artifacts["stamp"].hash().sum() or 0), VERSION])


def _save(
    store: Store,
    tables: Tables,
    stamps: Stamps,
    bad: Mapping[str, str],
    cursor: Cursor,
    *,
    has_tables: bool,
    has_folders: bool,
) -> None:
    """Write what changed, the cursor last: after a kill before it, the news is read again."""
    if not stamps.manifests and not tables["artifacts"].height and not bad:
        return  # nothing is written to an empty root
    rows = [(address, why, stamps.manifests[address]) for address, why in bad.items() if address in stamps.manifests]
    unreadable = pl.DataFrame(rows, schema={"address": pl.String, "why": pl.String, "stamp": pl.String}, orient="row")
    snapshot = _snapshot(tables["artifacts"])
    if has_tables:
        for name, table in tables.items():
            _write(store, name, table, {"marin.snapshot": snapshot})
    if has_tables or has_folders:
        _write(store, "unreadable", unreadable, {"marin.version": VERSION})
    if has_folders or store.storage.read_bytes(f"{FOLDER}/folders.parquet") is None:
        folders = pl.DataFrame(list(stamps.folders.items()) or [("", NEVER)], schema=FOLDERS, orient="row")
        _write(store, "folders", folders, {"marin.version": VERSION})
    place = {"snapshot": snapshot, "files": sorted(cursor.files), "waiting": sorted(cursor.waiting)}
    store.storage.replace(CURSOR, json.dumps(place | {"looked_ns": cursor.looked_ns}).encode())


def _write(store: Store, name: str, table: pl.DataFrame, metadata: dict[str, str]) -> None:
    sink = io.BytesIO()
    table.write_parquet(sink, compression="lz4", metadata=metadata, statistics=False)
    store.storage.replace(f"{FOLDER}/{name}.parquet", sink.getvalue())


def _read_all(store: Store, stamps: Mapping[str, str]) -> tuple[Tables, dict[str, str]]:
    chunks = [dict(chunk) for chunk in batched(stamps.items(), CHUNK)]
    if len(chunks) <= 1 or not store.storage.is_local:
        parts = [_read_chunk(store, chunk) for chunk in chunks]
    else:
        with ProcessPoolExecutor(min(len(chunks), os.cpu_count() or 1), mp_context=get_context("forkserver")) as pool:
            parts = list(pool.map(partial(_read_chunk, store), chunks))
    tables = {
        name: pl.concat([pl.DataFrame(schema=schema), *(pl.read_ipc(io.BytesIO(part[0][name])) for part in parts)])
        for name, schema in FROM_MANIFESTS.items()
    }
    return tables, {address: why for part in parts for address, why in part[1].items()}


def _read_chunk(store: Store, stamps: Mapping[str, str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the tables of some manifests as Arrow, which is ten times as fast as tuples between processes."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in FROM_MANIFESTS}
    bad: dict[str, str] = {}
    for address, manifest in _manifests(store, list(stamps)):
        try:
            if isinstance(manifest, Exception):
                raise manifest
            if manifest is not None:
                of_manifest = rows_of(address, manifest, stamps[address])
                _check_integers(of_manifest)
                for name, new in of_manifest.items():
                    rows[name] += new
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            bad[address] = f"{type(error).__name__}: {error}"[:500]
    out = {}
    for name, schema in FROM_MANIFESTS.items():
        sink = io.BytesIO()
        pl.DataFrame(rows[name], schema=schema, orient="row").write_ipc(sink)
        out[name] = sink.getvalue()
    return out, bad


def _check_integers(rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
    """Refuse a number that fits no column, so that one manifest does not stop the tables of the others. Raises: ValueError."""
    for name, of_table in rows.items():
        for value in (value for row in of_table for value in row):
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(f"table {name}: {value} does not fit into 64 bits")


def _manifests(store: Store, addresses: Sequence[str]) -> list[tuple[str, Manifest | Exception | None]]:
    def read(address: str) -> tuple[str, Manifest | Exception | None]:
        where = f"{address}/{MANIFEST_NAME}"
        try:
            text = store.storage.read_text(where)
            return address, None if text is None else from_json(text, store.storage.uri(where))
        except ValueError as error:
            return address, error

    if store.storage.is_local:  # parsing dominates, and threads do not speed it up
        return [read(address) for address in addresses]
    with ThreadPoolExecutor(READERS, thread_name_prefix="manifests") as pool:
        return list(pool.map(read, addresses))
