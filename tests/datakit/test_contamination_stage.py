"""The stage `datakit.contamination` on real artifacts: marks, unknown items, sharding, refusals."""

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from inputs import made
from test_contamination import PROSE, REPOSITORY, vendored_items

import datakit.contamination.marks as contamination_stage
from benchmarks.rival_policies.comparison import as_markdown, compare_policies
from benchmarks.rival_policies.datatrove import DatatrovePolicy
from benchmarks.rival_policies.dolma import DolmaPolicy
from benchmarks.rival_policies.marin import MarinPolicy
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.gpt3 import GptPolicy
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.contamination.tulu import TuluPolicy
from datakit.documents.parts import write_sorted_parts
from evals.items.item import ITEMS_FILE, Item, write_items
from evals.items.suites import SUITE, SuiteConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from recipes.suites import vendored_tasks


def write_documents(out, config):
    texts = sorted(config["texts"], key=text_digest)
    frame = pl.DataFrame({"id": [text_digest(t) for t in texts], "text": texts}).with_columns(
        source=pl.lit("test"), metadata=pl.lit('{"source_id": "x"}')
    )
    write_sorted_parts(out.folder, "documents", frame, target_bytes=config["part_bytes"])


def write_suite_items(out, config):
    """An item is written as `question` or `question||answer`."""
    pairs = (text.partition("||") for text in config)
    write_items(out.folder / ITEMS_FILE, [Item("s", "t", str(i), q, a, "MIT", "d") for i, (q, _, a) in enumerate(pairs)])


def write_vendored(out, config):
    for path in sorted((REPOSITORY / "data" / "eval_items").glob("*.jsonl")):
        target = out.folder / "files" / "data" / "eval_items" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


DOCUMENTS = Stage("test.documents", "1", write_documents)
ITEMS = Stage("test.items", "1", write_suite_items)


def clean_texts(count: int) -> list[str]:
    words = PROSE.split()
    return [" ".join(random.Random(i).sample(words, len(words))) for i in range(count)]


def scan_of(texts: list[str], questions: list[str] | None, config=None, part_bytes: int = 1 << 28) -> Node:
    """A scan of some texts for some questions, or for the vendored items."""
    config = config or ContaminationConfig()
    documents = Node(("normalized",), "test", DOCUMENTS, {"texts": texts, "part_bytes": part_bytes})
    if questions is None:
        raw = Node(("raw",), "vendored", Stage("test.vendored", "1", write_vendored), {})
        suite = Node(("suite",), None, SUITE, SuiteConfig("vendored", vendored_tasks()), {"raw": raw})
    else:
        suite = Node(("suite",), None, ITEMS, questions)
    index = Node(("index", type(config).__name__), None, CONTAMINATION_INDEX, config, {"suites": (suite,)})
    inputs = {"normalized": documents, "suites": (suite,), "index": index}
    return Node(("contamination", type(config).__name__), "test", CONTAMINATION, config, inputs)


def marked(
    store: Store, texts: list[str], questions: list[str] | None, config=None, part_bytes: int = 1 << 28, workers: int = 1
):
    node = scan_of(texts, questions, config, part_bytes)
    for parent in node.parents():
        made(Path(store.root), parent)
    return build(store, node, execution=Execution(workers)).artifact


def test_the_stage_marks_the_planted_document_only(tmp_path):
    item = vendored_items("gsm8k").row(7, named=True)
    leaked = f"{PROSE}\n{item['question'].lower()}\n{PROSE}"
    artifact = marked(Store(str(tmp_path)), [*clean_texts(30), leaked], None)
    marks = pl.concat(pl.read_parquet(path) for path in artifact.files(under="marks/"))
    assert marks.filter("contaminated")["id"].to_list() == [text_digest(leaked)]
    assert marks.filter("contaminated").select("tier", "best_score").row(0) == ("verbatim", 1.0)
    assert len(marks) == 31 and set(marks.filter(~pl.col("contaminated"))["tier"]) == {""}
    (match,) = pl.read_parquet(artifact.folder() / "matches.parquet").iter_rows(named=True)
    assert (match["task"], match["item_id"], match["channel"]) == ("gsm8k", item["item_id"], "question")
    assert leaked[match["start_byte"] : match["end_byte"]] == item["question"].lower()
    statuses = pl.read_parquet(artifact.folder() / "items.parquet")
    assert statuses.filter(pl.col("status") == "matched")["item_id"].to_list() == [item["item_id"]]
    assert len(statuses) == 360
    canaries = artifact.manifest.extra["canaries"]
    assert {name: recall for name, recall in canaries["recall"].items() if recall < 1}.keys() <= {"edited_12_percent"}
    assert canaries["false_positives"]["shuffled"] == 0
    assert canaries["false_positives"]["other_items"] < 0.05  # MMLU questions about one passage hold each other's words
    counts = artifact.manifest.extra["contamination"]
    assert (counts["documents"], counts["contaminated"], counts["items_by_task"]["gsm8k"]["matched"]) == (31, 1, 1)


