"""Verified near-duplicates: one greedy walk over documents in the order of their ids, and the shingles that it
compares.

**The walk is one pass; it does not iterate.** Whether a document stays depends only on documents of smaller ids, which
are decided before it. So the result is a function of the set of texts: it does not depend on rounds, order of arrival
or number of workers. Walking again over what stays drops nothing, because each document that stays was compared with
every smaller candidate that stays and matched none (tests/datakit/test_duplicates.py checks both against all pairs).

Documents that no chain of shared bands connects cannot affect each other. So a shuffle brings each component of candidates
together, with ids, bands and shingle sets (8 bytes a distinct shingle, about 1.0 bytes a byte of text), and each range walks
its components, some at a time. The sets of a range lie in the files that the shuffle wrote, which are mapped. A component
lies in one range, and its documents take about 2 kB each besides. Scratch holds the sets of all candidates twice, in two
levels three times.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.band_join import Spilled
from datakit.dedup.numbered import Numbered
from datakit.dedup.part_files import new_stream, part_file, save_part
from datakit.dedup.scope_parts import NO_DOCUMENT, ScopePart
from datakit.documents.parts import iterate_rows
from datakit.text.shingles import batches, jaccard, shingle_sets

CANDIDATE_BYTES, WORD_BYTES, MATCH_BYTES = 48, 8, 24
"""A row of `walk_rows` without bands and shingles; each of these; a row of `walk_range`."""

WALKED_ROWS = 1 << 16
"""Documents whose lists are held at once, if no component has more."""

type SetOf = Callable[[int], np.ndarray]
"""Position of a document -> its distinct shingles, sorted."""


def spill_shingles(
    folder: Path, spilled: Spilled, part: ScopePart, documents: Path, candidates: Numbered, words: int
) -> dict[str, int]:
    """Write the shingle sets of a part's candidates: `shingles` end to end, and `bounds` [candidates + 1].

    It reads the row groups that hold one of them. Raises: ValueError if the documents are not those that were signed.
    """
    place = candidates.between(part.first, part.end)[:, 0] - part.first
    ids, rows = spilled.load("ids", part)[place], place
    rows = spilled.load("rows", part)[rows] if part.first < spilled.settled else rows
    sizes: list[np.ndarray] = [np.zeros(0, np.int64)]
    with new_stream(folder, "shingles", part).open("wb") as stream:
        for wanted, table in iterate_rows(documents, rows, ["id", "text"]):
            own = ids[np.searchsorted(rows, wanted)]
            if bytes.fromhex("".join(table["id"].to_pylist())) != own.astype(">u8").tobytes():
                raise ValueError(f"{documents} has other ids than its signatures: materialize them again")
            for batch in batches(table["text"].to_pylist()):
                shingles, bounds = shingle_sets(batch, words)
                stream.write(shingles.tobytes())
                sizes.append(np.diff(bounds))
    bounds = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    save_part(folder, part, bounds=bounds)
    return {"documents": int(rows.size), "shingles": int(bounds[-1])}


def walk_bytes(candidates: int, shingles: int, bands: int) -> int:
    """Return the bytes of some rows of `walk_rows`."""
    return candidates * (CANDIDATE_BYTES + WORD_BYTES * bands) + shingles * WORD_BYTES


def walk_rows(spilled: Spilled, candidates: Numbered, parts: Sequence[ScopePart]) -> pa.Table:
    """Return the candidates of some parts: `root` of the component, `number`, `high` and `low` (the halves of the id), and as
    bytes of uint64 `bands` and `shingles` (distinct, sorted).
    """
    return pa.concat_tables([_walk_rows(spilled, candidates, part) for part in parts])


def _walk_rows(spilled: Spilled, candidates: Numbered, part: ScopePart) -> pa.Table:
    number, root = candidates.between(part.first, part.end).T
    high, low = spilled.load("ids", part)[number - part.first].T
    bands = spilled.load("bands", part)[number - part.first]
    of_row = bands.shape[1] * np.arange(number.size + 1)
    sets = np.fromfile(spilled.folder / part_file("shingles", part), np.uint64)
    numbers = {"root": root, "number": number, "high": high, "low": low}
    sets_and_bands = {"bands": words(bands, of_row), "shingles": words(sets, spilled.load("bounds", part))}
    return pa.table({name: np.ascontiguousarray(column) for name, column in numbers.items()} | sets_and_bands)


def words(values: np.ndarray, bounds: np.ndarray) -> pa.LargeBinaryArray:
    """Return uint64 values as bytes of rows; row `i` has the values from `bounds[i]` to `bounds[i + 1]`."""
    buffers = [None, pa.py_buffer(WORD_BYTES * bounds), pa.py_buffer(values)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


def walk_range(rows: pa.Table, settled: int, min_jaccard: float, max_band_documents: int) -> pa.Table:
    """Walk the components of a range; return `number` of every document that is removed, and the `kept` one that it repeats
    with this `jaccard`. The first row is no match: its `kept` counts how often a band was full.

    An earlier scope kept the documents of numbers below `settled`.
    """
    root, high, low, number = (rows[name].to_numpy() for name in ("root", "high", "low", "number"))
    bands_of, set_of = words_of(rows["bands"]), words_of(rows["shingles"])
    removed, kept, jaccards, not_listed = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), 0
    for batch in whole_components(root):
        walk = batch[np.lexsort((low[batch], high[batch], number[batch] >= settled))]
        bands = np.stack([bands_of(row) for row in walk])
        sets, earlier = partial(_set_in, set_of, walk), int((number[walk] < settled).sum())
        near, full = near_matches(bands, sets, min_jaccard, max_band_documents, earlier)
        found = walk[np.array([pair[:2] for pair in near], np.int64).reshape(-1, 2)]
        removed.append(number[found[:, 0]])
        kept.append(number[found[:, 1]])
        jaccards.append(np.array([similarity for *_, similarity in near]))
        not_listed += full
    columns = {"number": [[NO_DOCUMENT], *removed], "kept": [[not_listed], *kept], "jaccard": [[0.0], *jaccards]}
    return pa.table({name: np.concatenate(arrays) for name, arrays in columns.items()})


def whole_components(root: np.ndarray) -> Iterator[np.ndarray]:
    """Yield int64 [rows]: the rows of some whole components, about `WALKED_ROWS` of them; a larger component is alone."""
    order = np.argsort(root, kind="stable")
    starts = np.flatnonzero(np.diff(root[order], prepend=NO_DOCUMENT))
    first = 0
    while first < order.size:
        ends = starts[np.searchsorted(starts, first + WALKED_ROWS) :]
        end = int(ends[0]) if ends.size else order.size
        yield order[first:end]
        first = end


def _set_in(set_of: SetOf, walk: np.ndarray, document: int) -> np.ndarray:
    return set_of(int(walk[document]))


def words_of(column: pa.ChunkedArray) -> SetOf:
    """Return what gives the values of a row of `words`. Nothing is copied."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    starts = [0, *accumulate(len(chunk) for chunk in chunks)]
    bounds = [np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1] for chunk in chunks]
    values = [np.frombuffer(chunk.buffers()[2], np.uint64) for chunk in chunks]

    def of_row(row: int) -> np.ndarray:
        chunk = bisect_right(starts, row) - 1
        start, end = bounds[chunk][row - starts[chunk] : row - starts[chunk] + 2] // WORD_BYTES
        return values[chunk][start:end]

    return of_row


