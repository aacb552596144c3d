"""Effect of contamination on scores: groups, differences and pairs against numbers computed by hand."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from evals.audit.contamination_scores import choose_items
from evals.audit.scores import item_groups, score_effects
from evals.items.item import Item
from evals.items.stage import ContaminationScoresConfig, TaskSpec
from evals.scoring.intervals import difference_bootstrap
from evals.scoring.records import EvalRecord, write_records
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build, build_all
from lineage.stage import Stage
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class Scored:
    """(item id, bits per byte now, bits per byte at the start or None, correct)."""

    rows: tuple[tuple[str, float, float | None, bool | None], ...]


def write_checkpoint(out: Writer, config: Scored) -> None:
    (out.folder / "model").write_text(str(config))


def write_scores(out: Writer, config: Scored, checkpoint: Artifact) -> None:
    now, start = checkpoint.data_version, "the start's"
    records = []
    for item, value, before, correct in config.rows:
        records.append(EvalRecord("math", item, "p", now, "d", "{}", "graded", correct, value))
        if before is not None:
            records.append(EvalRecord("math", item, "p", start, "d", "{}", "graded", correct, before))
    write_records(
        [*records, EvalRecord("math", "long", "p", now, "d", "{}", "failed", None, None)], out.folder / "records.parquet"
    )


def scored(root: Path, *rows: tuple[str, float, float | None, bool | None]) -> Artifact:
    config = Scored(rows)
    checkpoint = Node(("checkpoint",), None, Stage("tests.checkpoint", "1", write_checkpoint), config)
    scores = Node(("scores",), None, Stage("tests.scores", "1", write_scores), config, {"checkpoint": checkpoint})
    return build_all(Store(str(root)), [scores])[0]


def table(*rows: tuple[str, str, str, int, int, int]) -> pl.DataFrame:
    schema = ("item_id", "status", "tier_after", "num_documents_before", "num_documents_after", "num_exposures")
    keys = [pl.lit("s").alias("suite"), pl.lit("math").alias("task")]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(keys)


TABLE = table(
    ("c0", "clean", "", 0, 0, 0),
    ("c1", "clean", "", 0, 0, 0),
    ("s0", "matched", "near", 2, 1, 3),
    ("s1", "matched", "verbatim", 1, 1, 1),
    ("gone", "matched", "", 1, 0, 0),
    ("later", "matched", "near", 1, 1, 0),
    ("piece", "clean", "fragment", 1, 1, 2),
    ("half", "unknown", "partial", 1, 1, 2),
    ("short", "unknown", "", 0, 0, 0),
    ("long", "clean", "", 0, 0, 0),
)


def test_every_item_has_one_group_but_the_unmatchable_has_none() -> None:
    groups = dict(item_groups(TABLE).select("item_id", "group").iter_rows())
    assert groups == {
        "c0": "clean", "c1": "clean", "s0": "seen", "s1": "seen", "gone": "removed", "later": "unread", "piece": "fragment",
        "half": "partial", "long": "clean",
    }  # fmt: skip


def test_differences_are_those_of_the_means_and_pairs_cancel_difficulty(tmp_path: Path) -> None:
    """Seen items are harder (3 and 5 against 1 and 2), yet they gained 1.0 since the start and the clean ones 0.25."""
    rows = (("c0", 1.0, 1.5, True), ("c1", 2.0, 2.0, False), ("s0", 3.0, 3.5, True), ("s1", 5.0, 6.5, True))
    effects = score_effects(TABLE, (scored(tmp_path, *rows),))
    math = effects["by_task"]["math"]
    assert math == effects["by_task"]["all"]
    assert math["groups"]["seen"]["items"] == 2 and math["groups"]["seen"]["bits_per_byte"][0] == 4.0
    assert math["groups"]["clean"]["accuracy"][0] == 0.5
    values = {name: value[0] for name, value in math.items() if name != "groups"}
    assert values == {
        "seen_less_clean": 2.5, "seen_since_start": -1.0, "clean_since_start": -0.25, "seen_less_clean_since_start": -0.75
    }  # fmt: skip
    assert all(math[name][1] <= math[name][0] <= math[name][2] for name in values)
    assert (effects["unscorable"], effects["has_start"]) == (1, True)


def test_one_seen_item_gives_a_mean_and_no_difference(tmp_path: Path) -> None:
    effects = score_effects(
        TABLE, (scored(tmp_path, ("c0", 1.0, None, None), ("c1", 2.0, None, None), ("s0", 3.0, None, None)),)
    )
    assert set(effects["by_task"]["math"]) == {"groups"}
    assert effects["by_task"]["math"]["groups"]["seen"] == {"items": 1, "bits_per_byte": [3.0, 3.0, 3.0]}
    assert score_effects(TABLE, ()) == {"scored": False}


def test_the_interval_of_a_difference_covers_it_as_often_as_it_says() -> None:
    """300 draws from two normals a unit apart: 95 % of the intervals hold 1, give or take 3 sigma of a binomial (0.038)."""
    generator = np.random.default_rng(0)
    held = 0
    for seed in range(300):
        _, low, high = difference_bootstrap(generator.normal(2, 1, 100), generator.normal(1, 1, 80), seed)
        held += low <= 1 <= high
    assert abs(held / 300 - 0.95) < 0.038


def write_marks(out: Writer, config: Scored) -> None:
    keys = {"suite": "s", "task": "math"}
    rows = [{**keys, "item_id": item, "status": "unknown" if item == "i2" else "clean"} for item, *_ in config.rows]
    pl.DataFrame(rows).write_parquet(out.folder / "items.parquet")
    pl.DataFrame([{**keys, "item_id": "i0", "tier": "fragment"}]).write_parquet(out.folder / "matches.parquet")


def test_all_that_is_flagged_is_scored_and_nothing_unmatchable_is_a_control(tmp_path: Path) -> None:
    names = [f"i{n}" for n in range(8)]
    items = [Item("s", "math", name, f"what is {name}?", "4", "MIT", "d") for name in names]
    config = Scored(tuple((name, 0.0, None, None) for name in names))
    marks = build(Store(str(tmp_path)), Node(("marks",), None, Stage("tests.marks", "1", write_marks), config)).artifact
    chosen = {controls: [i.item_id for i in choose_items(items, (marks,), wanted(controls))["math"]] for controls in (2, 100)}
    assert chosen[2][0] == chosen[100][0] == "i0" and len(chosen[2]) == 3
    assert set(chosen[100]) == set(names) - {"i2"}
    with pytest.raises(ValueError, match="task 'law' has no items"):
        choose_items(items, (marks,), ContaminationScoresConfig((TaskSpec("law", "gold_bpb"),), 2, 5))


def wanted(controls: int) -> ContaminationScoresConfig:
    return ContaminationScoresConfig((TaskSpec("math", "gold_bpb"),), controls, 5)


def test_perplexity_has_no_items_to_flag() -> None:
    with pytest.raises(ValueError, match="heldout"):
        ContaminationScoresConfig((TaskSpec("heldout", "perplexity"),), 50, 5)
