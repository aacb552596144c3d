"""Boards and comparisons over real stores of small results."""

from dataclasses import dataclass

import polars as pl
import pytest
from small_results import result_node

from evals.compare import compare_results
from evals.leaderboard import DuplicateResultError, open_board, primary_scores
from evals.leaderboard_page import write_page
from evals.leaderboard_stage import build_leaderboard
from lineage.plan import Node, ancestors_first, build
from lineage.store import Artifact, Store


@dataclass(frozen=True)
class Boards:
    store: Store
    results: dict[str, Artifact]


def made_in(store: Store, node: Node) -> Artifact:
    return [build(store, each).artifact for each in ancestors_first([node])][-1]


@pytest.fixture(scope="module")
def boards(tmp_path_factory) -> Boards:
    """Two models under one policy, one of them under another policy too, and one result with too little graded."""
    store = Store(str(tmp_path_factory.mktemp("store")))
    made = {
        name: made_in(store, result_node(model, policy, right, graded))
        for name, (model, policy, right, graded) in {
            "weak": ("a", "2026-11-22", 4, 10),
            "strong": ("b", "2026-11-22", 9, 10),
            "other policy": ("b", "2026-12-01", 10, 10),
            "incomplete": ("c", "2026-11-22", 8, 8),
        }.items()
    }
    return Boards(store, made)


def test_ranks_are_within_a_policy_and_incomplete_results_have_none(boards):
    rows = primary_scores(open_board([boards.store]), "2026-11-22")
    assert rows.select("model", "rank", "incomplete", "metric").rows() == [
        ("runs/b", 1, False, "accuracy_per_byte"),
        ("runs/a", 2, False, "accuracy_per_byte"),
        ("runs/c", None, True, "accuracy_per_byte"),
    ]
    other = primary_scores(open_board([boards.store]), "2026-12-01")
    assert other.select("model", "rank").rows() == [("runs/b", 1)]
    with pytest.raises(ValueError, match="no result is under the policy 'x'; there are: 2026-11-22, 2026-12-01"):
        primary_scores(open_board([boards.store]), "x")


def test_lower_bits_rank_higher(boards):
    sql = "SELECT model, rank FROM leaderboard WHERE metric = 'gold_bits_per_byte' AND policy = '2026-11-22' AND NOT incomplete"
    rows = dict(open_board([boards.store]).query(sql).rows())
    assert rows["runs/b"] < rows["runs/a"]


def test_items_can_be_asked_in_sql(boards):
    counts = "SELECT model, count(*) AS n, sum(correct::int) AS hits FROM items"
    sql = f"{counts} WHERE policy_name = '2026-11-22' GROUP BY ALL ORDER BY 1"
    assert open_board([boards.store]).query(sql).rows() == [("runs/a", 10, 4), ("runs/b", 10, 9), ("runs/c", 10, 8)]


def test_a_cell_that_two_artifacts_give_is_refused_and_a_mirror_is_not(boards, tmp_path):
    assert open_board([boards.store, boards.store]).query("SELECT * FROM results").height
    twin = Store(str(tmp_path))
    made_in(twin, result_node("a", "2026-11-22", 5, 10))
    with pytest.raises(
        DuplicateResultError, match=r"quiz \S+ of checkpoint \w+, given by runs/a/eval_result.* and runs/a/eval_result"
    ):
        open_board([boards.store, twin])


def test_results_of_two_checkpoints_are_compared_item_by_item(boards):
    found = {c.measure: c.comparison for c in compare_results(boards.results["weak"], boards.results["strong"])}
    assert (found["correct"].wins, found["correct"].losses, found["correct"].difference) == (5, 0, 0.5)
    assert found["bpb"].difference < 0
    assert found["bpb"].wins == 5
    partial = next(c for c in compare_results(boards.results["weak"], boards.results["incomplete"]) if c.measure == "correct")
    assert (partial.comparison.num_items, partial.left_out) == (8, 2)


def test_results_under_different_policies_are_not_compared(boards):
    with pytest.raises(ValueError, match=r"different policies \(2026-11-22 and 2026-12-01\)"):
        compare_results(boards.results["weak"], boards.results["other policy"])


def test_items_asked_differently_are_not_compared(boards, tmp_path):
    changed = made_in(Store(str(tmp_path)), result_node("a", "2026-11-22", 4, 10, wording="Which one?"))
    with pytest.raises(ValueError, match="quiz/00 was asked differently of the two, and 9 others"):
        compare_results(boards.results["weak"], changed)


def test_the_page_is_whole(boards, tmp_path):
    rows = primary_scores(open_board([boards.store]))
    write_page(rows, tmp_path / "board.html")
    text = (tmp_path / "board.html").read_text()
    assert text.count("data:image/png;base64,") == 2
    assert "incomplete" in text and "runs/b" in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_board_is_an_artifact_of_the_results_that_are_there(tmp_path):
    store = Store(str(tmp_path))
    with pytest.raises(ValueError, match="holds no evaluation result"):
        build_leaderboard(store)
    one = made_in(store, result_node("a", "2026-11-22", 4, 10))
    first, reused = build_leaderboard(store)
    assert not reused and [ref.address for ref in first.spec.inputs] == [one.spec.address]
    assert build_leaderboard(store) == (first, True)
    made_in(store, result_node("b", "2026-11-22", 9, 10))
    second, reused = build_leaderboard(store)
    assert not reused and second.spec.version != first.spec.version
    assert second.manifest.extra["leaderboard"]["models"] == ["runs/a", "runs/b"]
    rows = pl.read_parquet(second.files("leaderboard.parquet")[0])
    assert rows.equals(primary_scores(open_board([store])))


def test_an_empty_store_has_an_empty_board(tmp_path):
    assert primary_scores(open_board([Store(str(tmp_path))])).height == 0
