"""What an index records about its policy: recall by task and form, and false marks in clean text."""

import random
import re
from dataclasses import asdict

import polars as pl
import pytest
from test_contamination import PROSE
from test_contamination_stage import DOCUMENTS, clean_texts

from benchmarks.rival_policies.marin import MarinPolicy
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.gpt3 import GptPolicy
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.leak_forms import FORMAT_CHANGES, LEAK_FORMS
from datakit.contamination.marks import CONTAMINATION
from evals.items.item import ITEMS_FILE, Item, write_items
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.match_tiers import STANDING_TIERS
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from marin_assets.describe import recorded

WORDS = [
    f"{first}{second}" for first in ("har", "cop", "sel", "win", "gat", "mor") for second in ("bour", "per", "dom", "ning")
]


def question(number: int) -> str:
    return ", ".join(random.Random(number).choices(WORDS, k=30)).capitalize() + "?"


def write_tasks(out, config):
    """Twenty long questions of one task, three of another, one question that is too short."""
    items = [Item("s", "long", str(at), question(at), "", "MIT", "d") for at in range(20)]
    items += [Item("s", "few", str(at), question(100 + at), "", "MIT", "d") for at in range(3)]
    write_items(out.folder / ITEMS_FILE, [*items, Item("s", "short", "0", "Which resource is renewable?", "", "MIT", "d")])


SUITE = Node(("suite",), None, Stage("test.tasks", "1", write_tasks), {})


def clean_node(texts: list[str]) -> Node:
    return Node(("clean",), "prose", DOCUMENTS, {"texts": texts, "part_bytes": 4_000})


def proof(tmp_path, policy, texts=None):
    store, clean = Store(str(tmp_path)), clean_node(texts or clean_texts(12))
    index = Node(("index",), None, CONTAMINATION_INDEX, policy, {"suites": (SUITE,), "clean": (clean,)})
    return [build(store, node) for node in (SUITE, clean, index)][-1].artifact.manifest.extra["proof"]


def test_recall_is_kept_by_task_and_form(tmp_path):
    """An item without an answer, numbers, names or choices leaks in eleven of the sixteen forms."""
    recall = proof(tmp_path, ContaminationConfig())["recall"]
    assert {task: row["items"] for task, row in recall.items()} == {"long": 20, "few": 3, "short": 0}
    applied = set(LEAK_FORMS) - {"answer_only", "numbers_changed", "names_changed", "choices_relabelled"}
    assert set(recall["long"]["forms"]) == set(recall["few"]["forms"]) == applied and recall["short"]["forms"] == {}
    for task, planted in (("long", 20), ("few", 3)):
        forms = recall[task]["forms"]
        assert {row["planted"] for row in forms.values()} == {planted}
        assert all(forms[form]["found"] == 1 for form in applied.intersection(FORMAT_CHANGES))
    shares = [recall["long"]["forms"][f"edited_{percent}_percent"]["found"] for percent in (5, 12, 25)]
    assert shares == sorted(shares, reverse=True) and shares[0] > shares[2]


def test_another_policy_has_its_own_recall(tmp_path):
    forms = proof(tmp_path, MarinPolicy())["recall"]["long"]["forms"]
    assert forms["verbatim"]["found"] == 1 and forms["unpunctuated"]["found"] < 1


@pytest.mark.parametrize("leaks", [0, 2])
def test_documents_of_clean_text_that_are_marked_are_counted_and_named(tmp_path, leaks):
    marked = [f"{PROSE} {question(at)}" for at in range(leaks)]
    clean_text = proof(tmp_path, ContaminationConfig(), [*clean_texts(12), *marked])["clean_text"]["prose"]
    assert (clean_text["documents"], clean_text["marked"], clean_text["share"]) == (
        12 + leaks,
        leaks,
        round(leaks / (12 + leaks), 6),
    )
    assert clean_text["ids"] == sorted(map(text_digest, marked))


def test_a_proof_without_clean_text_says_that_false_marks_are_not_measured(tmp_path, caplog):
    index = Node(("index",), None, CONTAMINATION_INDEX, ContaminationConfig(), {"suites": (SUITE,)})
    made = [build(Store(str(tmp_path)), node) for node in (SUITE, index)][-1].artifact
    assert made.manifest.extra["proof"]["clean_text"] == {} and "how often this policy marks clean text" in caplog.text
    assert recorded(made)["marked_in_clean_text"].text.startswith("not measured: the line has no clean source")


def test_the_page_of_an_index_has_a_row_for_every_form(tmp_path):
    index = Node(("index",), None, CONTAMINATION_INDEX, ContaminationConfig(), {"suites": (SUITE,)})
    shown = recorded([build(Store(str(tmp_path)), node) for node in (SUITE, index)][-1].artifact)
    rows = {record.data["form"]: record.data for record in shown["recall_by_task"].records}
    assert rows.keys() == LEAK_FORMS.keys()
    assert (rows["wrapped"]["long"], rows["wrapped"]["short"], rows["answer_only"]["long"]) == ("1.00", "", "")
    assert {record.data["task"]: record.data["items"] for record in shown["planted_by_task"].records}["long"] == 20


def test_an_index_with_its_clean_text_serves_a_scan(tmp_path):
    store, config, clean = Store(str(tmp_path)), ContaminationConfig(), clean_node(clean_texts(3))
    index = Node(("index",), None, CONTAMINATION_INDEX, config, {"suites": (SUITE,), "clean": (clean,)})
    scan = Node(("marks",), "prose", CONTAMINATION, config, {"normalized": clean, "suites": (SUITE,), "index": index})
    marks = [build(store, node) for node in (SUITE, clean, index, scan)][-1].artifact
    assert marks.manifest.extra["contamination"]["contaminated"] == 0


@pytest.mark.parametrize("policy", [ContaminationConfig(), MarinPolicy(), GptPolicy()], ids=lambda policy: policy.policy)
def test_who_asks_only_what_is_marked_hears_what_the_scan_says(policy):
    """Leaks of every tier. A fragment is not a match, so it is in neither result."""
    items = pl.DataFrame([asdict(Item("s", "long", str(at), question(at), "", "MIT", "d")) for at in range(20)])
    index = policy.index(items, policy.channels(items))
    questions = [question(at).split() for at in range(20)]
    kept = [" ".join(words[: max(6, len(words) - at)]) for at, words in enumerate(questions)]
    leaks = [
        f"{PROSE}\n\n{text}\n\n{PROSE}"
        for text in (*map(" ".join, questions), *kept, *(re.sub("o", "0", text) for text in kept))
    ]
    matches = index.scan(leaks)
    standing = [(match.document, match.channel) for match in matches if match.tier in STANDING_TIERS]
    assert index.marked_pairs(leaks) == standing and len({document for document, _ in standing}) >= 20
    if isinstance(policy, ContaminationConfig):
        assert len(standing) < len(matches)
