"""Verified near-duplicates: one greedy walk over documents in the order of their ids, and the shingles that it
compares.

**The walk is one pass; it does not iterate.** Whether a document stays depends only on documents of smaller ids, which
are decided before it. So the result is a function of the set of texts: it does not depend on rounds, order of arrival
or number of workers. Walking again over what stays drops nothing, because each document that stays was compared with
every smaller candidate that stays and matched none (tests/datakit/test_duplicates.py checks both against all pairs).

Documents that no chain of shared bands connects cannot affect each other. So each component of candidates is walked
separately, and components are combined into tasks of about `TASK_BYTES` of shingles. Shingle sets of candidates are in
files (8 bytes a distinct shingle, about 1.0 bytes a byte of text). They are read, not mapped: the kernel maps 64 KiB
around every touched page, so the sets of a task, a few KiB from each of many places, took six times their size. A
task's memory is its bands and its lists. A component larger than a task is a task of its own: 300 bytes a document.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from datakit.dedup.band_join import Spilled
from datakit.dedup.numbered import Numbered
from datakit.dedup.part_files import new_stream, part_file, save_part
from datakit.dedup.scope_parts import ScopePart
from datakit.documents.parts import iterate_rows
from datakit.text.arrays import load, save
from datakit.text.shingles import batches, jaccard, shingle_sets
from lineage.shards.run import SCRATCH_FOLDER

TASK_BYTES = 48 << 20
"""Bytes of shingles, and of documents at `DOCUMENT_BYTES` each."""
DOCUMENT_BYTES = 300
MATCHES = np.dtype([("number", np.int64), ("kept", np.int64), ("jaccard", np.float64)])
"""A document that is removed, the kept one that it repeats, and their similarity."""


@dataclass(frozen=True)
class Matches:
    """Files of `MATCHES`, and how many rows they have together."""

    paths: tuple[Path, ...]
    rows: int


type SetOf = Callable[[int], np.ndarray]
"""Position of a document in the walk -> its distinct shingles, sorted."""


def spill_shingles(
    folder: Path, spilled: Spilled, part: ScopePart, documents: Path, candidates: Numbered, words: int
) -> dict[str, int]:
    """Write the shingle sets of a part's candidates: `shingles` end to end, `spilled` (their rows in the part) and `bounds`
    [candidates + 1].

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
    save_part(folder, part, spilled=place, bounds=bounds)
    return {"documents": int(rows.size), "shingles": int(bounds[-1])}


def cut_tasks(folder: Path, spilled: Spilled, members: Path, index: int, task_bytes: int) -> dict[str, int]:
    """Write `walks/I-T.npy`, the candidates of whole components, about `task_bytes` of them each; a larger component is
    a task of its own.

    `members` int64 [candidates, 2]: the root of each and its number, by root.
    """
    roots, numbers = load(members).T
    if not roots.size:
        return {"tasks": 0}
    starts = np.flatnonzero(np.concatenate([[True], np.diff(roots) > 0]))
    before = np.concatenate([[0], np.cumsum(spilled.shingles(numbers)[:, 1] + DOCUMENT_BYTES)])
    cuts = [0]
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), roots.size], strict=True):
        if before[end] - before[cuts[-1]] > task_bytes and start > cuts[-1]:
            cuts.append(start)
    for task, (start, end) in enumerate(pairwise([*cuts, roots.size])):
        save(folder / SCRATCH_FOLDER / walk_file(f"{index:06d}-{task:06d}"), numbers[start:end])
    return {"tasks": len(cuts)}


def walk_file(name: str) -> str:
    """Return the path of the candidates of a task, below the scratch folder."""
    return f"walks/{name}.npy"


def matches_file(name: str) -> str:
    """Return the path of what a task matches, below the scratch folder."""
    return f"matches/{name}.npy"


def walk_task(folder: Path, spilled: Spilled, name: str, min_jaccard: float, max_band_documents: int) -> dict[str, int]:
    """Walk the documents of `walks/NAME.npy`, some whole components, and write `matches/NAME.npy`."""
    numbers = load(spilled.folder / walk_file(name))
    ids, is_new = spilled.ids(numbers), numbers >= spilled.settled
    numbers = numbers[np.lexsort((ids[:, 1], ids[:, 0], is_new))]
    parts, places = spilled.part_of(numbers), spilled.shingles(numbers)

    def set_of(document: int) -> np.ndarray:
        start, size = places[document]
        with (spilled.folder / part_file("shingles", spilled.parts[parts[document]])).open("rb", buffering=0) as file:
            file.seek(start)
            return np.frombuffer(file.read(size), np.uint64)

    settled = int((~is_new).sum())
    near, not_listed = near_matches(spilled.bands(numbers), set_of, min_jaccard, max_band_documents, settled)
    matches = np.array([(numbers[i], numbers[k], j) for i, k, j in near], MATCHES)
    save(folder / SCRATCH_FOLDER / matches_file(name), matches)
    return {"matches": len(near), "not_listed": not_listed}


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
