"""Lineage as two tables: `artifacts` with a row for each manifest, and `edges` with a row for each input.

    tables = lineage_tables(store)                    # reads only manifests that are new or changed since the last time

Manifests are authoritative. The tables are a cache, updated by queries (docs/design/lineage_edges.md says why not at the
commit). One listing shows which manifests are new, changed or gone; others are not opened again. `lineage.graph.check_tables`
compares tables and manifests in full.
"""

import errno
import io
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import batched
from multiprocessing import get_context
from typing import Any

import polars as pl

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, from_json
from lineage.artifact.store import Artifact, Store
from lineage.graph.table_file import packed, unpacked
from lineage.graph.table_parts import Part, add_part, applied, read_parts
from lineage.progress import track

log = logging.getLogger(__name__)

FOLDER = ".lineage"
"""Below the store's root; a key part cannot start with a dot, so no artifact lies there."""
TABLES_FILE = f"{FOLDER}/tables.arrays"
CHANGES = f"{FOLDER}/tables"
"""Folder of what changed since that file was written (`lineage.graph.table_parts`)."""
CHUNK = 4_096
"""Number of manifests that one process reads at a time; fewer are read in this process."""

ARTIFACTS_SCHEMA = {
    "address": pl.String,
    "name": pl.String,
    "stage": pl.String,
    "stage_version": pl.String,
    "code_fingerprint": pl.String,
    "data_version": pl.String,
    "created": pl.String,
    "run_id": pl.String,
    "wall_seconds": pl.Float64,
    "cpu_seconds": pl.Float64,
    "peak_rss_bytes": pl.Int64,
    "num_files": pl.Int64,
    "num_bytes": pl.Int64,
    "process": pl.String,
    "step": pl.Int64,
    "stamp": pl.String,
}
"""`address` is the key. `process` is equal for artifacts that one job saves on its way (the checkpoints of a run, which differ
in `step`; -1 for a stage without steps). Their seconds count from the start of the job."""

EDGES_SCHEMA = {
    "child": pl.String,
    "input": pl.String,
    "parent": pl.String,
    "parent_data_version": pl.String,
    "child_name": pl.String,
    "child_stage": pl.String,
    "parent_name": pl.String,
}
"""`child` and `parent` are addresses; (child, input) is the key."""
SEEN_SCHEMA = {"what": pl.String, "name": pl.String}
"""How far the commit log was read when the tables were saved (`lineage.graph.by_log`). A listing leaves it as it is."""
SCHEMAS = {"artifacts": ARTIFACTS_SCHEMA, "edges": EDGES_SCHEMA, "seen": SEEN_SCHEMA}


@dataclass(frozen=True)
class LineageTables:
    """`artifacts` (ARTIFACTS_SCHEMA) and `edges` (EDGES_SCHEMA), both sorted by key; `seen` (SEEN_SCHEMA)."""

    artifacts: pl.DataFrame
    edges: pl.DataFrame
    seen: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=SEEN_SCHEMA))


def lineage_tables(
    store: Store, *, save: bool = True, seen_of: Callable[[LineageTables], pl.DataFrame] | None = None
) -> LineageTables:
    """Return the tables of the store's present manifests: saved tables are updated, and what changed is saved.

    `seen_of` gives the `seen` to save with them. Without permission to write to the root, the tables are returned and a warning
    is logged.
    Raises: ValueError naming a manifest that was edited (see `lineage.artifact.manifest.from_json`).
    """
    saved = read_saved(store)
    old = None if saved is None else saved.tables
    stamps = store.storage.stamps(MANIFEST_NAME)
    old_stamps = {} if old is None else dict(old.artifacts.select("address", "stamp").iter_rows())
    current = {address.removesuffix(f"/{MANIFEST_NAME}"): stamp for address, stamp in stamps.items()}
    fresh = [address for address, stamp in current.items() if old_stamps.get(address) != stamp]
    gone = old_stamps.keys() - current.keys()
    if old is not None and not fresh and not gone and seen_of is None:
        return old
    new = read_manifests(store, {address: current[address] for address in fresh})
    replaced = gone | set(fresh)
    tables = new if old is None else merged(old, new, replaced)
    if fresh or gone:
        log.info("lineage tables of %s: read %d manifests, %d are gone", store.root, new.artifacts.height, len(gone))
    if seen_of is not None and tables.artifacts.height:
        tables = replace(tables, seen=seen_of(tables))
    if save and (stamps or old is not None):  # nothing is written to an empty root
        save_if_allowed(store, tables, saved, new, replaced)
    return tables


