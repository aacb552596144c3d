"""Which candidates lie inside each other, by all their words, and which documents are removed for one that stays.

Shingles of documents that may be contained are in files, in the order of the text; those of containers are made again from the
text, one document at a time, because they are many times as long.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.containment_candidates import NO_DOCUMENT, ContainmentConfig
from datakit.dedup.numbered import Numbered
from datakit.dedup.part_files import PartFiles, new_stream, part_file, save_part
from datakit.dedup.scope_parts import ScopePart, part_of
from datakit.documents.parts import iterate_rows
from datakit.text.arrays import load
from datakit.text.shingles import batch_shingles, batches, shingle_hashes
from lineage.tables.components import components
from lineage.tables.ranges import edges, is_first, sorted_by
from lineage.tables.shuffle import Part, Shards, Shuffle, TableEngine, grouped, joined, range_count, tasks_of
from lineage.tables.stars import stars

CONTAINED = np.dtype(
    [("number", np.int64), ("container", np.int64), ("words", np.int64), ("container_words", np.int64), ("containment", float)]
)
"""A document, a longer one that holds it, the words of both, and the share of its words that the longer one has."""


@dataclass(frozen=True)
class Sampled(PartFiles):
    """The parts of a scope, and the flat files that `sample_part` wrote below a folder."""

    parts: tuple[ScopePart, ...]

    @property
    def rows(self) -> int:
        return self.parts[-1].end

    def by_part(self, numbers: np.ndarray) -> Iterator[tuple[ScopePart, np.ndarray]]:
        """Yield each part that has one of the documents, and bool [numbers]: which it has."""
        parts = part_of(self.parts, numbers)
        for index in np.unique(parts).tolist():
            yield self.parts[index], parts == index


def spill_contained(folder: Path, part: ScopePart, documents: Path, candidates: Numbered, words: int) -> dict[str, int]:
    """Write the shingles of a part's candidates in the order of their texts: `shingles` end to end, `spilled` (their rows in
    the part) and `bounds` [candidates + 1].
    """
    rows = np.unique(candidates.between(part.first, part.end)[:, 0]) - part.first
    sizes = [np.zeros(1, np.int64)]
    with new_stream(folder, "shingles", part).open("wb") as stream:
        for _, table in iterate_rows(documents, rows, ["text"]):
            for batch in batches(table["text"].to_pylist()):
                shingles, bounds = batch_shingles(batch, words)
                stream.write(shingles.tobytes())
                sizes.append(np.diff(bounds))
    save_part(folder, part, spilled=rows, bounds=np.cumsum(np.concatenate(sizes)))
    return {"documents": int(rows.size)}


def verify_part(
    folder: Path, sampled: Sampled, part: ScopePart, documents: Path, pairs: Numbered, config: ContainmentConfig
) -> dict[str, int]:
    """Compare the containers of one part with their candidates, and write `contained`: those that they contain."""
    of_part = pairs.between(part.first, part.end)
    containers, numbers = of_part[np.lexsort((of_part[:, 1], of_part[:, 0]))].T
    contained = np.zeros(numbers.size, CONTAINED)
    contained["number"], contained["container"] = numbers, containers
    contained["container_words"] = sampled.load("words", part)[containers - part.first]
    owners, places = _places(sampled, numbers)
    contained["words"] = places[:, 1] // 8 + config.ngram_words - 1
    for rows, table in iterate_rows(documents, np.unique(containers) - part.first, ["text"]):
        for number, text in zip((rows + part.first).tolist(), table["text"].to_pylist(), strict=True):
            of_container = shingle_hashes(text, config.ngram_words)
            for pair in range(*np.searchsorted(containers, [number, number + 1]).tolist()):
                owner = sampled.parts[owners[pair]]
                shingles = _read(sampled.folder / part_file("shingles", owner), *places[pair].tolist())
                contained["containment"][pair] = containment(shingles, of_container, config.ngram_words)
    verified = contained[contained["containment"] >= config.min_containment]
    save_part(folder, part, contained=verified)
    return {"candidates": int(numbers.size), "verified": int(verified.size)}


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


def removals(out: Shards, engine: TableEngine, files: Sequence[Path], rows: int) -> tuple[Part, ...]:
    """Return `number`, `container` and `containment` of every document that is removed; `rows` of `CONTAINED` are in the files.

    Whether a document stays depends on the documents that hold it, so documents that no chain connects are decided apart.
    """
    size = rows * CONTAINED.itemsize
    groups, count = grouped(files, size), range_count(size)
    links = Shuffle("contained-links", link_rows, [(group,) for group in groups], "member", stars, count, spread=True)
    roots = components(out, engine, engine.shuffle(out, links), "contained")
    tasks = [*((group,) for group in groups), *(((), *task) for task in tasks_of(roots))]
    rooted = engine.shuffle(out, Shuffle("contained-roots", rooted_rows, tasks, "number", with_roots, count, spread=True))
    step = Shuffle("contained-removed", joined, tasks_of(rooted), "root", removed_of_range, count, spread=True)
    return engine.shuffle(out, step)


def link_rows(files: Sequence[Path]) -> pa.Table:
    """Return the pairs as edges from the smaller number."""
    pairs = np.concatenate([load(path) for path in files])
    return edges(np.minimum(pairs["number"], pairs["container"]), np.maximum(pairs["number"], pairs["container"]))


def rooted_rows(files: Sequence[Path], *of_stars: pa.Table) -> pa.Table:
    """Return rows of `CONTAINED` with an unknown `root`; a star's member is a row with its root and no container."""
    pairs = np.concatenate([np.zeros(0, CONTAINED), *(load(path) for path in files)])
    members = [np.zeros(0, np.int64), *(star["member"].to_numpy() for star in of_stars)]
    roots = [np.zeros(0, np.int64), *(star["root"].to_numpy() for star in of_stars)]
    alone = np.zeros(sum(map(len, members)), CONTAINED)
    alone["number"], alone["container"] = np.concatenate(members), NO_DOCUMENT
    both = np.concatenate([pairs, alone])
    root = np.concatenate([np.full(pairs.size, NO_DOCUMENT), *roots])
    return pa.table({"root": root, **{name: np.ascontiguousarray(both[name]) for name in CONTAINED.names or ()}})


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


def _places(sampled: Sampled, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return int64 [numbers]: the parts of candidates; int64 [numbers, 2]: where in the part's file their shingles begin, and
    how many bytes they are.
    """
    owners, places = np.zeros(numbers.size, np.int64), np.zeros((numbers.size, 2), np.int64)
    for part, here in sampled.by_part(numbers):
        at = np.searchsorted(sampled.load("spilled", part), numbers[here] - part.first)
        bounds = sampled.load("bounds", part)
        owners[here], places[here, 0], places[here, 1] = part.index, 8 * bounds[at], 8 * (bounds[at + 1] - bounds[at])
    return owners, places


def _read(path: Path, start: int, size: int) -> np.ndarray:
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        return np.frombuffer(file.read(size), np.uint64)
