"""The rows of `duplicates.parquet`: every document of a cluster, from copies and matches given as document numbers.

Both come as files. Two shuffles make the rows, and a third brings them to the parts of the documents, so no process has
all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.band_join import Spilled, contains
from datakit.dedup.numbered import Numbered
from datakit.dedup.scope_parts import NO_DOCUMENT, ScopePart
from datakit.documents.parts import ROW_GROUP_ROWS, writing_part
from datakit.documents.schemas import CLUSTERS_FOLDER, CLUSTERS_SCHEMA
from datakit.text.arrays import load
from lineage.tables.ranges import sorted_by
from lineage.tables.shuffle import Part, Shuffle, TableEngine, grouped, range_count, tasks_of
from lineage.writing.writer import Writer

SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("id", pa.string()),
        ("cluster_id", pa.string()),
        ("kind", pa.string()),
        ("is_kept", pa.bool_()),
        ("matched_id", pa.string()),
        ("jaccard", pa.float64()),
    ]
)
SLICE_ROWS = 16 * ROW_GROUP_ROWS


COPY_BYTES, ROW_BYTES = 16, 72
"""A copy and the first of its text; a row of the result with its keys, while it is sorted."""
NEAR, KEPT = 1, 2
"""Flags of a row."""
CLUSTER_COLUMNS = ("number", "kept_high", "kept_low", "flags")
"""What a part's reader needs of its documents."""


def cluster_parts(
    out: Writer, engine: TableEngine, spilled: Spilled, copies: Numbered, matches: Sequence[Part]
) -> tuple[Part, ...]:
    """Return one row for each document that has a copy or a match, in parts that follow the order of the table.

    If a document is removed as a near-duplicate, its exact copies are removed for the same kept document. So the rows of
    one text meet first, and are then sorted by the id that their cluster keeps. `matches`: what the ranges of walks gave.
    """
    size = copies.rows * COPY_BYTES + sum(part.bytes for part in matches)
    groups = grouped([*copies.paths, *matches], size)
    tasks = [([p for p in group if isinstance(p, Path)], *(p for p in group if isinstance(p, Part))) for group in groups]
    texts = engine.shuffle(out, Shuffle("texts", removal_rows, tasks, "first", rows_of_texts, range_count(size), spread=True))
    keyed = [(spilled.reading(("ids",)), *task) for task in tasks_of(texts)]
    count = range_count(ROW_BYTES * sum(part.rows for part in texts))
    return engine.shuffle(out, Shuffle("clusters", sort_keys, keyed, "kept_high", in_table_order, count))


def removal_rows(files: Sequence[Path], *matches: pa.Table) -> pa.Table:
    """Return what files of copies and tables of matches say about documents: `number` repeats the text of `first`, which
    repeats `kept` (`NO_DOCUMENT`: it does not) with this `jaccard`. `first` itself has a row, and so has each kept document.
    """
    columns = [_alone(values[:, 1], values[:, 0]) for values in map(load, files)]
    for found in matches:
        is_match = found["number"].to_numpy() != NO_DOCUMENT
        number, kept, jaccard = (found[name].to_numpy()[is_match] for name in ("number", "kept", "jaccard"))
        columns += [(number, number, kept, jaccard), _alone(kept, kept)]
    first, number, kept, jaccard = map(np.concatenate, zip(*columns, strict=True))
    return pa.table({"first": first, "number": number, "kept": kept, "jaccard": jaccard})


def rows_of_texts(rows: pa.Table) -> pa.Table:
    """Return `number`, `cluster` (the number of the kept document), `flags` and `jaccard` of the documents of some texts."""
    first, number, kept, jaccard = (rows[name].to_numpy() for name in ("first", "number", "kept", "jaccard"))
    is_match, is_copy = kept != NO_DOCUMENT, number != first
    copied = np.unique(first[is_copy])
    documents, places = np.unique(np.concatenate([number, first]), return_index=True)
    text = np.concatenate([first, first])[places]
    order = np.argsort(first[is_match])
    matched, kept, jaccard = (column[is_match][order] for column in (first, kept, jaccard))
    leaves = contains(matched, text)
    match = np.searchsorted(matched, text[leaves])
    cluster, similarity = text.copy(), np.ones(documents.size)
    cluster[leaves], similarity[leaves] = kept[match], jaccard[match]
    flags = NEAR * (leaves | ~contains(copied, text)) + KEPT * ((documents == text) & ~leaves)
    return pa.table({"number": documents, "cluster": cluster, "flags": flags, "jaccard": similarity})