@dataclass(frozen=True)
class Saved:
    """The tables that were saved: the rows of their file, and the changes since, which `tables` has too."""

    tables: LineageTables
    rows: int
    parts: Sequence[Part]


def read_saved(store: Store) -> Saved | None:
    """Return what was saved, or None if there is nothing or if a file of it is damaged, which a warning says."""
    data = store.storage.read_bytes(TABLES_FILE)
    if data is None:
        return None
    try:
        frames = unpacked(data, SCHEMAS, store.storage.uri(TABLES_FILE))
        parts = read_parts(store.storage, CHANGES, SCHEMAS)
    except ValueError as error:
        log.warning("%s; the tables are made again from the manifests", error)
        return None
    rows = frames["artifacts"].height
    for part in parts:
        frames = applied(frames, part)
    tables = LineageTables(**frames)
    if parts:  # the file's rows are sorted
        tables = replace(_sorted(tables.artifacts, tables.edges), seen=tables.seen)
    return Saved(tables, rows, parts)


def read_tables(store: Store) -> LineageTables | None:
    """Return the saved tables, or None if there are none or if a file of them is damaged, which a warning says."""
    saved = read_saved(store)
    return None if saved is None else saved.tables


def save_tables(store: Store, tables: LineageTables) -> None:
    """Write the tables whole, and delete the changes, which they have."""
    store.storage.replace(TABLES_FILE, packed({name: getattr(tables, name) for name in SCHEMAS}))
    for name in store.storage.records(CHANGES):
        store.storage.delete(f"{CHANGES}/{name}")


def rebuild_tables(store: Store) -> LineageTables:
    """Make the tables again from manifests, without the saved ones."""
    store.storage.delete(TABLES_FILE)  # without it the changes are not read, and the next save deletes them
    return lineage_tables(store)


def read_manifests(store: Store, stamps: Mapping[str, str]) -> LineageTables:
    """Return the tables of the manifests at some addresses (address -> stamp), without those that are deleted meanwhile.

    Parsing a local manifest takes 0.4 ms, so many are read by one process for each processor.
    Raises: what `lineage.artifact.manifest.from_json` raises.
    """
    chunks = [dict(chunk) for chunk in batched(stamps.items(), CHUNK)]
    if len(chunks) <= 1 or not store.storage.is_local:
        parts = [_read_chunk(store, chunk) for chunk in chunks]
    else:
        with ProcessPoolExecutor(min(len(chunks), os.cpu_count() or 1), mp_context=get_context("forkserver")) as pool:
            readings = pool.map(partial(_read_chunk, store), chunks)
            parts = list(track(readings, f"reading {len(stamps):,} manifests", len(chunks)))
    artifacts, edges = ([pl.read_ipc(part[i]) for part in parts] for i in (0, 1))
    return _sorted(
        pl.concat([pl.DataFrame(schema=ARTIFACTS_SCHEMA), *artifacts]), pl.concat([pl.DataFrame(schema=EDGES_SCHEMA), *edges])
    )


def tables_of(rows: Sequence[tuple[str, Manifest, str]]) -> LineageTables:
    """Return the tables of (address, manifest, stamp) triples."""
    return _sorted(
        pl.DataFrame([artifact_row(*triple) for triple in rows], schema=ARTIFACTS_SCHEMA, orient="row"),
        pl.DataFrame([row for a, m, _ in rows for row in edge_rows(a, m)], schema=EDGES_SCHEMA, orient="row"),
    )


