"""The external sort equals a loop in memory for any files, shards, runs, blocks and merges."""

import json
import random
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import Texts, corpus, file_bytes, made, printed_after_a_kill, random_texts
from properties import examples
from test_card import LEAK, card_node, with_tokens
from test_contamination_stage import ITEMS

from benchmarks.process_use import bytes_passed
from benchmarks.shuffled_shards import shuffled
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CorpusConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig, normalize
from datakit.documents.parts import document_paths, read_documents
from datakit.documents.sorted_runs import Cut, IdRange, RunWriter, gathered, merged
from datakit.invariants import check_documents, check_rows_conserved
from datakit.sources.source import Records
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.artifact import file_entries
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.storage.digests import file_digest, text_digest
from lineage.writing.writer import Writer

LINES = Records("jsonl")
EVERY_STAGE = (
    "raw", "normalize", "minhash", "duplicates", "paragraphs", "quality", "quality_rules", "scorer", "scores", "score_cutoff",
    "contamination_index", "contamination", "corpus", "tokenizer", "token_cache", "card",
)  # fmt: skip


@dataclass(frozen=True)
class Files:
    """Texts of the records of every file."""

    files: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True)
class CutConfig:
    config: NormalizeConfig
    cut: Cut


def write_files(out: Writer, config: Files) -> None:
    (out.folder / "files").mkdir()
    for index, texts in enumerate(config.files):
        lines = [json.dumps({"id": f"{index}.{i}", "text": text}) for i, text in enumerate(texts)]
        (out.folder / "files" / f"{index:02d}.jsonl").write_text("\n".join(lines))


def cut_otherwise(out: Writer, config: CutConfig, raw: Artifact) -> None:
    normalize(out, config.config, raw, config.cut)


RAW = Stage("tests.files", "1", write_files)
CUT_OTHERWISE = Stage(NORMALIZE.name, NORMALIZE.version, cut_otherwise)
SMALL = Cut(shard_bytes=300, run_bytes=600, block_bytes=40, fan_in=2)


def normalized(root: Path, files: tuple[tuple[str | None, ...], ...], cut: Cut, part_bytes: int = 1 << 28) -> Artifact:
    config = NormalizeConfig("s", LINES, "prose", target_part_bytes=part_bytes)
    raw = Node(("raw",), "s", RAW, Files(files))
    return made(root, Node(("normalized",), "s", CUT_OTHERWISE, CutConfig(config, cut), {"raw": raw}))