def sort_keys(spilled: Spilled, *tables: pa.Table) -> pa.Table:
    """Return the rows with their ids and the rank of their source's name."""
    rows = pa.concat_tables(tables)
    number = rows["number"].to_numpy()
    (high, low), (kept_high, kept_low) = spilled.ids(number).T, spilled.ids(rows["cluster"].to_numpy()).T
    rank = np.unique([part.source for part in spilled.parts], return_inverse=True)[1][spilled.part_of(number)]
    keys = {"kept_high": kept_high, "kept_low": kept_low, "high": high, "low": low, "rank": rank}
    return pa.table(
        {name: np.ascontiguousarray(key) for name, key in keys.items()} | {name: rows[name] for name in rows.column_names}
    )


def in_table_order(rows: pa.Table) -> pa.Table:
    """Sort rows as the table has them: by kept id, id, and the name of the source."""
    return sorted_by(rows, "kept_high", "kept_low", "high", "low", "rank", "number")


def write_clusters(
    path: Path, tables: Iterable[pa.Table], spilled: Spilled, names: Sequence[str]
) -> tuple[int, Mapping[str, Mapping[str, int]]]:
    """Write the table, one slice at a time.

    Return the number of its clusters, and source -> its documents, and how many are removed as exact and as near
    duplicates; in the declared order.
    """
    num_clusters, removed = 0, np.zeros((2, len(names)), np.int64)
    source_of_part = np.array([names.index(part.source) for part in spilled.parts])
    with writing_part(path, SCHEMA) as out:
        for table in tables:
            num_clusters += int(np.unique(table["cluster"].to_numpy()).size)
            for start in range(0, table.num_rows, SLICE_ROWS):
                rows = table.slice(start, SLICE_ROWS)
                source = source_of_part[spilled.part_of(rows["number"].to_numpy())]
                flags = rows["flags"].to_numpy()
                for near in (0, 1):
                    leaves = (flags & KEPT == 0) & (flags & NEAR == near)
                    removed[near] += np.bincount(source[leaves], minlength=len(names))
                out.write(_cluster_table(rows, np.array(names)[source], flags))
    documents = np.bincount(source_of_part, [part.rows for part in spilled.parts], len(names)).astype(np.int64)
    counts = zip(names, documents.tolist(), *removed.tolist(), strict=True)
    return num_clusters, {name: {"documents": all_, "exact": exact, "near": near} for name, all_, exact, near in counts}


def write_part_clusters(folder: Path, spilled: Spilled, part: ScopePart, clusters: Numbered) -> dict[str, int]:
    """Write the clusters of one part's documents, and return their number."""
    number, *kept, flags = clusters.between(part.first, part.end).T
    ids = spilled.load("ids", part)[number - part.first]
    columns = [hex_ids(*ids.T), hex_ids(*(half.view(np.uint64) for half in kept)), flags & KEPT != 0]
    with writing_part(folder / CLUSTERS_FOLDER / part.source / part.name, CLUSTERS_SCHEMA) as out:
        out.write(pa.Table.from_arrays([pa.array(column) for column in columns], schema=CLUSTERS_SCHEMA))
    return {"documents": int(number.size)}


def _cluster_table(rows: pa.Table, sources: np.ndarray, flags: np.ndarray) -> pa.Table:
    ids, kept = (hex_ids(*(rows[f"{of}{half}"].to_numpy() for half in ("high", "low"))) for of in ("", "kept_"))
    kinds = np.where(flags & NEAR, "near", "exact").tolist()
    columns = [sources.tolist(), ids, kept, kinds, flags & KEPT != 0, kept, rows["jaccard"].to_numpy()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _alone(first: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return columns of rows without a match."""
    return first, number, np.full(first.size, NO_DOCUMENT), np.zeros(first.size)


def hex_ids(high: np.ndarray, low: np.ndarray) -> list[str]:
    """Return ids as documents have them, from their two halves."""
    text = np.stack([high, low], axis=1).astype(">u8").tobytes().hex()
    return [text[i : i + 32] for i in range(0, len(text), 32)]
