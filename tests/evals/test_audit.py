"""The contamination audit on made-up artifacts with known truth: each document's tokens are its number."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from evals.audit.build import AUDIT, AuditConfig, verify_exposures
from evals.audit.summary import excerpt_near, matched_text
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.order.batches import BatchSchedule
from lineage.order.mixture import MIXTURE, MixtureConfig, Phase
from lineage.order.order import DataOrder
from lineage.order.token_shards import tokens_extra, write_token_shard
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from marin_assets.invariants import judge_contamination

SEQ_LEN, BATCH_SIZE = 8, 4
ITEM_SCHEMA = {"suite": pl.String, "task": pl.String, "item_id": pl.String}
MATCH_SCHEMA = {
    "id": pl.String, **ITEM_SCHEMA, "channel": pl.String, "tier": pl.String, "score": pl.Float64, "start_byte": pl.Int64,
    "end_byte": pl.Int64, "longest_run": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True)
class Doc:
    """A document of the fabricated corpus. `number` is its text and each of its tokens."""

    number: int
    num_tokens: int
    fate: str = "train"
    matches: tuple[tuple[str, str], ...] = ()
    """(item, tier)."""

    @property
    def id(self) -> str:
        return text_digest(self.text)

    @property
    def text(self) -> str:
        return f"document {self.number}"


@dataclass(frozen=True)
class Source:
    """One source: what it holds, what its component is called, and how its artifacts lie, if they do."""

    name: str
    docs: tuple[Doc, ...]
    component: str
    statuses: Mapping[str, str]
    lie: str = ""


@dataclass(frozen=True)
class Items:
    """The items of a suite; `text` is the text of each."""

    items: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True)
class Steps:
    """A checkpoint's config."""

    step: int


def write_suite(out: Writer, config: Items) -> None:
    rows = [("suite", item.split("/")[0], item.split("/")[1]) for item in config.items]
    texts = [pl.lit("").alias("passage"), pl.lit("what?").alias("question"), pl.lit("that").alias("answer")]
    pl.DataFrame(rows, schema=ITEM_SCHEMA, orient="row").with_columns(texts).write_parquet(out.folder / "items.parquet")
    (out.folder / "text").write_text(config.text)


def write_normalized(out: Writer, config: Source) -> None:
    (out.folder / "documents.txt").write_text("\n".join(doc.text for doc in config.docs))


def write_marks(out: Writer, config: Source, normalized: Artifact, suites: tuple[Artifact, ...]) -> None:
    matches = [
        (doc.id, "suite", *item.split("/"), "question", tier, 0.5, 0, 8, 20)
        for doc in config.docs
        for item, tier in doc.matches
    ]
    items = pl.read_parquet(suites[0].files("items.parquet")[0]).select(*ITEM_SCHEMA)
    keys = [f"{task}/{item}" for _, task, item in items.iter_rows()]
    statuses = items.with_columns(
        status=pl.Series([config.statuses.get(key, "clean") for key in keys], dtype=pl.String), num_documents=0
    )
    pl.DataFrame(matches, schema=MATCH_SCHEMA, orient="row").write_parquet(out.folder / "matches.parquet")
    kept = statuses.head(statuses.height - 1) if config.lie == "an item is not marked" else statuses
    kept.write_parquet(out.folder / "items.parquet")
    out.extra["contamination"] = {"policy": "tests"}
    out.extra["canaries"] = {"items": 4, "recall": {"verbatim": 1.0}, "false_positives": {"shuffled": 0.0}}


def write_corpus(out: Writer, config: Source, normalized: Artifact, contamination: Artifact) -> None:
    docs = config.docs[1:] if config.lie == "a document is lost" else config.docs
    for split in ("train", "heldout"):
        (out.folder / split).mkdir()
        frame = pl.DataFrame({"id": [d.id for d in docs if d.fate == split], "text": [d.text for d in docs if d.fate == split]})
        frame.cast(pl.String).write_parquet(out.folder / split / "part-00000-of-00001.parquet")
    if config.lie == "made again":  # no lie: files that no cache is made from
        (out.folder / "more.txt").write_text("another corpus, of the same train documents")
    rows = [(doc.id, doc.fate) for doc in docs if doc.fate not in ("train", "heldout")]
    schema = {"id": pl.String, "reason": pl.String}
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(out.folder / "dropped.parquet")


