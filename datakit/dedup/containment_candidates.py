"""Pairs of documents that share sampled runs of words, of which one may lie inside the other (`datakit.containment`).

A run is sampled if its hash is below 2**64 / `scale` (FracMinHash: Irber and others, 2022). Every document gives all its
samples as a container. As a contained one it asks for its `asked_hashes` smallest only: a random sample of its runs, too.
So a document joins a bounded number of pairs, however long it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.dedup.paragraphs import removed_ids
from datakit.dedup.part_files import PartFiles, new_stream, part_file, save_part
from datakit.dedup.scope_parts import NO_DOCUMENT, ScopePart
from datakit.documents.parts import iterate_part
from datakit.text.shingles import batch_shingles, batches, unique_in_segments
from lineage.tables.ranges import is_first, sorted_by

SAMPLE_BYTES, PAIR_BYTES = 24, 24
PAIRS_AT_ONCE = 1 << 20
Z_OF_99 = 2.33
"""Standard deviations below which one of a hundred samples lies."""


@dataclass(frozen=True)
class ContainmentConfig:
    """Which documents count as contained, and how candidates are sampled."""

    min_containment: float = 0.7
    """Share of a document's words that stand in the container, in runs of `ngram_words`."""

    min_words: int = 30
    """Shorter documents neither contain nor are contained."""

    ngram_words: int = 5
    scale: int = 4
    """One of so many runs is sampled."""

    asked_hashes: int = 48
    """Samples of a document that look for containers."""

    min_shared: float = 0.44
    """A pair that shares this part of the shorter one's runs is a candidate with a probability of .99. Random edits that leave
    70 % of the words in shared runs leave so many runs; those that leave 60 % leave .33."""

    hash_documents: int = 16
    """Containers that a sample lists: the first in the order."""

    max_removed_share: float = 0.75
    """A source that loses more than this share of its documents to containers and duplicates is wiped out: a blocking check
    stops what builds on it (`datakit.contained_rates`)."""

    def __post_init__(self) -> None:
        for name in ("min_containment", "min_shared", "max_removed_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"containment.{name} is {getattr(self, name)}; it must be in (0, 1]")
        for name in ("ngram_words", "scale", "asked_hashes", "hash_documents"):
            if getattr(self, name) < 1:
                raise ValueError(f"containment.{name} is {getattr(self, name)}; it must be at least 1")
        if self.min_words < self.ngram_words:
            raise ValueError(
                f"containment.min_words is {self.min_words}; it must be at least ngram_words, which is {self.ngram_words}"
            )


def sample_part(folder: Path, part: ScopePart, documents: Path, clusters: Path, config: ContainmentConfig) -> dict[str, int]:
    """Write what one part gives to the joins, and return the number of samples.

    `hashes`: samples end to end, ascending in each document. `ids` uint64 [rows, 2]; `words` int32 [rows]; `sampled` int32
    [rows]: samples of each document. A document that is a duplicate has no samples.
    """
    removed = removed_ids(clusters)
    ids: list[str] = []
    words, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with new_stream(folder, "hashes", part).open("wb") as stream:
        for table in iterate_part(documents, ["id", "text"]):
            names, texts = table["id"].to_pylist(), table["text"].to_pylist()
            ids += names
            joining = ["" if name in removed else text for name, text in zip(names, texts, strict=True)]
            for batch in batches(joining):
                hashes, bounds, counts = samples(batch, config)
                stream.write(hashes.tobytes())
                sizes.append(np.diff(bounds))
                words.append(counts)
    part.check_rows(len(ids), documents)
    halves = np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64).reshape(-1, 2)
    counts, sampled = (np.concatenate(each).astype(np.int32) for each in (words, sizes))
    save_part(folder, part, ids=halves, words=counts, sampled=sampled)
    return {"samples": int(sum(size.sum() for size in sizes))}


