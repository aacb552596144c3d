"""Leaderboards and comparisons over real stores of small results."""

from dataclasses import dataclass, replace

import polars as pl
import pytest
from small_results import result_node

from evals.reports.compare import compare_results
from evals.reports.leaderboard import DuplicateResultError, cells, open_board, primary_scores
from evals.reports.leaderboard_page import newest_steps, write_page
from evals.reports.leaderboard_stage import build_leaderboard
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build_all
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Boards:
    store: Store
    results: dict[str, Artifact]


def made_in(store: Store, node: Node) -> Artifact:
    return build_all(store, [node])[0]


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


def test_every_metric_ranks_its_own_way_and_facts_about_the_items_not_at_all(boards):
    sql = "SELECT metric, model, rank FROM leaderboard WHERE policy = '2026-11-22' AND NOT incomplete AND metric IN {}"
    ranks = open_board([boards.store]).query(sql.format(("unparsed", "chance", "accuracy"))).rows()
    assert sorted(ranks, key=str) == [
        ("accuracy", "runs/a", 2),
        ("accuracy", "runs/b", 1),
        ("chance", "runs/a", None),
        ("chance", "runs/b", None),
        ("unparsed", "runs/a", 3),
        ("unparsed", "runs/b", 1),
        ("unparsed", "runs/c", 2),
    ]


def test_policies_of_one_name_and_other_items_have_boards_of_their_own(tmp_path):
    store = Store(str(tmp_path))
    policies = {}
    for suite, model, right in (("full", "a", 4), ("extract", "b", 9), ("extract", "c", 2)):
        made = made_in(store, result_node(model, "2026-11-22", right, 10, suite=suite))
        policies[suite] = made.manifest.extra["policy"]["data_version"]
    board = open_board([store])
    names = {suite: f"2026-11-22@{version[:8]}" for suite, version in policies.items()}
    rows = {name: primary_scores(board, name).select("model", "rank").rows() for name in names.values()}
    assert rows == {names["full"]: [("runs/a", 1)], names["extract"]: [("runs/b", 1), ("runs/c", 2)]}
    assert set(primary_scores(board, "2026-11-22")["board"]) == set(names.values()), "a name means all its boards"
    write_page(primary_scores(board), tmp_path / "board.html")
    assert all(f"<h2>Policy {name}</h2>" in (tmp_path / "board.html").read_text() for name in names.values())
    with pytest.raises(ValueError, match=f"there are: {', '.join(sorted(names.values()))}"):
        primary_scores(board, "2026-11-21")


def test_days_of_one_model_are_distinguished(tmp_path):
    store = Store(str(tmp_path))
    for day, right in (("2026-11-21", 9), ("2026-11-22", 4)):
        made_in(store, result_node("smoke", "2026-11-22", right, 10, day=day))
    rows = primary_scores(open_board([store]))
    assert rows.select("day", "step", "rank").rows() == [("2026-11-21", 10, 1), ("2026-11-22", 10, 2)]
    assert [cells(row)["model"] for row in rows.iter_rows(named=True)] == [
        "runs/smoke of 2026-11-21",
        "runs/smoke of 2026-11-22",
    ]
    assert newest_steps(rows)["day"].to_list() == ["2026-11-22"]


def test_equal_bytes_of_two_days_are_two_results_and_not_a_duplicate(tmp_path):
    store = Store(str(tmp_path))
    nodes = [result_node("smoke", "2026-11-22", 9, 10, day=day) for day in ("2026-11-21", "2026-11-22")]
    same = nodes[0].inputs["checkpoint"].config
    for node in nodes:
        checkpoint = replace(node.inputs["checkpoint"], config=same)
        made_in(store, replace(node, inputs={**node.inputs, "checkpoint": checkpoint}))
    rows = primary_scores(open_board([store]))
    assert (rows.height, rows["checkpoint"].n_unique()) == (2, 1)


def test_records_of_older_evaluators_are_on_the_board(tmp_path):
    def write(out: Writer, config: dict, checkpoint: Artifact, policy: Artifact) -> None:
        del config
        out.extra["scores"] = []
        out.extra["policy"] = {"name": "2026-11-01", "data_version": policy.data_version, "code_drifted": False}
        records = pl.read_parquet(newer.files("records.parquet")[0]).drop("suite", "source_digest")
        records.write_parquet(out.folder / "records.parquet")

    store = Store(str(tmp_path))
    node = result_node("a", "2026-11-01", 4, 10)
    newer = made_in(store, node)
    made_in(store, replace(node, partition="step-00000010|old", stage=Stage(node.stage.name, "older", write), config={}))
    rows = open_board([store]).query("SELECT address, suite, count(*) AS n FROM items GROUP BY ALL ORDER BY suite").rows()
    assert [(suite, n) for _, suite, n in rows] == [("", 10), (None, 10)]


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
    comparisons = {c.measure: c.comparison for c in compare_results(boards.results["weak"], boards.results["strong"])}
    assert (comparisons["correct"].wins, comparisons["correct"].losses, comparisons["correct"].difference) == (5, 0, 0.5)
    assert comparisons["bpb"].difference < 0
    assert comparisons["bpb"].wins == 5
    partial = next(c for c in compare_results(boards.results["weak"], boards.results["incomplete"]) if c.measure == "correct")
    assert (partial.comparison.num_items, partial.left_out) == (8, 2)


def test_results_under_different_policies_are_not_compared(boards):
    with pytest.raises(ValueError, match=r"different policies \(2026-11-22@\w{8} and 2026-12-01@\w{8}\)"):
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
