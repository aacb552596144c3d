"""Vectors of documents, and the removal of documents that say the same: the walk, the clusters, the stages."""

import importlib.util
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, corpus, documents, duplicates, made, random_texts

from datakit.corpus.filters import CorpusConfig
from datakit.dedup.numbered import Numbered
from datakit.dedup.scope_parts import ScopePart
from datakit.documents.parts import document_paths, writing_part
from datakit.documents.schemas import SEMANTIC_FOLDER
from datakit.semantics.centroids import BINS, centroids, nearest_centroids
from datakit.semantics.duplicates import SEMANTIC_DUPLICATES, SemanticDuplicatesConfig
from datakit.semantics.embeddings import EMBEDDINGS, FOLDER, SCHEMA, EmbeddingsConfig, quantized
from datakit.semantics.encoder import PACKAGE, WIDTH
from datakit.semantics.pieces import pieces
from datakit.semantics.removed import removals_of
from datakit.semantics.vectors import Scope
from datakit.semantics.walk import walk
from datakit.text.arrays import save
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

BARS = (0.8, 0.85, 0.9, 0.95)
INSTALLED = importlib.util.find_spec(PACKAGE.replace("-", "_")) is not None
needs_model = pytest.mark.skipif(not INSTALLED, reason=f"the optional package {PACKAGE} is not installed")
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Topics:
    """Vectors of texts `<topic> <noise> <number>`: near those of one topic. `none` has none, a source of code ids alone."""


def vector_of(text: str) -> np.ndarray | None:
    if text.startswith(("none", "code")):
        return None
    topic, noise, number = text.split()
    base = np.random.default_rng(int(topic)).normal(size=WIDTH)
    return quantized((base + float(noise) * np.random.default_rng(1_000 + int(number)).normal(size=WIDTH))[None])[0]


def _write_vectors(out: Writer, config: Topics, normalized: Artifact) -> None:
    for path in document_paths(normalized):
        rows = pl.read_parquet(path, columns=["id", "text"])
        vectors = [vector_of(text) for text in rows["text"]]
        stored = pa.array([None if v is None else v.tobytes() for v in vectors], SCHEMA.field("vector").type)
        table = pa.table([pa.array(rows["id"].to_list()), stored], schema=SCHEMA)
        table = table.select(["id"]) if rows["text"].str.starts_with("code").all() else table
        with writing_part(out.folder / FOLDER / path.name, table.schema) as part:
            part.write(table)


VECTORS = Stage("tests.vectors", "1", _write_vectors)


def topic_texts(count: int, topics: int, seed: int) -> tuple[str, ...]:
    random = np.random.default_rng(seed)
    rows = zip(random.integers(0, topics, count), random.uniform(0, 1.2, count), strict=True)
    return tuple(f"{topic} {noise:.3f} {seed * 10_000 + number}" for number, (topic, noise) in enumerate(rows))


def semantic(sources: tuple[Texts, ...], how: SemanticDuplicatesConfig) -> Node:
    inputs = {
        "normalized": tuple(map(documents, sources)),
        "embeddings": tuple(
            Node((s.line, "vectors"), s.source, VECTORS, Topics(), {"normalized": documents(s)}) for s in sources
        ),
        "duplicates": duplicates(sources),
    }
    return Node(("semantic_duplicates", "scope"), None, SEMANTIC_DUPLICATES, how, inputs)


def removed_by(artifact: Artifact) -> dict[str, tuple[str, float]]:
    """Id -> kept id and cosine, of what is removed; every table has the rows of its documents."""
    tables = [pl.read_parquet(path) for path in artifact.files(".parquet", under=SEMANTIC_FOLDER)]
    rows = pl.concat(tables)
    assert (rows["cosine"].is_null() == (rows["kept_id"] == "")).all()
    return {row[0]: row[1:] for row in rows.filter(pl.col("kept_id") != "").iter_rows()}


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    dots = [int(np.dot(x.astype(np.int64), y.astype(np.int64))) for x, y in ((a, b), (a, a), (b, b))]
    return float(dots[0] / np.sqrt(float(dots[1] * dots[2]))) if dots[1] and dots[2] else 0.0


def slow_walk(vectors: np.ndarray, bar: float) -> dict[int, tuple[int, float]]:
    """Row -> (kept row, cosine) by all pairs, one after the other."""
    kept: list[int] = []
    removed: dict[int, tuple[int, float]] = {}
    for row, vector in enumerate(vectors):
        best = max(((cosine(vector, vectors[k]), -k) for k in kept), default=(-2.0, 0))
        if best[0] >= bar:
            removed[row] = (-best[1], best[0])
        else:
            kept.append(row)
    return removed