def _read_chunk(store: Store, stamps: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Return both tables of some manifests as Arrow, which is ten times as fast as tuples between processes."""

    def read(address: str) -> Manifest | None:
        where = f"{address}/{MANIFEST_NAME}"
        text = store.storage.read_text(where)
        return None if text is None else from_json(text, store.storage.uri(where))

    manifests = store.storage.read_each(read, stamps)
    rows = [(a, m, stamp) for (a, stamp), m in zip(stamps.items(), manifests, strict=True) if m is not None]
    tables = tables_of(rows)
    sinks = io.BytesIO(), io.BytesIO()
    tables.artifacts.write_ipc(sinks[0])
    tables.edges.write_ipc(sinks[1])
    return sinks[0].getvalue(), sinks[1].getvalue()


def artifact_row(address: str, manifest: Manifest, stamp: str) -> tuple[Any, ...]:
    """Return the row of an artifact (ARTIFACTS_SCHEMA)."""
    spec, use = manifest.spec, manifest.resources
    return (
        address,
        spec.name,
        spec.stage,
        spec.stage_version,
        manifest.code_fingerprint,
        manifest.data_version,
        manifest.created,
        manifest.run_id,
        use.wall_seconds,
        use.cpu_seconds,
        use.peak_rss_bytes,
        len(manifest.files),
        sum(entry.bytes for entry in manifest.files),
        spec.process,
        int(spec.config.get("step", -1)),
        stamp,
    )


def edge_rows(address: str, manifest: Manifest) -> list[tuple[str, ...]]:
    """Return the rows of EDGES_SCHEMA, one an input."""
    spec = manifest.spec
    return [
        (address, ref.name, ref.address, ref.data_version, spec.name, spec.stage, _input_name(ref.key, ref.partition))
        for ref in spec.inputs
    ]


def _input_name(key: tuple[str, ...], partition: str | None) -> str:
    return "/".join(key) + (f"[{partition}]" if partition else "")


def merged(old: LineageTables, new: LineageTables, replaced: set[str]) -> LineageTables:
    """Return the old tables with the new rows, or none, for the replaced addresses."""
    out = pl.Series(sorted(replaced), dtype=pl.String).implode()
    tables = _sorted(
        pl.concat([old.artifacts.filter(~pl.col("address").is_in(out)), new.artifacts]),
        pl.concat([old.edges.filter(~pl.col("child").is_in(out)), new.edges]),
    )
    return replace(tables, seen=old.seen)


def _sorted(artifacts: pl.DataFrame, edges: pl.DataFrame) -> LineageTables:
    return LineageTables(artifacts.sort("address"), edges.sort("child", "input"))


def save_if_allowed(
    store: Store,
    tables: LineageTables,
    saved: Saved | None = None,
    new: LineageTables | None = None,
    replaced: Collection[str] = (),
) -> None:
    """Save tables whole, or only the `new` rows of the `replaced` addresses beside what is `saved`.

    If this process may not write, a warning says so.
    """
    try:
        if saved is not None and new is not None:
            news = {"artifacts": new.artifacts, "edges": new.edges, "seen": tables.seen}
            if add_part(store.storage, CHANGES, saved.parts, news, replaced, saved.rows):
                return
        save_tables(store, tables)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        log.warning("the lineage tables of %s cannot be saved (%s); every query reads the manifests again", store.root, error)


def open_all(store: Store, addresses: list[str]) -> list[Artifact]:
    """Open the artifacts of a walk in its order. Raises: ValueError naming one that is gone."""

    def opened(address: str) -> Artifact:
        artifact = store.open(address)
        if artifact is None:
            raise ValueError(f"{address} is in the lineage tables of {store.root} and not on storage any more; ask again")
        return artifact

    return store.storage.read_each(opened, addresses)