def test_items_too_short_to_match_are_unknown_not_clean(tmp_path):
    short = "Which of the northern lakes do geese leave in spring?"
    questions = ["Which resource is renewable?", PROSE, "Solve 3 + 4 * 5 - 6 / 7 + 8 - 9 for me", short]
    artifact = marked(Store(str(tmp_path)), clean_texts(3), questions)
    statuses = dict(pl.read_parquet(artifact.folder() / "items.parquet").select("item_id", "status").iter_rows())
    assert statuses == {"0": "unknown", "1": "clean", "2": "unknown", "3": "whole_only"}
    assert artifact.manifest.extra["contamination"]["items_by_task"] == {
        "t": {"clean": 1, "whole_only": 1, "unknown": 2, "matched": 0}
    }


@pytest.mark.slow
def test_bytes_are_the_same_for_any_number_of_workers_and_any_cut(tmp_path, monkeypatch):
    leaks = [f"{PROSE} {q}" for q in vendored_items("mmlu")["question"].head(5)]
    texts = [*clean_texts(20), *leaks]
    one = marked(Store(str(tmp_path / "one")), texts, None, part_bytes=4_000)
    monkeypatch.setattr(contamination_stage, "SLICE_BYTES", 900)
    two = marked(Store(str(tmp_path / "two")), texts, None, part_bytes=4_000, workers=2)
    assert len(one.files(under="marks/")) > 1
    assert one.data_version == two.data_version
    documents = one.input("normalized")
    for part, marks in zip(documents.files(under="documents/"), one.files(under="marks/"), strict=True):
        assert part.name == marks.name
        assert pl.read_parquet(part)["id"].to_list() == pl.read_parquet(marks)["id"].to_list()


def test_a_scan_that_cannot_find_its_canaries_fails(tmp_path, monkeypatch):
    for name in ("needed_coverage", "needed_alignment"):
        monkeypatch.setattr(ContaminationConfig, name, lambda self, lengths: np.full(np.shape(lengths), 1.5))
    with pytest.raises(RuntimeError, match="planted verbatim were found, 95% are needed"):
        marked(Store(str(tmp_path)), clean_texts(2), [" ".join(PROSE.split()[:20])])


def nothing_in_plants(form, canaries, *_):
    return [set() for _ in canaries.documents(form)]


def failing_trial(*_):
    raise OSError("the index is gone")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("trial", "message"), [(nothing_in_plants, "only 0% of 1 benchmark items"), (failing_trial, "the index is gone")]
)
def test_canaries_that_are_not_found_leave_no_artifact(tmp_path, monkeypatch, workers, trial, message):
    monkeypatch.setattr(contamination_stage, "_items_in_plants", trial)
    store = Store(str(tmp_path))
    with pytest.raises((RuntimeError, OSError), match=message):
        marked(store, clean_texts(2), [PROSE], workers=workers)
    made = {artifact.spec.key[0] for artifact in store.artifacts()}
    assert made == {"normalized", "suite", "index"}


def test_suites_with_nothing_to_match_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none of the 1 benchmark items can be planted.*no question is long enough"):
        marked(Store(str(tmp_path)), clean_texts(2), ["Too short?"])


@pytest.mark.parametrize(
    ("policy", "questions", "message"),
    [
        (ContaminationConfig(flag_coverage=0.4), [PROSE], r"was built for .*'flag_coverage': 0.4.*the scan asks for"),
        (ContaminationConfig(), [PROSE, "And one more?"], "was not built from exactly suite"),
    ],
)
def test_an_index_of_another_policy_or_other_items_is_refused(tmp_path, policy, questions, message):
    store, config = Store(str(tmp_path)), ContaminationConfig()
    documents = Node(("normalized",), "test", DOCUMENTS, {"texts": clean_texts(2), "part_bytes": 1 << 28})
    suite, other = Node(("suite",), None, ITEMS, [PROSE]), Node(("other",), None, ITEMS, questions)
    index = Node(("index",), None, CONTAMINATION_INDEX, policy, {"suites": (other,)})
    for node in (documents, suite, other, index):
        build(store, node)
    inputs = {"normalized": documents, "suites": (suite,), "index": index}
    with pytest.raises(ValueError, match=message):
        build(store, Node(("contamination",), "test", CONTAMINATION, config, inputs))


