"""Which candidates lie inside each other, by all their words, and which documents are removed for one that stays.

A shuffle brings the shingles of each container together with those of its candidates, in the order of their texts. Containers
are long, so these rows may have more bytes than the texts of all candidates.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.near_duplicates import WORD_BYTES, words, words_of
from datakit.dedup.numbered import Numbered
from datakit.dedup.part_files import new_stream, part_file, save_part
from datakit.dedup.scope_parts import NO_DOCUMENT, ScopeFiles, ScopePart
from datakit.documents.parts import iterate_rows
from datakit.text.shingles import batch_shingles, batches
from lineage.tables.components import components
from lineage.tables.ranges import edges, is_first, sorted_by
from lineage.tables.shuffle import Part, Shards, Shuffle, TableEngine, joined, range_count, tasks_of
from lineage.tables.stars import stars

CONTAINED = np.dtype(
    [("number", np.int64), ("container", np.int64), ("words", np.int64), ("container_words", np.int64), ("containment", float)]
)
"""A document, a longer one that holds it, the words of both, and the share of its words that the longer one has."""
COMPARED_BYTES = 24
"""A row of `compared_rows` without its shingles."""


def spill_compared(
    folder: Path, part: ScopePart, documents: Path, by_contained: Numbered, containers: Numbered, ngram_words: int
) -> dict[str, int]:
    """Write the shingles of a part's documents of candidate pairs in the order of their texts: `shingles` end to end, `spilled`
    (their rows in the part) and `bounds` [documents + 1]. Return the bytes of `compared_rows`.
    """
    numbers = _compared(part, by_contained, containers)[1]
    rows, sizes = np.unique(numbers) - part.first, [np.zeros(1, np.int64)]
    with new_stream(folder, "shingles", part).open("wb") as stream:
        for _, table in iterate_rows(documents, rows, ["text"]):
            for batch in batches(table["text"].to_pylist()):
                shingles, bounds = batch_shingles(batch, ngram_words)
                stream.write(shingles.tobytes())
                sizes.append(np.diff(bounds))
    bounds = np.cumsum(np.concatenate(sizes))
    save_part(folder, part, spilled=rows, bounds=bounds)
    moved = np.diff(bounds)[np.searchsorted(rows, numbers - part.first)].sum()
    return {"documents": int(rows.size), "bytes": WORD_BYTES * int(moved) + COMPARED_BYTES * int(numbers.size)}


def compared_rows(sampled: ScopeFiles, by_contained: Numbered, containers: Numbered, parts: Sequence[ScopePart]) -> pa.Table:
    """Return `container`, `number` and, as bytes of uint64, `shingles` of the documents of some parts: of a contained one for
    each of its pairs, and of a container once, where both numbers are its own.
    """
    return pa.concat_tables([_compared_rows(sampled, by_contained, containers, part) for part in parts])


def _compared_rows(sampled: ScopeFiles, by_contained: Numbered, containers: Numbered, part: ScopePart) -> pa.Table:
    container, number = _compared(part, by_contained, containers)
    at = np.searchsorted(sampled.load("spilled", part), number - part.first)
    stored = np.fromfile(sampled.folder / part_file("shingles", part), np.uint64)
    sets = words(stored, sampled.load("bounds", part))
    return pa.table({"container": container, "number": number, "shingles": sets.take(pa.array(at))})


def _compared(part: ScopePart, by_contained: Numbered, containers: Numbered) -> tuple[np.ndarray, np.ndarray]:
    """Return the containers and numbers of `compared_rows`."""
    number, container = by_contained.between(part.first, part.end).T
    own = np.unique(containers.between(part.first, part.end)[:, 0])
    return np.concatenate([container, own]), np.concatenate([number, own])


def verified_of_range(rows: pa.Table, ngram_words: int, min_containment: float) -> pa.Table:
    """Compare the containers of a range with their candidates; return the pairs that are verified, with the columns of
    `CONTAINED`.
    """
    container, number = (rows[name].to_numpy() for name in ("container", "number"))
    order = np.lexsort((number, number != container, container))
    set_of, verified = words_of(rows["shingles"]), list[tuple[int, int, int, int, float]]()
    of_container = np.zeros(0, np.uint64)
    for row in order.tolist():
        if number[row] == container[row]:
            of_container = np.sort(set_of(row))
            continue
        shingles = set_of(row)
        share = containment(shingles, of_container, ngram_words)
        if share >= min_containment:
            more = ngram_words - 1
            sizes = shingles.size + more, of_container.size + more
            verified.append((int(number[row]), int(container[row]), *sizes, share))
    found = np.array(verified, CONTAINED)
    return pa.table({name: np.ascontiguousarray(found[name]) for name in CONTAINED.names or ()})


def containment(shingles: np.ndarray, of_container: np.ndarray, ngram_words: int) -> float:
    """Return the share of a document's words that stand in shared runs of `ngram_words`.

    `shingles`: uint64 in the order of the document; `of_container`: uint64, sorted.
    """
    if not shingles.size or not of_container.size:
        return 0.0
    found = np.minimum(np.searchsorted(of_container, shingles), of_container.size - 1)
    shared = np.flatnonzero(of_container[found] == shingles)
    if not shared.size:
        return 0.0
    covered = ngram_words + int(np.minimum(np.diff(shared), ngram_words).sum())
    return covered / (shingles.size + ngram_words - 1)


def removals(out: Shards, engine: TableEngine, verified: Sequence[Part]) -> tuple[Part, ...]:
    """Return `number`, `container` and `containment` of every document that is removed, of the pairs of `verified_of_range`.

    Whether a document stays depends on the documents that hold it, so documents that no chain connects are decided apart.
    """
    tasks, count = tasks_of(verified), range_count(sum(part.bytes for part in verified))
    links = Shuffle("contained-links", link_rows, tasks, "member", stars, count, spread=True)
    roots = components(out, engine, engine.shuffle(out, links), "contained")
    both = [*tasks, *tasks_of(roots)]
    rooted = engine.shuffle(out, Shuffle("contained-roots", rooted_rows, both, "number", with_roots, count, spread=True))
    step = Shuffle("contained-removed", joined, tasks_of(rooted), "root", removed_of_range, count, spread=True)
    return engine.shuffle(out, step)


def link_rows(*verified: pa.Table) -> pa.Table:
    """Return the pairs as edges from the smaller number."""
    pairs = pa.concat_tables(verified)
    number, container = pairs["number"].to_numpy(), pairs["container"].to_numpy()
    return edges(np.minimum(number, container), np.maximum(number, container))


def rooted_rows(*tables: pa.Table) -> pa.Table:
    """Return verified pairs with an unknown `root`; the member of a star is a row with its root and no container."""
    return pa.concat_tables([_of_star(table) if "member" in table.column_names else _rooted(table) for table in tables])


def _rooted(pairs: pa.Table) -> pa.Table:
    return pairs.add_column(0, "root", pa.array(np.full(pairs.num_rows, NO_DOCUMENT)))


def _of_star(star: pa.Table) -> pa.Table:
    alone = np.zeros(star.num_rows, CONTAINED)
    alone["number"], alone["container"] = star["member"].to_numpy(), NO_DOCUMENT
    columns = {name: np.ascontiguousarray(alone[name]) for name in CONTAINED.names or ()}
    return pa.table({"root": star["root"].to_numpy(), **columns})


def with_roots(rows: pa.Table) -> pa.Table:
    """Return the pairs with the root of their document: its star's, or itself."""
    ordered = sorted_by(rows, "number", "container", "root")
    number, root = ordered["number"].to_numpy(), ordered["root"].to_numpy()
    first = is_first(ordered, "number")
    of_document = np.where(root[first] == NO_DOCUMENT, number[first], root[first])
    known = ordered.set_column(0, "root", pa.array(of_document[np.cumsum(first) - 1] if number.size else root))
    return known.filter(pa.array(ordered["container"].to_numpy() != NO_DOCUMENT))


def removed_of_range(rows: pa.Table) -> pa.Table:
    """Walk documents from the longest on; one is removed for the container that holds most of it among those that stay.

    Of equal containers the longest counts, then the first by number. A container is decided before what it contains.
    """
    sign = {name: -rows[name].to_numpy() for name in ("words", "containment", "container_words")}
    order = np.lexsort(
        (
            rows["container"].to_numpy(),
            sign["container_words"],
            sign["containment"],
            rows["number"].to_numpy(),
            sign["words"],
        )
    )
    numbers, containers = (rows[name].to_numpy()[order].tolist() for name in ("number", "container"))
    removed, places = set[int](), []
    for place, (number, container) in enumerate(zip(numbers, containers, strict=True)):
        if number not in removed and container not in removed:
            removed.add(number)
            places.append(place)
    return rows.take(pa.array(order[np.array(places, np.int64)])).select(["number", "container", "containment"])