def samples(texts: Sequence[str], config: ContainmentConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return uint64 [samples], distinct and ascending in each text; int64 [texts + 1], their bounds; int64 [texts], the words.

    Texts below `min_words` have no samples. One below `ngram_words` counts as `ngram_words - 1` words.
    """
    shingles, bounds = batch_shingles(texts, config.ngram_words)
    sizes = np.diff(bounds)
    words = sizes + config.ngram_words - 1
    is_sampled = shingles <= np.uint64((1 << 64) // config.scale - 1)
    is_sampled &= np.repeat(words >= config.min_words, sizes)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_sampled)])
    hashes, sampled = unique_in_segments(shingles[is_sampled], before[bounds])
    return hashes, sampled, words


def sample_rows(sampled: PartFiles, asked_hashes: int, parts: Sequence[ScopePart]) -> pa.Table:
    """Return `hash`, `number` and `words` of every sample of some parts, and `asked`: 0, or if the document asks for this one,
    for how many it asks.
    """
    columns: list[tuple[np.ndarray, ...]] = []
    for part in parts:
        hashes = np.fromfile(sampled.folder / part_file("hashes", part), np.uint64)
        sizes, words = (sampled.load(name, part) for name in ("sampled", "words"))
        ends = np.cumsum(sizes, dtype=np.int64)
        place = np.arange(hashes.size) - np.repeat(ends - sizes, sizes)
        asked = np.where(place < asked_hashes, np.repeat(np.minimum(sizes, asked_hashes), sizes), 0)
        number = np.repeat(np.arange(part.first, part.end), sizes)
        columns.append((hashes, number, np.repeat(words, sizes), asked.astype(np.int32)))
    names = ("hash", "number", "words", "asked")
    return pa.table({name: np.concatenate(column) for name, column in zip(names, zip(*columns, strict=True), strict=True)})


def pairs_of_range(rows: pa.Table, hash_documents: int) -> pa.Table:
    """Return every pair (`contained`, `container`) of a range with the number of samples that they `shared`, by pair.

    The container comes first in the order: longer, or of equal length first by number. The first row is no pair: its `shared`
    counts samples that more documents have than are listed as containers.
    """
    ordered = _repeated(rows)
    hashes, numbers, asked = (ordered[name].to_numpy() for name in ("hash", "number", "asked"))
    starts = np.flatnonzero(is_first(ordered, "hash"))
    sizes = np.diff(np.append(starts, hashes.size))
    first = np.repeat(starts, sizes)
    containers = np.where(asked > 0, np.minimum(np.arange(hashes.size) - first, hash_documents), 0)
    pieces = [_pairs(np.array([NO_DOCUMENT]), np.array([NO_DOCUMENT]), np.array([(sizes > hash_documents).sum()]), np.zeros(1))]
    for low, high in _slices(containers):
        count = containers[low:high]
        contained = np.repeat(np.arange(low, high), count)
        container = first[contained] + np.arange(contained.size) - np.repeat(np.cumsum(count) - count, count)
        ones = np.ones(contained.size)
        pieces.append(_summed(_pairs(numbers[contained], numbers[container], ones, asked[contained])))
    return _summed(pa.concat_tables(pieces))


def candidates_of_range(rows: pa.Table, min_shared: float) -> pa.Table:
    """Return `contained` and `container` of pairs that share enough samples, by pair."""
    pairs = _summed(rows)
    contained, shared, asked = (pairs[name].to_numpy() for name in ("contained", "shared", "asked"))
    expected, deviation = min_shared * asked, np.sqrt(min_shared * (1 - min_shared) * asked)
    is_candidate = (contained != NO_DOCUMENT) & (shared >= np.maximum(1, np.floor(expected - Z_OF_99 * deviation)))
    return pairs.filter(pa.array(is_candidate)).select(["contained", "container"])


def _repeated(rows: pa.Table) -> pa.Table:
    """Return samples that several documents have, by hash, longest document first; rows arrive by number."""
    ordered = sorted_by(rows, "hash")
    first = is_first(ordered, "hash")
    is_alone = first & np.append(first[1:], True)
    several = ordered.filter(pa.array(~is_alone))
    order = np.lexsort((-several["words"].to_numpy(), several["hash"].to_numpy()))
    return several.take(pa.array(order))


def _slices(containers: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield runs of rows that give about `PAIRS_AT_ONCE` pairs."""
    before = np.cumsum(containers)
    low = 0
    while low < containers.size:
        done = before[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(before, done + PAIRS_AT_ONCE, side="right")))
        yield low, high
        low = high


def _pairs(contained: np.ndarray, container: np.ndarray, shared: np.ndarray, asked: np.ndarray) -> pa.Table:
    numbers = {"contained": contained.astype(np.int64), "container": container.astype(np.int64)}
    return pa.table(numbers | {"shared": shared.astype(np.int32), "asked": asked.astype(np.int32)})


def _summed(pairs: pa.Table) -> pa.Table:
    """Return each pair once, with its shared samples added, by pair."""
    if not pairs.num_rows:
        return pairs
    ordered = sorted_by(pairs, "contained", "container")
    first = is_first(ordered, "contained", "container")
    shared = np.add.reduceat(ordered["shared"].to_numpy(), np.flatnonzero(first))
    once = ordered.filter(pa.array(first))
    contained, container, asked = (once[name].to_numpy() for name in ("contained", "container", "asked"))
    return _pairs(contained, container, shared, asked)