def found_by(vectors: np.ndarray, bars: tuple[float, ...]) -> list[dict[int, tuple[int, float]]]:
    found = walk(vectors, bars)
    rows = list(zip(found.threshold, found.row, found.kept_row, found.cosine, strict=True))
    return [{int(row): (int(kept), float(near)) for at, row, kept, near in rows if at == number} for number in range(len(bars))]


@given(st.integers(1, 40), st.integers(0, 1 << 20), st.sampled_from([3, 64]))
def test_who_is_gone_at_a_threshold_takes_no_part_in_it(count: int, seed: int, block: int) -> None:
    random = np.random.default_rng(seed)
    bases = random.normal(size=(3, WIDTH))
    vectors = quantized(bases[random.integers(0, 3, count)] + 0.5 * random.normal(size=(count, WIDTH)))
    gone = random.random((count, 2)) < 0.3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datakit.semantics.walk.BLOCK_ROWS", block)
        found = walk(vectors, (0.7, 0.8), gone)
    for number, bar in enumerate((0.7, 0.8)):
        rows = np.flatnonzero(~gone[:, number])
        expected = {int(rows[row]): int(rows[kept]) for row, (kept, _) in slow_walk(vectors[rows], bar).items()}
        here = found.threshold == number
        assert dict(zip(found.row[here].tolist(), found.kept_row[here].tolist(), strict=True)) == expected


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 1 << 20), st.sampled_from([1, 3, 7, 64]))
def test_the_walk_removes_what_all_pairs_remove(count: int, topics: int, seed: int, block: int) -> None:
    random = np.random.default_rng(seed)
    bases = random.normal(size=(topics, WIDTH))
    noise = random.uniform(0, 1, (count, 1)) * random.normal(size=(count, WIDTH))
    vectors = quantized(bases[random.integers(0, topics, count)] + noise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datakit.semantics.walk.BLOCK_ROWS", block)
        assert found_by(vectors, BARS) == [slow_walk(vectors, bar) for bar in BARS]


def padded(*rows: tuple[int, ...]) -> np.ndarray:
    vectors = np.zeros((len(rows), WIDTH), np.int8)
    for at, row in enumerate(rows):
        vectors[at, : len(row)] = row
    return vectors


def test_a_cosine_at_the_threshold_matches_and_one_below_does_not() -> None:
    assert found_by(padded((100,), (80, 60)), (0.8,)) == [{1: (0, 0.8)}]
    assert found_by(padded((100,), (80, 61)), (0.8,)) == [{}]
    assert found_by(padded((100, 3), (100, 3), (100, 4)), (1.0,)) == [{1: (0, 1.0)}]
    assert found_by(padded((), (), (5,)), (0.1,)) == [{}]


def test_a_document_is_not_removed_for_one_that_is_removed() -> None:
    """The second is near the first, the third is near the second alone."""
    chain = padded((100,), (80, 60), (28, 96))
    assert found_by(chain, (0.8,)) == [{1: (0, 0.8)}]
    assert found_by(chain[[1, 0, 2]], (0.79,)) == [{1: (0, 0.8), 2: (0, 0.8)}]


@given(st.lists(st.lists(st.integers(0, 40), min_size=BINS, max_size=BINS), min_size=1, max_size=3), st.integers(1, 5_000))
def test_every_document_is_in_one_piece_of_its_cluster(counts: list[list[int]], largest: int) -> None:
    table = np.array(counts)
    cut = pieces(table, largest)
    bins = np.repeat(np.arange(table.size), table.ravel())
    high = np.random.default_rng(0).integers(0, 1 << 64, bins.size, np.uint64, endpoint=False)
    tasks = cut.of(bins, high)
    assert bins.size == 0 or (tasks.min() >= 0 and tasks.max() < cut.tasks)
    of_cluster = [set(tasks[bins // BINS == cluster].tolist()) for cluster in range(len(table))]
    assert sum(map(len, of_cluster)) == len(set().union(*of_cluster))
    giants = [sizes for sizes in counts if sum(sizes) > largest]
    assert (cut.giants, cut.cut) == (len(giants), sum(map(sum, giants)))
    if largest >= 40:
        assert bins.size == 0 or np.bincount(tasks).max() <= largest


def test_a_bin_that_is_too_large_is_shared_by_ids() -> None:
    counts = np.zeros((1, BINS), np.int64)
    counts[0, [3, 9, 10]] = 4, 1_000, 5
    cut = pieces(counts, 100)
    high = np.linspace(0, 2**64 - 4096, 1_000).astype(np.uint64)
    shared = cut.of(np.full(1_000, 9), high)
    assert np.bincount(shared)[1:].tolist() == [100] * 10 and np.bincount(shared)[0] == 0
    assert cut.of(np.array([3, 10]), high[:2]).tolist() == [0, 11] and cut.tasks == 12


def test_centroids_are_those_of_groups_and_the_nearest_is_exact() -> None:
    random = np.random.default_rng(3)
    bases = random.normal(size=(4, WIDTH))
    group = np.arange(200) % 4
    vectors = quantized(bases[group] + 0.3 * random.normal(size=(200, WIDTH)))
    centres = centroids(vectors, 4, 10)
    nearest, cosines = nearest_centroids(vectors, centres)
    assert cosines == pytest.approx([cosine(v, centres[c]) for v, c in zip(vectors, nearest, strict=True)], abs=1e-12)
    assert [max(range(4), key=lambda c: cosine(v, centres[c])) for v in vectors] == nearest.tolist()
    assert len({(int(a), int(b)) for a, b in zip(group, nearest, strict=True)}) == 4
    assert len(centroids(vectors[:2], 4, 10)) == 2 and len(centroids(vectors[:0], 4, 10)) == 0


def test_who_is_removed_for_a_document_that_goes_later_is_compared_with_the_one_that_stays(tmp_path: Path) -> None:
    """The second round removes 0 for 2 and 3 for 5, for which the first one removed 1 and 4; 4 is not near 5."""
    vectors = padded((100,), (100, 5), (100, -5), (80, 60), (28, 96), (100, 0, 5))
    part = ScopePart(0, "a", "a.parquet", 0, 6)
    for name, values in (("rows", np.arange(6)), ("vectors", vectors)):
        save(tmp_path / f"{name}/000000.npy", values)
    scope = Scope(tmp_path, (part,))

    def numbered(name: str, *rows: tuple[int, int, int, float]) -> Numbered:
        found = np.array([(*row[:3], np.float64(row[3]).view(np.int64)) for row in rows], np.int64).reshape(-1, 4)
        half = np.searchsorted(found[:, 0], 3)
        paths = (tmp_path / f"{name}-0.npy", tmp_path / f"{name}-1.npy")
        for path, values in zip(paths, (found[:half], found[half:]), strict=True):
            save(path, values)
        return Numbered(paths, 6, len(rows))

    first = numbered("first", (1, 0, 0, 0.998), (4, 3, 0, 0.8), (4, 3, 1, 0.8))
    second = numbered("second", (0, 2, 0, 0.998), (3, 5, 1, 0.798))
    found = removals_of(part, scope, (first, second), (0.79, 0.795))
    near = cosine(vectors[1], vectors[2])
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [
        (0, 2, 0, 0.998),
        (1, 2, 0, near),
        (3, 5, 1, 0.798),
        (4, 3, 0, 0.8),
    ]


ONE = SemanticDuplicatesConfig(min_cosine=0.9)
MANY = replace(ONE, cluster_documents=20, sample_of_cluster=5)


def sources(part_bytes: int) -> tuple[Texts, ...]:
    """Two sources that share exact copies, with a text without a vector, and a source of code."""
    first, second = topic_texts(90, 12, seed=1), topic_texts(60, 12, seed=2)
    texts = {"a": (*first, "none"), "b": (*second, *first[:9]), "c": ("code 1", "code 2")}
    return tuple(Texts(source, its, part_bytes=part_bytes) for source, its in texts.items())


def test_a_scope_of_one_cluster_is_compared_as_a_whole(tmp_path: Path) -> None:
    scope = sources(1 << 20)
    artifact = made(tmp_path, semantic(scope, ONE))
    texts = {text_digest(text): text for source in scope for text in source.texts if vector_of(text) is not None}
    ids = sorted(texts)
    vectors = np.stack([vector_of(texts[i]) for i in ids])
    expected = {ids[row]: (ids[kept], near) for row, (kept, near) in slow_walk(vectors, 0.9).items()}
    assert removed_by(artifact) == expected and len(expected) > 20
    facts = artifact.manifest.extra["semantic_duplicates"]
    assert facts["documents"] == 150 and facts["clusters"] == [1]
    assert facts["removed_at"] == [{"cosine": bar, "documents": len(slow_walk(vectors, bar))} for bar in BARS]
    assert sum(facts["removed_by_source"].values()) == len(expected) == artifact.manifest.statistics["semantic_duplicates"]
    for pair in facts["examples"]:
        assert pair["removed_at"] <= pair["cosine"] + 1e-4 and pair["text"][:3] in ("a: ", "b: ")
        assert pair["text"][3:].split()[0] == pair["kept_text"][3:].split()[0]
    assert {pair["removed_at"] for pair in facts["examples"]} == set(BARS)


def test_the_result_depends_on_neither_workers_nor_parts_nor_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(tmp_path / "one", semantic(sources(1 << 20), MANY))
    monkeypatch.setattr("datakit.semantics.duplicates.SMALL_SCOPE_ROWS", 0)
    monkeypatch.setattr("datakit.semantics.duplicates.range_count", lambda size: 3)
    node = semantic(sources(800), MANY)
    for parent in node.parents():
        made(tmp_path / "two", parent)
    cut = build(Store(str(tmp_path / "two")), node, execution=Execution(2)).artifact
    assert len(cut.files(".parquet")) == 5 and cut.manifest.extra == whole.manifest.extra
    assert removed_by(cut) == removed_by(whole)
    assert whole.manifest.extra["semantic_duplicates"]["clusters"] == [8, 5]


def test_what_clusters_and_pieces_remove_is_near_a_document_that_stays(tmp_path: Path) -> None:
    exact = made(tmp_path, semantic(sources(1 << 20), ONE))
    counts = {}
    for name, how in (("many", MANY), ("once", replace(MANY, rounds=1)), ("cut", replace(MANY, max_cluster_documents=10))):
        artifact = made(tmp_path / name, semantic(sources(1 << 20), how))
        removed = removed_by(artifact)
        texts = {text_digest(text): text for source in sources(0) for text in source.texts}
        for identity, (kept, near) in removed.items():
            one, other = vector_of(texts[identity]), vector_of(texts[kept])
            assert one is not None and other is not None and cosine(one, other) == near >= 0.9
        assert not {kept for kept, _ in removed.values()} & removed.keys()
        counts[name] = len(removed)
        giants = artifact.manifest.extra["semantic_duplicates"]["giant_clusters"]
        assert (giants["cut"] > 0) == (name == "cut") and giants["documents"] <= 300
    assert 0 < counts["cut"] < counts["many"] and 0 < counts["once"] < counts["many"] <= len(removed_by(exact))


def test_a_corpus_drops_them(tmp_path: Path) -> None:
    scope = (Texts("a", (*topic_texts(60, 4, seed=5), *random_texts(3, 60, seed=3)[:0]), domain="prose"),)
    how = CorpusConfig(drop_low_quality=False, drop_semantic_duplicates=True, heldout_frac=0.0)
    node = corpus(scope[0], how=how)
    found = semantic(scope, ONE)
    artifact = made(tmp_path, replace(node, inputs={**node.inputs, "semantic_duplicates": found}))
    count = len(removed_by(made(tmp_path, found)))
    assert artifact.manifest.statistics["drops"]["semantic_duplicate"] == count > 5
    assert "semantic_duplicates" not in CorpusConfig().reads


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_cosine": 1.5}, "a cosine is 1.5"),
        ({"iterations": 0}, "iterations is 0"),
        ({"rounds": 3}, "rounds is 3; it is 1 or 2"),
    ],
)
def test_a_config_that_cannot_be_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ONE, **change)


def paraphrases(count: int) -> list[dict[str, str]]:
    """Rows of the lab's paraphrases, with the question that each restates."""
    rows = [json.loads(line) for line in (ROOT / "benchmarks/data/paraphrases.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["task"] == "gsm8k"][:count]
    items = [json.loads(line) for line in (ROOT / "data/eval_items/gsm8k.jsonl").read_text().splitlines()]
    questions = {item["item_id"]: item["question"] for item in items}
    return [row | {"question": questions[row["item_id"]]} for row in rows]


@needs_model
def test_paraphrases_are_removed_and_other_questions_about_the_same_stay(tmp_path: Path) -> None:
    rows = paraphrases(8)
    source = documents(texts := Texts("here", tuple(row[kind] for row in rows for kind in ("question", "paraphrase"))))
    config = EmbeddingsConfig("prose", min_chars=20)
    vectors = Node(("datakit", "embeddings"), "here", EMBEDDINGS, config, {"normalized": source})
    inputs = {"normalized": (source,), "embeddings": (vectors,), "duplicates": duplicates((texts,))}
    how = SemanticDuplicatesConfig(min_cosine=0.8)
    artifact = made(tmp_path, Node(("semantic_duplicates", "scope"), None, SEMANTIC_DUPLICATES, how, inputs))
    group = {text_digest(row[kind]): row["item_id"] for row in rows for kind in ("question", "paraphrase")}
    removed = removed_by(artifact)
    assert len(removed) >= 6 and all(group[one] == group[kept] for one, (kept, _) in removed.items())
    facts = made(tmp_path, vectors).manifest.extra["embeddings"]
    assert facts["embedded"] == facts["windows"] == 16 and facts["sha256"].startswith("99f70446")
