"""The rows of `duplicates.parquet`: every document of a cluster, from copies and matches given as document numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.band_join import Spilled, contains
from datakit.documents.parts import ROW_GROUP_ROWS, writing_part

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


@dataclass(frozen=True)
class ClusterRows:
    """Columns of the table, one row for each document of a cluster, in the order of the table."""

    number: np.ndarray
    cluster: np.ndarray
    """The number of the document that the cluster keeps: it names the cluster, and the others repeat it."""

    is_near: np.ndarray
    is_kept: np.ndarray
    jaccard: np.ndarray

    @property
    def num_clusters(self) -> int:
        return int(np.unique(self.cluster).size)


def cluster_rows(spilled: Spilled, names: Sequence[str], copies: np.ndarray, matches: np.ndarray) -> ClusterRows:
    """Return one row for each document that has a copy or a match.

    If a document is removed as a near-duplicate, its exact copies are removed for the same kept document.

    `copies` int64 [copies, 2]: (later copy, first copy), sorted; `matches` as `near_duplicates.MATCHES`.
    """
    matches = np.sort(matches, order="number")
    number = np.unique(np.concatenate([copies.ravel(), matches["number"], matches["kept"]]))
    is_copy = contains(copies[:, 0], number)
    first = number.copy()
    first[is_copy] = copies[np.searchsorted(copies[:, 0], number[is_copy]), 1]
    leaves_as_near = contains(matches["number"], first)
    match = matches[np.searchsorted(matches["number"], first[leaves_as_near])]
    cluster, jaccard = first.copy(), np.ones(number.size)
    cluster[leaves_as_near], jaccard[leaves_as_near] = match["kept"], match["jaccard"]
    is_exact = contains(np.unique(copies[:, 1]), first)
    ids, kept_ids = spilled.ids(number), spilled.ids(cluster)
    source = np.array([names[p.source] for p in spilled.parts])[spilled.part_of(number)]
    order = np.lexsort((source, ids[:, 1], ids[:, 0], kept_ids[:, 1], kept_ids[:, 0]))
    columns = number, cluster, leaves_as_near | ~is_exact, ~is_copy & ~leaves_as_near, jaccard
    return ClusterRows(*(column[order] for column in columns))


def write_clusters(path: Path, rows: ClusterRows, spilled: Spilled, names: Sequence[str]) -> None:
    """Write the table, one slice at a time."""
    with writing_part(path, SCHEMA) as out:
        for start in range(0, rows.number.size, SLICE_ROWS):
            here = slice(start, start + SLICE_ROWS)
            kept = _hex_ids(spilled.ids(rows.cluster[here]))
            sources = [names[spilled.parts[part].source] for part in spilled.part_of(rows.number[here])]
            kinds = np.where(rows.is_near[here], "near", "exact").tolist()
            ids = _hex_ids(spilled.ids(rows.number[here]))
            columns = [sources, ids, kept, kinds, rows.is_kept[here], kept, rows.jaccard[here]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            out.write(pa.Table.from_arrays(arrays, schema=SCHEMA))


def counts_by_source(rows: ClusterRows, spilled: Spilled, names: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """Return source -> its documents, and how many are removed as exact and as near duplicates; in the declared order."""
    sources = np.array([part.source for part in spilled.parts])[spilled.part_of(rows.number)]
    counts: dict[str, dict[str, int]] = {}
    for index, name in enumerate(names):
        leaves = (sources == index) & ~rows.is_kept
        counts[name] = {
            "documents": sum(part.rows for part in spilled.parts if part.source == index),
            "exact": int((leaves & ~rows.is_near).sum()),
            "near": int((leaves & rows.is_near).sum()),
        }
    return counts


def _hex_ids(ids: np.ndarray) -> list[str]:
    text = ids.astype(">u8").tobytes().hex()
    return [text[i : i + 32] for i in range(0, len(text), 32)]
