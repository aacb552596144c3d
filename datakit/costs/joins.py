"""The shuffles of deduplication at any size: bytes, tasks, ranges and opened files, by the counts of the stages.

Tasks and ranges come from `lineage.tables.shuffle`, which the stages ask, too. So the plan of a scope that was run names
the files that were opened (`tests/datakit/test_cost_joins.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from datakit.dedup.band_join import ID_BYTES, PAIR_BYTES
from datakit.dedup.duplicates_table import COPY_BYTES, ROW_BYTES
from datakit.dedup.near_duplicates import MATCH_BYTES, walk_bytes
from datakit.dedup.paragraphs import PARAGRAPH_BYTES
from lineage.tables.components import EDGE_BYTES, LARGEST_GRAPH
from lineage.tables.shuffle import LARGEST_IN_PLACE_BYTES, Moved, group_count, opened_files, range_count, task_count

REPEAT_BYTES, SAID_BYTES, TEXT_BYTES, CLUSTER_BYTES = 24, 32, 32, 32
"""Rows of `repeats-by-number`, `removal_rows`, `rows_of_texts` and `clusters-by-number`."""
ROUNDS = 8
"""Rounds of the components of a graph above `LARGEST_GRAPH`: 6 to 8 were counted (docs/design/distributed_engine.md)."""


@dataclass(frozen=True)
class Scope:
    """What a deduplication of several sources meets. All but `bands` grow with the text."""

    documents: int
    parts: int
    bands: int
    pairs: int
    """Bands of documents that are no exact copy."""

    copies: int
    links: int
    """Edges that the ranges of bands give back."""

    stars: int
    """Edges of the components: candidates without the first of each component."""

    candidates: int
    shingles: int
    """Of all candidates."""

    matches: int
    rows: int
    """Documents of clusters."""

    paragraphs: int
    repeats: int

    @staticmethod
    def of(documents: int, parts: int, bands: int, shingles: int, moved: Mapping[str, Moved]) -> "Scope":
        """Return the counts of a run, from the bytes of its shuffles by name."""
        statements = moved["texts"].shuffled // SAID_BYTES
        copies = moved["copies"].written // COPY_BYTES
        return Scope(
            documents=documents,
            parts=parts,
            bands=bands,
            pairs=moved["links"].shuffled // PAIR_BYTES,
            copies=copies,
            links=moved["links"].written // EDGE_BYTES,
            stars=moved["members"].shuffled // EDGE_BYTES,
            candidates=moved["members"].written // EDGE_BYTES,
            shingles=shingles,
            matches=(statements - copies) // 2,
            rows=moved["texts"].written // TEXT_BYTES,
            paragraphs=moved["repeats"].shuffled // PARAGRAPH_BYTES,
            repeats=moved["repeats"].written // REPEAT_BYTES,
        )

    def times(self, factor: float) -> "Scope":
        """Return the counts for `factor` times the text, if its documents and copies are of the same kind."""
        counts = {name: round(count * factor) for name, count in vars(self).items()}
        return Scope(**(counts | {"bands": self.bands, "parts": max(1, counts["parts"])}))


@dataclass(frozen=True)
class Join:
    """One shuffle, or several equal ones."""

    name: str
    shuffled: int
    """Bytes that its tasks hand to its ranges, counted once."""

    tasks: int
    ranges: int
    times: int = 1

    @property
    def opens(self) -> int:
        """Files of rows that it opens."""
        return self.times * opened_files(self.tasks, self.ranges)

    @property
    def levels(self) -> int:
        """How often each byte moves."""
        return 1 if group_count(self.tasks, self.ranges) == self.ranges else 2

    @property
    def moved(self) -> int:
        """Bytes that move in all levels."""
        return self.levels * self.shuffled


def joins(scope: Scope) -> Iterator[Join]:
    """Yield the shuffles of `datakit.duplicates` and `datakit.paragraphs` in their order."""
    by_id = scope.documents * ID_BYTES
    copies = Join("copies", by_id, task_count(scope.parts, by_id), range_count(by_id))
    size = scope.copies * COPY_BYTES
    numbered = list(numbered_joins("copies", size, copies.ranges, scope.documents, size))
    of_copies = numbered[0].ranges if numbered else 1
    by_band = scope.documents * scope.bands * PAIR_BYTES
    links = Join("links", scope.pairs * PAIR_BYTES, task_count(scope.parts, by_band), range_count(by_band))
    yield from (copies, *numbered, links)
    size = scope.stars * EDGE_BYTES
    graph = list(component_joins("components", scope.links, links.ranges))
    yield from graph
    of_stars = graph[-1].ranges if graph else links.ranges
    members = Join("members", size, task_count(of_stars, size), range_count(2 * size))
    yield members
    text_bytes, files = scope.copies * COPY_BYTES, of_copies
    if scope.candidates:
        size = scope.candidates * EDGE_BYTES
        yield from numbered_joins("candidates", size, members.ranges, scope.documents, size)
        by_root = walk_bytes(scope.candidates, scope.shingles, scope.bands)
        walk = in_place("walk", by_root, scope.parts)
        yield walk
        text_bytes += (scope.matches + walk.ranges) * MATCH_BYTES  # the first row of each range counts its full bands
        files += walk.ranges
    statement_bytes = (scope.copies + 2 * scope.matches) * SAID_BYTES
    texts = Join("texts", statement_bytes, task_count(files, text_bytes), range_count(text_bytes))
    of_texts = scope.rows * TEXT_BYTES
    keyed = scope.rows * ROW_BYTES
    clusters = Join("clusters", keyed, task_count(texts.ranges, of_texts), range_count(keyed))
    yield from (texts, clusters)
    yield from numbered_joins("clusters", keyed, clusters.ranges, scope.documents, scope.rows * CLUSTER_BYTES)
    by_digest = scope.paragraphs * PARAGRAPH_BYTES
    repeats = Join("repeats", by_digest, task_count(scope.parts, by_digest), range_count(by_digest))
    yield repeats
    size = scope.repeats * REPEAT_BYTES
    yield from numbered_joins("repeats", size, repeats.ranges, scope.documents, size)


def in_place(name: str, size: int, items: int) -> Join:
    """Return a shuffle of `size` bytes, of some items, whose ranges are read where they lie."""
    return Join(name, size, task_count(items, size, LARGEST_IN_PLACE_BYTES), range_count(size, LARGEST_IN_PLACE_BYTES))


def numbered_joins(name: str, size: int, parts: int, documents: int, shuffled: int) -> Iterator[Join]:
    """`datakit.dedup.numbered` of `size` bytes in some parts, whose chosen columns have `shuffled` bytes: no shuffle if the
    rows are a single small part.
    """
    ranges = min(documents, range_count(size))
    if parts > 1 or ranges > 1:
        yield Join(f"{name}-by-number", shuffled, task_count(parts, size), ranges)


def component_joins(name: str, edges: int, parts: int) -> Iterator[Join]:
    """`lineage.tables.components`. A round moves each edge from both ends, then from one; the largest are taken for all."""
    size = edges * EDGE_BYTES
    if edges <= LARGEST_GRAPH:
        if parts > 1:
            yield Join(f"{name}-last", size, task_count(parts, size), 1)
        return
    count = range_count(2 * size)
    yield Join(f"{name}-large", ROUNDS * 2 * size, task_count(max(parts, count), size), count, ROUNDS)
    yield Join(f"{name}-small", ROUNDS * size, task_count(count, size), count, ROUNDS)
