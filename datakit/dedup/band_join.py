"""Find which documents of a scope are equal and which share a band, by joins over files. Memory hardly grows with the
scope.

Documents are numbered source by source, part by part, row by row. Every part writes its ids and bands as flat arrays,
and its (band, number) pairs sorted by band. A join then reads one range of ids, or of bands, from all parts at a time.
Bands and ids are hashes, so equal ranges have about equal size; `RANGE_BYTES` sets how many there are.

What grows: 8 bytes a document in the process that joins (the roots of `components`), and on scratch 16 bytes for each
document's id and 24 bytes for each band: 10**9 documents of 14 bands take 8 GB of memory and 350 GB of scratch.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from datakit.dedup.minhash import FOLDER as MINHASH_FOLDER
from datakit.documents.parts import DOCUMENTS, document_paths
from datakit.text.arrays import load, save
from lineage.artifact.store import Artifact
from lineage.writing.working_folder import SCRATCH_FOLDER

RANGE_BYTES = 16 << 20
ID_BYTES, PAIR_BYTES = 24, 16
"""An id and its document's number; a band and its document's number."""


@dataclass(frozen=True)
class Part:
    """One part of one source: its documents are the numbers `first <= n < first + rows`, in the order of their ids."""

    index: int
    source: int
    documents: Path
    signatures: Path
    first: int
    rows: int


@dataclass(frozen=True)
class Spilled:
    """The parts of a scope, and the flat files that `spill_part` wrote below a folder."""

    folder: Path
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return self.parts[-1].first + self.parts[-1].rows

    def load(self, name: str, part: Part) -> np.ndarray:
        """Map `ids` uint64 [rows, 2]; `bands` uint64 [rows, bands] (zeros: unsigned); `keys`, `numbers` [pairs], by
        key.
        """
        return load(self.folder / f"{name}-{part.index:06d}.npy")

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Return uint64 [numbers, 2]: the ids of documents in any order, as two halves."""
        return self._gathered("ids", numbers)

    def bands(self, numbers: np.ndarray) -> np.ndarray:
        """Return uint64 [numbers, bands]."""
        return self._gathered("bands", numbers)

    def part_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64 [numbers]: indices of parts."""
        return np.searchsorted([part.first for part in self.parts], numbers, side="right") - 1

    def _gathered(self, name: str, numbers: np.ndarray) -> np.ndarray:
        parts = self.part_of(numbers)
        gathered = np.zeros((numbers.size, self.load(name, self.parts[0]).shape[1]), np.uint64)
        for index in np.unique(parts).tolist():
            here = parts == index
            gathered[here] = self.load(name, self.parts[index])[numbers[here] - self.parts[index].first]
        return gathered


def scope_parts(normalized: Sequence[Artifact], minhash: Sequence[Artifact]) -> tuple[Part, ...]:
    """Return the parts of every source in the declared order.

    Raises: ValueError if a source is given twice, if signatures are of other parts than documents, or of different configs.
    """
    counts = Counter(artifact.name for artifact in normalized)
    if repeated := [name for name, count in counts.items() if count > 1]:
        times = counts[repeated[0]]
        raise ValueError(
            f"{repeated[0]} is given {times} times, where every document would repeat itself; give each source once"
        )
    if len({json.dumps(artifact.spec.config, sort_keys=True) for artifact in minhash}) > 1:
        configs = "; ".join(f"{artifact.name}: {dict(artifact.spec.config)}" for artifact in minhash)
        raise ValueError(f"signatures of different configs cannot be compared: {configs}")
    parts: list[Part] = []
    for source, (documents, signatures) in enumerate(zip(normalized, minhash, strict=True)):
        paths, signed = document_paths(documents, DOCUMENTS), document_paths(signatures, MINHASH_FOLDER)
        for path, signature in zip(paths, signed, strict=False):
            rows = pq.read_metadata(path).num_rows
            if path.name != signature.name or rows != pq.read_metadata(signature).num_rows:
                raise ValueError(f"{signatures.name} has other parts or rows than {documents.name}: materialize it again")
            first = parts[-1].first + parts[-1].rows if parts else 0
            parts.append(Part(len(parts), source, path, signature, first, rows))
        if len(paths) != len(signed):
            raise ValueError(f"{signatures.name} has {len(signed)} parts, {documents.name} {len(paths)}: materialize it again")
    return tuple(parts)


def spill_part(folder: Path, part: Part, width: int) -> dict[str, int]:
    """Write the ids, the `width` bands and the sorted (band, number) pairs of one part as flat files."""
    table = pq.read_table(part.signatures, columns=["id", "bands"], use_threads=False)
    ids = np.frombuffer(bytes.fromhex("".join(table["id"].to_pylist())), ">u8").astype(np.uint64).reshape(-1, 2)
    column = table["bands"].combine_chunks()
    is_signed = column.is_valid().to_numpy(zero_copy_only=False)
    flat = column.flatten().to_numpy()
    bands = np.zeros((part.rows, width), np.uint64)
    bands[is_signed] = flat.reshape(-1, width)
    order = np.argsort(flat, kind="stable")
    numbers = np.repeat(np.flatnonzero(is_signed) + part.first, width)[order]
    for name, values in (("ids", ids), ("bands", bands), ("keys", flat[order]), ("numbers", numbers)):
        save(folder / SCRATCH_FOLDER / f"{name}-{part.index:06d}.npy", values)
    return {"pairs": int(flat.size)}


def find_copies(folder: Path, spilled: Spilled, index: int, count: int) -> dict[str, int]:
    """Write int64 [copies, 2] of one range of ids: a document whose id an earlier source holds, and its first copy."""
    found_ids, numbers = [], []
    for part in spilled.parts:
        ids = spilled.load("ids", part)
        rows = hash_range(ids[:, 0], index, count)
        found_ids.append(ids[rows])
        numbers.append(np.arange(rows.start, rows.stop) + part.first)
    ids, numbers = np.concatenate(found_ids), np.concatenate(numbers)
    order = np.lexsort((numbers, ids[:, 1], ids[:, 0]))
    ids, numbers = ids[order], numbers[order]
    is_first = np.ones(numbers.size, dtype=bool)
    is_first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    firsts = numbers[is_first][np.cumsum(is_first) - 1] if numbers.size else numbers
    copies = np.stack([numbers, firsts], axis=1)[~is_first]
    save(folder / SCRATCH_FOLDER / f"copies-{index:06d}.npy", copies)
    return {"copies": len(copies)}


def find_links(folder: Path, spilled: Spilled, copies: Path, index: int, count: int) -> dict[str, int]:
    """Write int64 [links, 2] of one range of bands: every document that shares a band with another, and the band's
    first document.

    Copies are left out: the decision about the first of equal texts holds for all of them.
    """
    keys, numbers = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for part in spilled.parts:
        here = spilled.load("keys", part)
        pairs = hash_range(here, index, count)
        keys.append(here[pairs])
        numbers.append(spilled.load("numbers", part)[pairs])
    key, number = np.concatenate(keys), np.concatenate(numbers)
    is_first_text = ~contains(load(copies)[:, 0], number)
    key, number = key[is_first_text], number[is_first_text]
    order = np.argsort(key, kind="stable")
    key, number = key[order], number[order]
    is_first = np.ones(key.size, dtype=bool)
    is_first[1:] = key[1:] != key[:-1]
    firsts = number[is_first][np.cumsum(is_first) - 1] if key.size else number
    links = np.stack([firsts, number], axis=1)[~is_first]
    save(folder / SCRATCH_FOLDER / f"links-{index:06d}.npy", links)
    return {"links": len(links)}


def components(rows: int, links: Sequence[Path]) -> np.ndarray:
    """Return int64 [rows]: for every document the smallest number that links lead to; -1 for a document without a link.

    It takes one pass over the files, however the chains run through them: after each file the roots are those of all
    links so far.
    """
    roots = np.arange(rows)
    is_linked = np.zeros(rows, dtype=bool)
    for path in links:
        ends = load(path)
        is_linked[ends.ravel()] = True
        nodes, compact = np.unique(_followed(roots, ends.ravel()), return_inverse=True)
        if not nodes.size:
            continue
        compact = compact.reshape(-1, 2)
        graph = coo_array((np.ones(len(ends), np.int8), (compact[:, 0], compact[:, 1])), shape=(nodes.size, nodes.size))
        _, labels = connected_components(graph, directed=False)
        smallest = np.full(int(labels.max()) + 1, rows)
        np.minimum.at(smallest, labels, nodes)
        roots[nodes] = smallest[labels]
    linked = np.flatnonzero(is_linked)
    first_of_cluster = np.full(rows, -1)
    first_of_cluster[linked] = _followed(roots, linked)
    return first_of_cluster


def _followed(roots: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the ends of the chains that start at some numbers. A root is never larger than what leads to it, so chains
    end.
    """
    while True:
        further = roots[numbers]
        if np.array_equal(further, numbers):
            return further
        numbers = further


def contains(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return bool [values]: whether each is among some sorted numbers."""
    if not ordered.size:
        return np.zeros(values.size, dtype=bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), ordered.size - 1)] == values


def range_count(entries: int, entry_bytes: int) -> int:
    """Return how many ranges keep each one within `RANGE_BYTES`."""
    return max(1, -(-entries * entry_bytes // RANGE_BYTES))


def hash_range(ordered: np.ndarray, index: int, count: int) -> slice:
    """Return the bounds, in a sorted array, of the `index`-th of `count` equal ranges of 64-bit hashes."""
    bounds = [(1 << 64) * i // count for i in (index, index + 1)]
    start, stop = (ordered.size if b >= 1 << 64 else int(np.searchsorted(ordered, np.uint64(b))) for b in bounds)
    return slice(start, stop)