def plainly(files: tuple[tuple[str | None, ...], ...]) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """The reference: documents by id (text, place of the first record that has it), and (place, reason) of every drop."""
    kept, dropped = {}, []
    for index, texts in enumerate(files):
        for i, text in enumerate(texts):
            reason = "empty" if not text else "whitespace_only" if text.isspace() else ""
            if not reason and all(unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp") for character in text):
                reason = "no_visible_character"
            if not reason and text_digest(text) in kept:
                reason = "exact_duplicate"
            if reason:
                dropped.append((f"{index}.{i}", reason))
            else:
                kept[text_digest(text)] = (text, f"{index}.{i}")
    return kept, dropped


TEXT = st.one_of(st.none(), st.sampled_from(["", " ", "a", "b", "c" * 70]), st.text(st.characters(codec="utf-8"), max_size=50))
FILES = st.lists(st.lists(TEXT, min_size=1, max_size=12).map(tuple), min_size=1, max_size=4).map(tuple)
CUTS = st.builds(
    Cut,
    shard_bytes=st.integers(200, 2_000),
    run_bytes=st.integers(30, 400),
    block_bytes=st.integers(1, 200),
    fan_in=st.integers(2, 5),
)


@settings(max_examples=examples(8))
@given(FILES, CUTS, st.integers(60, 600))
def test_documents_are_those_of_a_loop_over_all_records(
    tmp_path_factory: pytest.TempPathFactory, files: tuple[tuple[str | None, ...], ...], cut: Cut, part_bytes: int
) -> None:
    root, (kept, dropped) = tmp_path_factory.mktemp("sorted"), plainly(files)
    if not kept:
        with pytest.raises(ValueError, match="no document survives"):
            normalized(root, files, cut)
        return
    artifact = normalized(root, files, cut, part_bytes)
    documents = read_documents(artifact)
    assert documents["id"].to_list() == sorted(kept)
    written = [(d["text"], json.loads(d["metadata"])["source_id"]) for d in documents.iter_rows(named=True)]
    assert written == [kept[i] for i in sorted(kept)]
    assert check_documents(artifact) == check_rows_conserved(artifact) == []
    repeats = {place for place, reason in dropped if reason == "exact_duplicate"}
    places = {place for _, place in kept.values()} | repeats
    size = sum(len((t or "").encode()) for f, ts in enumerate(files) for i, t in enumerate(ts) if f"{f}.{i}" in places)
    assert len(document_paths(artifact)) == max(1, -(-size // part_bytes))
    samples = pl.read_parquet(artifact.files("dropped.parquet")[0])
    first = [row for i, row in enumerate(dropped) if [r for _, r in dropped[:i]].count(row[1]) < 20]
    assert samples.select("source_id", "reason").rows() == first


def test_neither_cuts_nor_order_of_files_change_a_byte(tmp_path: Path) -> None:
    """Four cuts, two of them with merges of merges; then the files' contents change places."""
    texts = random_texts(30, 30, seed=51)
    files = tuple(tuple(texts[i : i + 10]) for i in range(0, 30, 7))
    cuts = (Cut(), SMALL, Cut(shard_bytes=5_000, run_bytes=1_000, block_bytes=1, fan_in=3), Cut(run_bytes=300))
    whole, *others = (normalized(tmp_path / str(i), files, cut, 2_000) for i, cut in enumerate(cuts))
    assert len(document_paths(whole)) > 3
    assert [other.data_version for other in others] == [whole.data_version] * 3
    turned = normalized(tmp_path / "turned", files[::-1], SMALL, 2_000)
    assert read_documents(turned)["text"].equals(read_documents(whole)["text"])


def test_long_texts_are_row_groups_of_their_own_and_change_only_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four long texts among forty, one of them twice, under three cuts."""
    texts = random_texts(36, 30, seed=57) + random_texts(4, 200, seed=58)
    files = (*(tuple(texts[i::3]) for i in range(3)), (texts[-1],))
    plain = normalized(tmp_path / "plain", files, Cut(), 2_000)
    long = {id for id, text in read_documents(plain).select("id", "text").rows() if len(text) >= 800}
    assert len(long) == 4
    monkeypatch.setattr("datakit.documents.parts.LONG_TEXT_BYTES", 800)
    monkeypatch.setattr("datakit.documents.sorted_runs.LONG_TEXT_BYTES", 800)
    cuts = (Cut(), SMALL, Cut(shard_bytes=900, run_bytes=1_000, block_bytes=1, fan_in=3))
    whole, *others = (normalized(tmp_path / str(i), files, cut, 2_000) for i, cut in enumerate(cuts))
    assert [other.data_version for other in others] == [whole.data_version] * 2
    assert read_documents(whole).equals(read_documents(plain))
    marked = []
    for path, before in zip(document_paths(whole), document_paths(plain), strict=True):
        with pq.ParquetFile(path) as file:
            groups = [file.read_row_group(i)["id"].to_pylist() for i in range(file.num_row_groups)]
            texts_of_file = file.metadata.row_group(0).column(file.schema_arrow.get_field_index("text"))
        marked.append(any(id in long for group in groups for id in group))
        assert all(len(group) == 1 for group in groups if long & set(group))
        assert texts_of_file.is_stats_set != marked[-1]
        assert (path.read_bytes() == before.read_bytes()) != marked[-1]
    assert len(set(marked)) == 2


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=9), st.integers(0, 9), st.randoms(use_true_random=False))
def test_gathered_rows_are_those_that_arrow_takes(texts: list[str], cut: int, rng: random.Random) -> None:
    table = pa.concat_tables([pa.table({"text": pa.array(part, pa.string())}) for part in (texts[:cut], texts[cut:])])
    order = np.array(rng.choices(range(len(texts)), k=rng.randrange(12)), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datakit.documents.sorted_runs.LONG_TEXT_BYTES", 3)
        assert gathered(table, order).equals(table.take(pa.array(order)))


@pytest.mark.parametrize(("held", "stretch"), [(1, 1), (20, 1), (39, 1), (60, 3)])
def test_a_merge_holds_few_blocks_of_every_run(tmp_path: Path, held: int, stretch: int) -> None:
    """Twenty runs of 50 documents: no round of a merge holds more than two stretches a run, whatever the range."""
    cut = Cut(run_bytes=50 * 32, block_bytes=8 * 32)
    writer = RunWriter(tmp_path, "r", cut, on_repeated=lambda rows: None)
    ids = [text_digest(str(i)) for i in range(1_000)]
    for order, i in enumerate(ids):
        writer.add((i, i.encode(), "s", "{}", order))
    writer.flush()
    runs = [tmp_path / run for run in writer.runs]
    assert len(runs) == 20
    for share in (1, 3):
        rounds = [kept for index in range(share) for kept, _ in merged(runs, IdRange.share(index, share), held)]
        assert pa.concat_tables(rounds)["id"].to_pylist() == sorted(ids)
        assert max(kept.num_rows for kept in rounds) <= 20 * 8 * 2 * stretch


def test_a_merge_reads_only_the_blocks_of_its_range(tmp_path: Path) -> None:
    """A tenth of a run of 250 blocks, with room for all of them in memory."""
    writer = RunWriter(tmp_path, "r", Cut(block_bytes=8_000), on_repeated=lambda rows: None)
    for order in range(1_000):
        text = np.random.default_rng(order).bytes(1_000).hex()
        writer.add((text_digest(text), text.encode(), "s", "{}", order))
    writer.flush()
    (run,) = (tmp_path / name for name in writer.runs)
    before = bytes_passed()[0]
    documents = sum(kept.num_rows for kept, _ in merged([run], IdRange.share(4, 10), 1_000))
    assert 50 < documents < 200 and bytes_passed()[0] - before < run.stat().st_size / 4


def test_nobody_reads_back_what_normalization_and_a_corpus_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(file_entries, "file_digest", lambda path: read.append(path.parent.name) or file_digest(path))
    texts = tuple(random_texts(40, 60, seed=53))
    documents = normalized(tmp_path / "documents", (texts,), Cut(), 3_000)
    assert len(document_paths(documents)) > 3 and read and "documents" not in read
    train = made(tmp_path / "corpus", corpus(Texts("here", texts, part_bytes=3_000)))
    assert "train" not in read
    documents.verify()
    train.verify()


@pytest.mark.parametrize("field", ["shard_bytes", "run_bytes", "block_bytes", "fan_in", "rewritten_bytes"])
def test_a_cut_of_nothing_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"cut.{field} is 0; it must be at least"):
        Cut(**{field: 0})


@pytest.mark.slow
def test_a_kill_in_a_merge_costs_that_part_and_changes_no_byte(tmp_path: Path) -> None:
    """The child dies while it writes the second of its parts; the next run parses nothing and writes the others."""
    files = (tuple(random_texts(40, 30, seed=52)),)
    few = replace(SMALL, shard_bytes=1 << 20, run_bytes=3_000, fan_in=8)
    whole = normalized(tmp_path / "whole", files, few, 2_000)
    parts = len(document_paths(whole))
    code = (
        "import os, signal, sys, datakit.documents.normalize as n; from test_sorted_runs import *\n"
        "real, read, marker = n.merged, n.read_file, Path(sys.argv[1]) / 'steps'\n"
        "def step(letter):\n"
        "    with marker.open('a') as stream: stream.write(letter)\n"
        "    if marker.read_text() == 'pmm': os.kill(os.getpid(), signal.SIGKILL)\n"
        "def merged(runs, ids, held):\n"
        "    for rows in real(runs, ids, held):\n"
        "        if ids.low not in seen: step('m')\n"
        "        seen.add(ids.low)\n"
        "        yield rows\n"
        "def parsed(*arguments):\n"
        "    step('p')\n"
        "    yield from read(*arguments)\n"
        "seen, n.merged, n.read_file = set(), merged, parsed\n"
        "files = (tuple(random_texts(40, 30, seed=52)),)\n"
        "few = replace(SMALL, shard_bytes=1 << 20, run_bytes=3_000, fan_in=8)\n"
        "print(normalized(Path(sys.argv[1]), files, few, 2_000).data_version)"
    )
    root = tmp_path / "killed"
    assert printed_after_a_kill(code, root) == [whole.data_version]
    assert parts > 3 and (root / "steps").read_text() == "pmm" + "m" * (parts - 1)


def real_marks(normalized: Node) -> Node:
    """The contamination of documents by the recommended policy, against an item that one of them quotes."""
    suite = Node(("suite",), None, ITEMS, [LEAK])
    index = Node(("index",), None, CONTAMINATION_INDEX, ContaminationConfig(), {"suites": (suite,)})
    inputs = {"normalized": normalized, "suites": (suite,), "index": index}
    return Node(("contamination", "s"), "leads", CONTAMINATION, ContaminationConfig(), inputs)


@pytest.mark.slow
def test_every_stage_up_to_a_card_writes_the_same_bytes_in_any_order_of_shards(tmp_path: Path) -> None:
    """With the filters that read rules, scores, their cutoff and paragraphs, over documents of several parts."""
    shared, *others = random_texts(31, 60, seed=54)
    texts = [LEAK, *others[5:], *(f"{shared}\n\n{other}" for other in others[:5])]
    records = [{"id": str(i), "text": text, "input_ids": [5, 6, 0]} for i, text in enumerate(texts)]
    filters = CorpusConfig(heldout_frac=0.2, rule_sets=("c4",), best_scores=True, cut_paragraphs=True)
    (folder := tmp_path / "files").mkdir()
    node = card_node(folder, records, keep=("input_ids",), filters=filters, part_bytes=3_000, marks=real_marks)
    card = with_tokens(node)
    one, other = made(tmp_path / "one", card), made(tmp_path / "other", shuffled(card, seed=2))
    pairs = list(zip(one.store.walk_up(one), other.store.walk_up(other), strict=True))
    stages = {a.spec.stage for a, _ in pairs}
    assert {f"datakit.{name}" for name in EVERY_STAGE} <= stages
    assert len(document_paths(one.input("normalized"))) > 3
    for a, b in pairs:
        assert (a.spec.version, a.data_version, file_bytes(a)) == (b.spec.version, b.data_version, file_bytes(b)), a.name


def test_the_default_stages_write_the_same_bytes_in_any_order_of_shards(tmp_path: Path) -> None:
    source = Texts("here", (*random_texts(40, 60, seed=53), "short lead"), part_bytes=3_000)
    of = corpus(source, how=CorpusConfig(heldout_frac=0.3))
    tokens = Node(("tokenizer", "small"), None, TOKENIZER, TokenizerConfig(vocab_size=300), {"corpora": (of,)})
    cache = Node(("cache",), "here", TOKEN_CACHE, TokenCacheConfig("here"), {"corpus": of, "tokenizer": tokens})
    one, other = made(tmp_path / "one", cache), made(tmp_path / "other", shuffled(cache, seed=1))
    pairs = list(zip(one.store.walk_up(one), other.store.walk_up(other), strict=True))
    assert len(pairs) == 8
    for a, b in pairs:
        assert (a.spec.version, a.data_version, file_bytes(a)) == (b.spec.version, b.data_version, file_bytes(b))