LEAK = "How many ducks does the old farmer sell at the market every week if each of them costs four dollars and he earns sixty?"
ANSWER = "He sells fifteen of them, because sixty dollars divided by the four dollars of one duck is fifteen."
QUESTIONS = [f"{LEAK}||{ANSWER}", PROSE, "Too short?"]
POLICIES = (ContaminationConfig(), MarinPolicy(), TuluPolicy(), GptPolicy(), DatatrovePolicy(), DolmaPolicy())


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Three documents hold an item (in capitals, as rendered, in one of eleven copies of a phrase), by every policy."""
    phrase = " ".join(PROSE.split()[:13])
    texts = [*clean_texts(30), LEAK.upper(), f"Question: {LEAK}\nAnswer: {ANSWER}", *(f"{i} {phrase} {i}" for i in range(11))]
    store = Store(str(tmp_path_factory.mktemp("scans")))
    return tuple(marked(store, texts, QUESTIONS, policy) for policy in POLICIES)


def test_every_policy_stores_what_it_finds_of_planted_items_with_its_marks(scans):
    for scan, policy in zip(scans, POLICIES, strict=True):
        proof = scan.manifest.extra["canaries"]
        assert set(proof["recall"]) == {"verbatim", "olmes", "question_only", "wrapped", "unpunctuated", "edited_12_percent"}
        assert proof["recall"]["verbatim"] >= policy.min_canary_recall
        assert proof["false_positives"]["clean_text"] == 0 and proof["scrambled_documents"] >= 30
    recall = {policy.policy: scan.manifest.extra["canaries"]["recall"] for policy, scan in zip(POLICIES, scans, strict=True)}
    assert recall["marin-13gram"]["unpunctuated"] == 0 and recall["gpt3-13gram"]["unpunctuated"] == 1


def test_gram_counts_span_shards_and_row_groups(scans, tmp_path, monkeypatch):
    """Eleven documents in several shards hold the phrase: GPT-3's filter ignores it in any cut."""
    monkeypatch.setattr(contamination_stage, "SLICE_BYTES", 1)
    documents = pl.concat(pl.read_parquet(path) for path in scans[3].input("normalized").files(under="documents/"))
    again = marked(Store(str(tmp_path)), documents["text"].to_list(), QUESTIONS, GptPolicy(), part_bytes=900)
    assert len(again.files(under="marks/")) > 3
    held = pl.read_parquet(again.folder() / "items.parquet").sort("item_id")["num_documents"].to_list()
    assert held == pl.read_parquet(scans[3].folder() / "items.parquet").sort("item_id")["num_documents"].to_list() == [2, 0, 0]


def test_policies_are_compared_over_the_same_documents(scans):
    comparison = compare_policies(scans, ContaminationConfig().policy)
    rows = {row["policy"]: row for row in comparison.policies}
    assert list(rows) == [policy.policy for policy in POLICIES]
    assert {name: row["marked"] for name, row in rows.items()} == {
        "window_coverage+alignment": 2,
        "marin-13gram": 1,
        "olmo-tulu-8gram": 2,
        "gpt3-13gram": 2,
        "datatrove-12gram": 1,
        "dolma-paragraph": 1,
    }
    assert rows["marin-13gram"]["agreement"] == 0.5 and rows["olmo-tulu-8gram"]["agreement"] == 1.0
    assert rows["window_coverage+alignment"]["items_unknown"] == 1
    assert comparison.documents.height == 2 and len(comparison.agreement) == 15
    assert comparison.items["window_coverage+alignment"].to_list() == [2, 0, None]
    printed = as_markdown(comparison)
    assert all(printed.count(policy.policy) >= 5 for policy in POLICIES)


def test_a_comparison_without_its_reference_is_refused(scans):
    with pytest.raises(ValueError, match="reference is 'marin'; the scans given are by"):
        compare_policies(scans, "marin")