def write_cache(out: Writer, config: Source, corpus: Artifact) -> None:
    kept = [doc for doc in config.docs if doc.fate == "train" or config.lie == "the cache holds a dropped document"]
    shard = write_token_shard(out.folder, "s", [(d.id, np.full(d.num_tokens, d.number)) for d in kept], "uint16")
    out.facts["tokens"] = tokens_extra(config.component, "uint16", 1 << 16, "tokenizer", None, None, [shard])


def write_checkpoint(out: Writer, config: Steps, mixture: Artifact, **more: Artifact) -> None:
    (out.folder / "state.json").write_text(json.dumps({"step": config.step}))
    out.extra["checkpoint"] = {
        "format": "checkpoint/1", "step": config.step, "batch_size": BATCH_SIZE, "seq_len": SEQ_LEN
    }  # fmt: skip


SUITE = Stage("tests.suite", "1", write_suite)
NORMALIZED = Stage("tests.normalized", "1", write_normalized)
MARKS = Stage("datakit.contamination", "1", write_marks)
CORPUS = Stage("tests.corpus", "1", write_corpus)
CACHE = Stage("tests.cache", "1", write_cache)
CHECKPOINT = Stage("tests.checkpoint", "1", write_checkpoint)


def audit_node(
    items: tuple[str, ...], sources: tuple[Source, ...], step: int, seed: int = 5, hole: str = "", before: int = 0
) -> Node:
    """The whole fabricated line; `hole` names what is missing from the audit's inputs.

    `before`: steps of an earlier run, on another mixture of the same caches, that the run started from.
    """
    suite = Node(("suite",), None, SUITE, Items(items))
    normalized = [Node(("normalized",), s.name, NORMALIZED, s) for s in sources]
    marks = [
        Node(("marks",), s.name, MARKS, s, {"normalized": n, "suites": (suite,)})
        for s, n in zip(sources, normalized, strict=True)
    ]
    corpora = [
        Node(("corpus",), s.name, CORPUS, s, {"normalized": n, "contamination": m})
        for s, n, m in zip(sources, normalized, marks, strict=True)
    ]
    caches = [Node(("cache",), s.name, CACHE, s, {"corpus": c}) for s, c in zip(sources, corpora, strict=True)]
    config = MixtureConfig("m", (Phase(0, {s.component: 1.0 for s in sources}),), seed=seed, block_size=8)
    mixture = Node(("mixture",), None, MIXTURE, config, {"caches": tuple(caches)})
    first: dict[str, Node] = {}
    if hole == "an earlier checkpoint":
        first = {"start_from": Node(("before",), None, CHECKPOINT, Steps(1), {"mixture": mixture})}
    if before:
        earlier = Node(("mixture",), "before", MIXTURE, replace(config, seed=seed + 1), {"caches": tuple(caches)})
        first = {"start": Node(("before",), None, CHECKPOINT, Steps(before), {"mixture": earlier})}
    other_suite = Node(("suite",), "new", SUITE, Items(items, text="the items were edited"))
    inputs = {
        "checkpoint": Node(("checkpoint",), None, CHECKPOINT, Steps(step), {"mixture": mixture, **first}),
        "suites": (other_suite if hole == "the suite has changed" else suite,),
        "contamination": tuple(marks[1:] if hole == "a source has no marks" else marks),
        "corpora": tuple(corpora[1:] if hole == "a corpus is missing" else corpora),
    }
    return Node(("audit",), None, AUDIT, AuditConfig(), inputs)


def run_audit(root: Path, node: Node) -> Artifact:
    store = Store(str(root))
    return build_all(store, [node])[0]


def items_of(audit: Artifact) -> dict[str, dict]:
    rows = pl.read_parquet(audit.files("items.parquet")[0]).iter_rows(named=True)
    return {f"{row['task']}/{row['item_id']}": row for row in rows}


def order_of(audit: Artifact) -> DataOrder:
    return DataOrder.open(audit.input("checkpoint").input("mixture"), SEQ_LEN)


ITEMS = ("math/0", "math/1", "math/2", "law/0", "law/1")
BOOKS = Source(
    "books",
    (
        Doc(1, 30),
        Doc(2, 9, "contaminated", (("math/0", "verbatim"), ("math/1", "fragment"))),
        Doc(3, 21, matches=(("math/1", "fragment"),)),
        Doc(4, 40, "heldout", (("math/2", "near"),)),
        Doc(5, 17, "duplicate", (("math/2", "near"),)),
    ),
    component="books",
    statuses={"math/0": "matched", "math/2": "matched", "law/1": "unknown"},
)
WEB = Source("web", (Doc(6, 33), Doc(7, 90)), component="web", statuses={"law/1": "unknown"})


