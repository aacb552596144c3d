"""Planned joins: the files that a plan names are those that a run opens, at a small size; the bar at 5e9 documents."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from inputs import Texts, documents, duplicates, edited, made, minhash, random_texts

from datakit.costs.contained import Contained, ContainmentRates, containment_joins
from datakit.costs.joins import Scope, joins
from datakit.dedup.containment import CONTAINMENT, find_contained
from datakit.dedup.containment_candidates import ContainmentConfig
from datakit.dedup.duplicates import DUPLICATES, DuplicatesConfig, find_duplicates
from datakit.dedup.minhash import MinHashConfig
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig, find_repeats
from datakit.documents.parts import document_paths
from lineage.artifact.store import Store
from lineage.build.nodes import Node, spec_of
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import LARGEST_BYTES, LARGEST_IN_PLACE_BYTES, LARGEST_TASK_BYTES
from lineage.writing.write import writing

BANDS = 96
SIGNED = MinHashConfig(bands=BANDS, rows=1)


@dataclass
class Opened:
    """Counts the files of rows that are mapped, by shuffle."""

    counts: Counter[str] = field(default_factory=Counter)

    def __call__(self, path, *arguments):
        parts = str(path).split("/")
        if parts[-2] == "rows":
            self.counts[parts[-3]] += 1
        return OPEN(path, *arguments)


OPEN = pa.memory_map


def sources(number):
    originals = random_texts(number, 80, seed=5)
    texts = [edited(text, seed=1, edits=1) for text in originals[::2]]
    (shared,) = random_texts(1, 30, seed=6)
    originals += [f"{text}\n\n{shared}" for text in random_texts(8, 200, seed=7)]
    return Texts("a", tuple(originals), part_bytes=9_000), Texts("b", (*texts, *originals[::3]), part_bytes=9_000)


def assert_shuffled(planned, moved):
    """Bytes are equal, but rows of bytes have an offset more in every batch, which is nothing where batches are large."""
    assert {join.name for join in planned} == moved.keys()
    for join in planned:
        over = moved[join.name].shuffled - join.shuffled
        assert over == 0 or (join.name in ("walk", "contained-verified") and 0 < over <= 24 * join.tasks * join.ranges)


@pytest.mark.parametrize(
    ("number", "range_bytes", "most_opens"), [(60, 800, 1 << 13), (60, 800, 20), (120, 3_000, 20), (120, 16 << 20, 20)]
)
def test_the_planned_files_are_the_opened_ones(tmp_path, monkeypatch, number, range_bytes, most_opens):
    monkeypatch.setattr("lineage.tables.shuffle.MOST_OPENS", most_opens)
    given = sources(number)
    normalized = [made(tmp_path, documents(source)) for source in given]
    signed = [made(tmp_path, minhash(source, SIGNED)) for source in given]
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", range_bytes)
    opened, engine, store = Opened(), LocalEngine(SCRATCH_FOLDER, 1), Store(str(tmp_path))
    monkeypatch.setattr(pa, "memory_map", opened)
    inputs = {"normalized": tuple(map(documents, given)), "minhash": tuple(minhash(source, SIGNED) for source in given)}
    node = Node(("duplicates", "scope"), None, DUPLICATES, DuplicatesConfig(), inputs)
    execution = Execution(1, tables=engine)
    with writing(store, spec_of(store, node), execution=execution) as found:
        find_duplicates(found, DuplicatesConfig(), tuple(normalized), tuple(signed))
    repeats = Node(("p",), None, PARAGRAPHS, ParagraphsConfig(), {"normalized": inputs["normalized"], "duplicates": node})
    with writing(store, spec_of(store, repeats), execution=execution) as out:
        find_repeats(out, ParagraphsConfig(), tuple(normalized), found.artifact)
    moved = {each.name: each for each in engine.moved}
    rows = sum(artifact.manifest.statistics["rows_out"] for artifact in normalized)
    parts = sum(len(document_paths(artifact)) for artifact in normalized)
    assert found.artifact is not None
    scope = Scope.of(rows, parts, BANDS, found.artifact.manifest.extra["duplicates"]["compared_shingles"], moved)
    planned = list(joins(scope))
    assert {join.name: join.opens for join in planned if join.opens} == opened.counts
    assert_shuffled(planned, moved)
    assert scope.times(1) == scope and scope.copies and scope.matches and scope.repeats
    assert (range_bytes == 16 << 20) == (not opened.counts)
    assert (most_opens == 20 and bool(opened.counts)) == any(join.levels == 2 for join in planned)


@pytest.mark.parametrize(("range_bytes", "most_opens"), [(800, 1 << 13), (3_000, 20), (16 << 20, 20)])
def test_so_are_those_of_containment(tmp_path, monkeypatch, range_bytes, most_opens):
    monkeypatch.setattr("lineage.tables.shuffle.MOST_OPENS", most_opens)
    long = random_texts(40, 120, seed=8)
    cuts = [" ".join(edited(text, seed=2, edits=1).split()[10:70]) for text in long[::2]]
    given = Texts("long", tuple(long), part_bytes=9_000), Texts("cut", tuple(cuts), part_bytes=9_000)
    normalized, scope = [made(tmp_path, documents(source)) for source in given], duplicates(given)
    found = made(tmp_path, scope)
    monkeypatch.setattr("lineage.tables.shuffle.RANGE_BYTES", range_bytes)
    opened, engine, store = Opened(), LocalEngine(SCRATCH_FOLDER, 1), Store(str(tmp_path))
    monkeypatch.setattr(pa, "memory_map", opened)
    inputs = {"normalized": tuple(map(documents, given)), "duplicates": scope}
    node = Node(("containment", "scope"), None, CONTAINMENT, ContainmentConfig(), inputs)
    with writing(store, spec_of(store, node), execution=Execution(1, tables=engine)) as out:
        find_contained(out, ContainmentConfig(), tuple(normalized), found)
    moved = {each.name: each for each in engine.moved}
    assert out.artifact is not None
    counts = Contained.of(moved, out.artifact.manifest.extra["containment"]["compared_bytes"])
    rows = sum(artifact.manifest.statistics["rows_out"] for artifact in normalized)
    parts = sum(len(document_paths(artifact)) for artifact in normalized)
    planned = list(containment_joins(counts, rows, parts))
    assert {join.name: join.opens for join in planned if join.opens} == opened.counts
    assert_shuffled(planned, moved)
    assert counts.times(1) == counts and counts.removed == len(cuts) and counts.stars


def test_the_joins_of_5e9_documents_open_fewer_than_a_million_files_with_containment():
    """10 TB in documents of 2 kB, of which 30 % are candidates and 10 % copies; a candidate has edges in six ranges."""
    contained = ContainmentRates.read(Path("data/rates/containment.json")).at(10e12)
    scope = Scope(
        documents=5_000_000_000,
        parts=40_000,
        bands=14,
        pairs=63_000_000_000,
        copies=500_000_000,
        links=9_000_000_000,
        stars=1_000_000_000,
        candidates=1_500_000_000,
        shingles=375_000_000_000,
        matches=700_000_000,
        rows=1_800_000_000,
        paragraphs=25_000_000_000,
        repeats=2_500_000_000,
    )
    planned = [*joins(scope), *containment_joins(contained, scope.documents, scope.parts)]
    assert sum(join.opens for join in planned) < 1_000_000
    for join in planned:
        in_place = join.name in ("walk", "contained-verified")
        largest, task = (LARGEST_IN_PLACE_BYTES,) * 2 if in_place else (LARGEST_BYTES, LARGEST_TASK_BYTES)
        assert join.shuffled / join.times <= min(join.ranges * largest, join.tasks * task), join
