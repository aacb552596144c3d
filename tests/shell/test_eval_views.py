"""Result views in the UI name the tasks that graded too few answers."""

from evals.scoring.statistics import share_score
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets import eval_views


def _write(out: Writer, config: dict) -> None:
    del config
    (out.folder / "scores.json").write_text("[]")
    scores = [share_score("short", "exact_match", 3, 8, 10), share_score("whole", "exact_match", 3, 10, 10)]
    out.extra["scores"] = [score.rounded() for score in scores]
    out.extra["incomplete"] = ["short"]


def test_incomplete_tasks_are_named_and_marked_in_the_table(tmp_path) -> None:
    artifact = build(Store(str(tmp_path)), Node(("result",), None, Stage("tests.result", "1", _write), {})).artifact
    shown = eval_views.scores(artifact)
    assert shown["incomplete"].value == "short"
    rows = [record.data for record in shown["scores"].value.records]
    assert [(row["task"], row["items"]) for row in rows] == [("short", "8 of 10, incomplete"), ("whole", "10")]