def with_leak(tier: str = "near", **changes) -> Source:
    """WEB, but its second document holds an item and was kept."""
    leak = replace(WEB.docs[1], matches=(("law/0", tier),))
    return replace(WEB, docs=(WEB.docs[0], leak), statuses={**WEB.statuses, "law/0": "matched"}, **changes)


def test_items_say_what_was_there_before_and_what_is_left(tmp_path: Path) -> None:
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, WEB), step=10))
    items = items_of(made)
    tiers = {name: (row["status"], row["tier_before"], row["tier_after"]) for name, row in items.items()}
    assert tiers == {
        "math/0": ("matched", "verbatim", ""),
        "math/1": ("clean", "fragment", "fragment"),
        "math/2": ("matched", "near", ""),
        "law/0": ("clean", "", ""),
        "law/1": ("unknown", "", ""),
    }
    assert [items["math/1"][f"num_documents_{when}"] for when in ("before", "after", "heldout")] == [2, 1, 0]
    assert [items["math/2"][f"num_documents_{when}"] for when in ("before", "after", "heldout")] == [2, 0, 1]
    summary = made.manifest.extra["audit"]
    assert summary["verdict"] == "fragments_only"
    assert summary["documents_by_fate"] == {"contaminated": 1, "duplicate": 1, "heldout": 1, "train": 1}
    counts = [summary["counts"][name] for name in ("items", "unknown", "whole_only")]
    assert counts == [5, 1, 0], "an unknown item is no clean one"


def test_an_item_that_only_a_whole_copy_would_show_is_counted_apart(tmp_path: Path) -> None:
    web = replace(WEB, statuses={"law/0": "whole_only", "law/1": "whole_only"})
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, web), step=10))
    assert {name: row["status"] for name, row in items_of(made).items() if "law" in name} == {
        "law/0": "whole_only",
        "law/1": "unknown",  # another source holds a part of it
    }
    assert made.manifest.extra["audit"]["by_task"]["law"]["whole_only"] == 1
    page = made.file("audit.md").read_text()
    assert "1 stand nowhere as a whole" in page and "| whole only |" in page


def test_a_part_of_a_question_is_listed_and_its_item_is_not_clean(tmp_path: Path) -> None:
    part = replace(with_leak("partial"), statuses={**WEB.statuses, "law/0": "unknown"})
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, part), step=40))
    item, summary = items_of(made)["law/0"], made.manifest.extra["audit"]
    assert (item["status"], item["tier_after"]) == ("unknown", "partial") and item["first_step"] >= 0
    assert (summary["verdict"], summary["verdict_at_step"]) == ("partial_only", "partial_only")
    assert summary["by_task"]["law"]["after_partial"] == 1
    assert judge_contamination(made)[0] == "warn"


def test_marks_that_call_an_item_with_a_part_clean_are_refused(tmp_path: Path) -> None:
    part = replace(with_leak("partial"), statuses=WEB.statuses)
    with pytest.raises(ValueError, match="call item suite/law/0 clean, but list a partial match"):
        run_audit(tmp_path, audit_node(ITEMS, (BOOKS, part), step=10))