def near_matches(
    bands: np.ndarray, set_of: SetOf, min_jaccard: float, max_band_documents: int, settled: int = 0
) -> tuple[list[tuple[int, int, float]], int]:
    """Walk documents in the order of their ids; return (removed, kept, similarity) of every one that repeats a kept
    one. The first `settled` stay: an earlier scope kept them.

    It also returns how often a band was full. A band lists its first `max_band_documents` kept documents only, because
    documents that share a band without being duplicates (a common boilerplate half) would otherwise all be compared
    with each other.
    """
    _, group, sizes = np.unique(bands, return_inverse=True, return_counts=True)
    shared = [row[sizes[row] > 1].tolist() for row in group.reshape(bands.shape)]
    kept_by_band: dict[int, list[int]] = {}
    near, not_listed = [], 0
    for document, own in enumerate(shared):
        candidates = sorted({kept for band in own for kept in kept_by_band.get(band, ())})
        is_open = candidates and document >= settled
        match = _first_match(set_of(document), candidates, set_of, min_jaccard) if is_open else None
        if match is not None:
            near.append((document, *match))
            continue
        for band in own:
            listed = kept_by_band.setdefault(band, [])
            if len(listed) < max_band_documents:
                listed.append(document)
            else:
                not_listed += 1
    return near, not_listed


def _first_match(own: np.ndarray, candidates: Sequence[int], set_of: SetOf, min_jaccard: float) -> tuple[int, float] | None:
    """Return the kept candidate of the smallest id that is similar enough. Sizes that differ too much need no
    comparison.
    """
    for candidate in candidates:
        other = set_of(candidate)
        smaller, larger = sorted((own.size, other.size))
        if smaller / larger >= min_jaccard and (similarity := jaccard(own, other)) >= min_jaccard:
            return candidate, similarity
    return None
