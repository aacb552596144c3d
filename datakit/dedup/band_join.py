"""What `datakit.duplicates` joins: ids and bands of the documents of a scope, as rows of shuffles (`lineage.tables`).

Documents are numbered source by source, part by part, row by row. Every part writes its ids and bands as flat arrays.
One shuffle brings equal ids together, another one equal bands; their functions are here. Bands and ids are hashes, so
equal ranges have about equal size.

What grows on scratch: 16 bytes for each document's id and 32 bytes for each band (its flat array, and the row that a
shuffle spills): 10**9 documents of 14 bands take 460 GB.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.dedup.minhash import FOLDER as MINHASH_FOLDER
from datakit.dedup.numbered import Numbered
from datakit.dedup.part_files import save_part
from datakit.dedup.scope_parts import ScopeFiles, ScopePart, tables_of_sources
from lineage.artifact.store import Artifact
from lineage.tables.ranges import edges, repeats, sorted_by
from lineage.tables.stars import stars
from lineage.writing.writer import Writer

ID_BYTES, PAIR_BYTES = 24, 16
"""An id and its document's number; a band and its document's number."""


@dataclass(frozen=True)
class Spilled(ScopeFiles):
    """What `spill_part` wrote: `ids`; `bands` uint64 [rows, bands]; `signed` bool [rows], False where bands are zeros."""

    settled: int = 0
    """Documents of smaller numbers were kept by an earlier scope: they stay (`datakit.dedup.earlier`)."""


def signature_files(
    out: Writer, minhash: Sequence[Artifact], normalized: Sequence[Artifact], parts: Sequence[ScopePart]
) -> list[Path]:
    """Return the signatures of every part.

    Raises: ValueError for signatures of different configs, or of other parts than the documents'.
    """
    if len({json.dumps(artifact.spec.config, sort_keys=True) for artifact in minhash}) > 1:
        configs = "; ".join(f"{artifact.name}: {dict(artifact.spec.config)}" for artifact in minhash)
        raise ValueError(f"signatures of different configs cannot be compared: {configs}")
    return tables_of_sources(out, minhash, MINHASH_FOLDER, normalized, parts)


def spill_part(folder: Path, part: ScopePart, signatures: Path, width: int) -> dict[str, int]:
    """Write the ids and the `width` bands of one part as flat files, and which documents have bands."""
    signed = flat_signatures(pq.read_table(signatures, columns=["id", "bands"], use_threads=False), width)
    part.check_rows(len(signed["ids"]), signatures)
    save_part(folder, part, **signed)
    return {"keys": part.rows + int(signed["signed"].sum()) * width}


def flat_signatures(table: pa.Table, width: int) -> dict[str, np.ndarray]:
    """Return `ids`, `bands` and `signed` of rows of signatures, as `Spilled.load` has them."""
    ids = np.frombuffer(bytes.fromhex("".join(table["id"].to_pylist())), ">u8").astype(np.uint64).reshape(-1, 2)
    column = table["bands"].combine_chunks()
    is_signed = column.is_valid().to_numpy(zero_copy_only=False)
    bands = np.zeros((table.num_rows, width), np.uint64)
    bands[is_signed] = column.flatten().to_numpy().reshape(-1, width)
    return {"ids": ids, "bands": bands, "signed": is_signed}


def id_rows(spilled: Spilled, parts: Sequence[ScopePart]) -> pa.Table:
    """Return `high`, `low` (the halves of an id) and `number` of every document of some parts."""
    ids = np.concatenate([spilled.load("ids", part) for part in parts])
    numbers = np.concatenate([np.arange(part.first, part.end) for part in parts])
    return pa.table({"high": ids[:, 0].copy(), "low": ids[:, 1].copy(), "number": numbers})


def copies_of_range(rows: pa.Table) -> pa.Table:
    """Return `number` of every document whose id an earlier one has, and that `first`."""
    numbers, firsts = repeats(rows, ("high", "low"), "number")
    return pa.table({"number": numbers, "first": firsts})


def band_rows(spilled: Spilled, copies: Numbered, parts: Sequence[ScopePart]) -> pa.Table:
    """Return (`band`, `number`) of every signed document of some parts that is no copy.

    The decision about the first of equal texts holds for its copies.
    """
    bands, numbers = [], []
    for part in parts:
        joins = spilled.load("signed", part).copy()
        joins[copies.between(part.first, part.end)[:, 0] - part.first] = False
        own = spilled.load("bands", part)[joins]
        bands.append(own.ravel())
        numbers.append(np.repeat(np.flatnonzero(joins) + part.first, own.shape[1]))
    return pa.table({"band": np.concatenate(bands), "number": np.concatenate(numbers)})


def links_of_range(rows: pa.Table) -> pa.Table:
    """Return the components of a range's documents that share bands, as stars."""
    numbers, firsts = repeats(rows, ("band",), "number")
    return stars(edges(firsts, numbers))


def members_of_range(rows: pa.Table) -> pa.Table:
    """Return `root` and `number` of every document of the components of a range, the roots included, by component."""
    roots, members = rows["root"].to_numpy(), rows["member"].to_numpy()
    own = np.unique(roots)
    numbered = pa.table({"root": np.concatenate([roots, own]), "number": np.concatenate([members, own])})
    return sorted_by(numbered, "root", "number")


def contains(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return bool [values]: whether each is among some sorted numbers."""
    if not ordered.size:
        return np.zeros(values.size, dtype=bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), ordered.size - 1)] == values