def test_a_kept_match_contaminates_only_the_checkpoints_that_read_it(tmp_path: Path) -> None:
    source = Source("s", (Doc(6, 400), Doc(7, 8, matches=(("law/0", "near"),))), "s", {"law/0": "matched"})
    whole = run_audit(tmp_path, audit_node(ITEMS, (source,), step=60))
    order = order_of(whole)
    first = next(step for step in range(60) if 7 in order.batch(step * BATCH_SIZE, BATCH_SIZE))
    assert items_of(whole)["law/0"]["first_step"] == first > 0
    audits = {step: run_audit(tmp_path, audit_node(ITEMS, (source,), step=step)) for step in (first, first + 1)}
    summaries = {step: made.manifest.extra["audit"] for step, made in audits.items()}
    assert {step: summary["verdict_at_step"] for step, summary in summaries.items()} == {
        first: "clean",
        first + 1: "contaminated",
    }
    assert {summary["verdict"] for summary in summaries.values()} == {"contaminated"}
    assert items_of(audits[first])["law/0"]["first_step"] == -1
    assert summaries[first]["counts"]["seen_in_training"] == 0


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(1, 25), st.integers(0, 1000))
@settings(max_examples=examples(8))
def test_exposures_are_the_tokens_found_in_the_batches(tmp_path_factory, lengths: list[int], step: int, seed: int) -> None:
    docs = tuple(Doc(100 + i, SEQ_LEN + n, matches=(("math/0", "near"),) if i % 2 else ()) for i, n in enumerate(lengths))
    source = Source("s", docs, component="s", statuses={"math/0": "matched"})
    made = run_audit(tmp_path_factory.mktemp("audit"), audit_node(ITEMS, (source, WEB), step=step, seed=seed))
    order = order_of(made)
    wanted = {}
    for at in range(step):
        counts = Counter(order.batch(at * BATCH_SIZE, BATCH_SIZE).ravel().tolist())
        wanted |= {(doc.id, at): counts[doc.number] for doc in docs if doc.matches and counts[doc.number]}
    exposed = pl.read_parquet(made.files("exposures.parquet")[0]).group_by("id", "step").agg(pl.col("tokens").sum())
    assert {(document, at): tokens for document, at, tokens in exposed.iter_rows()} == wanted


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(1, 15), st.integers(1, 15), st.integers(0, 1000))
@settings(max_examples=examples(8))
def test_what_the_run_before_had_read_is_reported_too(
    tmp_path_factory, lengths: list[int], before: int, step: int, seed: int
) -> None:
    """Against the batches of both runs, read forward."""
    docs = tuple(Doc(100 + i, SEQ_LEN + n, matches=(("math/0", "near"),) if i % 2 else ()) for i, n in enumerate(lengths))
    source = Source("s", docs, component="s", statuses={"math/0": "matched"})
    node = audit_node(ITEMS, (source, WEB), step=step, seed=seed, before=before)
    made = run_audit(tmp_path_factory.mktemp("audit"), node)
    checkpoint = made.input("checkpoint")
    wanted = {}
    for leg, (ended, steps) in enumerate(((checkpoint.input("start"), before), (checkpoint, step))):
        order = DataOrder.open(ended.input("mixture"), SEQ_LEN)
        for at in range(steps):
            counts = Counter(order.batch(at * BATCH_SIZE, BATCH_SIZE).ravel().tolist())
            wanted |= {(leg, doc.id, at): counts[doc.number] for doc in docs if doc.matches and counts[doc.number]}
    exposed = pl.read_parquet(made.files("exposures.parquet")[0]).group_by("leg", "id", "step").agg(pl.col("tokens").sum())
    assert {(leg, document, at): tokens for leg, document, at, tokens in exposed.iter_rows()} == wanted
    item = items_of(made)["math/0"]
    first = min(((leg, at) for leg, _, at in wanted), default=(-1, -1))
    assert (item["first_leg"], item["first_step"]) == first
    assert item["num_exposures"] == len(wanted)
    assert [leg["steps"] for leg in made.manifest.extra["audit"]["legs"]] == [before, step]


def test_a_component_named_otherwise_than_its_source_is_not_missed(tmp_path: Path) -> None:
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, with_leak(component="crawl")), step=40))
    assert made.manifest.extra["audit"]["verdict"] == "contaminated"
    assert set(pl.read_parquet(made.files("exposures.parquet")[0])["component"]) == {"books", "crawl"}


def test_corpora_made_again_with_the_same_train_documents_are_those_of_the_caches(tmp_path: Path) -> None:
    """Early cutoff keeps the mixture bound to the caches of the corpora before: the audit knows both for the same documents."""
    before = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, with_leak()), step=40))
    again = run_audit(tmp_path, audit_node(ITEMS, (replace(BOOKS, lie="made again"), with_leak(lie="made again")), step=40))
    assert again.input("checkpoint").data_version == before.input("checkpoint").data_version
    assert again.input("corpora.0").data_version != before.input("corpora.0").data_version
    assert again.manifest.extra["audit"]["verdict"] == "contaminated"
    tables = [pl.read_parquet(made.files("exposures.parquet")[0]) for made in (before, again)]
    assert tables[0].equals(tables[1])


def test_the_worst_matches_quote_the_text_and_the_steps(tmp_path: Path) -> None:
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, with_leak()), step=40))
    worst = json.loads(made.files("audit.json")[0].read_text())["worst"]
    assert [match["tier"] for match in worst] == ["near", "fragment"]
    assert (worst[0]["text"], worst[0]["id"]) == ("document", WEB.docs[1].id)
    order = order_of(made)
    assert worst[0]["steps"] == [at for at in range(40) if 7 in order.batch(at * BATCH_SIZE, BATCH_SIZE)][:10]


@pytest.mark.parametrize(
    ("hole", "message"),
    [
        ("a source has no marks", r"corpus\[books\]: none of the 1 given marks"),
        ("a corpus is missing", r"component books of mixture holds corpus\[books\]"),
        ("the suite has changed", r"marks\[books\] was not matched against suite\[new\]"),
        ("an earlier checkpoint", "made from mixture, start_from"),
    ],
)
def test_an_audit_with_a_hole_is_refused(tmp_path: Path, hole: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_audit(tmp_path, audit_node(ITEMS, (BOOKS, WEB), step=10, hole=hole))


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ("a document is lost", "is in 0 of train, held-out and dropped"),
        ("the cache holds a dropped document", r"its fate in the corpus is 'contaminated', which cache\[books\] contradicts"),
        ("an item is not marked", "no marks cover item suite/law/1"),
    ],
)
def test_artifacts_that_contradict_each_other_are_refused(tmp_path: Path, lie: str, message: str) -> None:
    docs = BOOKS.docs[1:] if lie == "a document is lost" else BOOKS.docs
    sources = (replace(BOOKS, docs=docs, lie=lie), replace(WEB, lie=lie) if "item" in lie else WEB)
    with pytest.raises(ValueError, match=message):
        run_audit(tmp_path, audit_node(ITEMS, sources, step=10))


def test_a_standing_match_that_the_status_hides_is_refused(tmp_path: Path) -> None:
    sources = (replace(BOOKS, statuses={"math/2": "matched"}), WEB)
    with pytest.raises(ValueError, match="call item suite/math/0 clean, but list a standing match"):
        run_audit(tmp_path, audit_node(ITEMS, sources, step=10))


def test_the_second_witness_refuses_a_step_that_did_not_read_the_document(tmp_path: Path) -> None:
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, with_leak()), step=40))
    order = order_of(made)
    seen = pl.read_parquet(made.files("exposures.parquet")[0]).filter(pl.col("component") == "web")
    assert verify_exposures(order, seen, BatchSchedule.of(BATCH_SIZE), 5) == 5
    unread = next(at for at in range(100) if 7 not in order.batch(at * BATCH_SIZE, BATCH_SIZE))
    with pytest.raises(RuntimeError, match=f"step {unread} read document {WEB.docs[1].id} of web"):
        verify_exposures(order, seen.with_columns(step=pl.lit(unread, pl.Int64)), BatchSchedule.of(BATCH_SIZE), 5)


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    versions = {
        run_audit(tmp_path / name, audit_node(ITEMS, (BOOKS, with_leak()), step=20)).data_version for name in ("one", "two")
    }
    assert len(versions) == 1


def test_a_long_item_is_quoted_where_it_is_like_the_document() -> None:
    item = f"{'filler ' * 100}We hold these truths to be self-evident, that all men{' padding' * 100}"
    quoted = excerpt_near(item, "we hold THESE truths to be self-evident, that all")
    assert "We hold these truths to be self-evident, that all men" in quoted
    assert len(quoted) < 260 and quoted.startswith("...") and quoted.endswith("...")
    assert excerpt_near("short", "another") == "short"


def test_a_match_is_quoted_by_its_bytes_and_a_text_that_was_cut_by_likeness() -> None:
    text = "élan – one, 漢字 – two and some more words"
    start = len("élan – one, ".encode())
    match = {"id": text_digest(text), "start_byte": start, "end_byte": start + len("漢字 – two".encode())}
    assert matched_text(text, match, "漢字 two") == "漢字 – two"
    assert matched_text("é" * 5, match, "漢字 two") == "é" * 5


def test_the_pages_say_what_the_numbers_say(tmp_path: Path) -> None:
    """Markdown and HTML have the same blocks. Nothing is fetched. A picture is drawn if there were reads."""
    made = run_audit(tmp_path, audit_node(ITEMS, (BOOKS, with_leak()), step=40))
    markdown, page = (made.files(name)[0].read_text() for name in ("audit.md", "audit.html"))
    for text in (markdown, page):
        assert "Benchmark items are in what the model was trained on." in text
        assert WEB.docs[1].id[:12] in text and "Not scored" in text and "100.0%" in text
        assert made.input("checkpoint").data_version in text
    assert "| law | 2 | 1 | 1 | 1 |  | 1 |" in markdown
    assert "![" in markdown and made.files("exposures.png") and "<img" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_useless_config_is_refused() -> None:
    with pytest.raises(ValueError, match="verified_exposures 0"):
        AuditConfig(verified_exposures=0)
