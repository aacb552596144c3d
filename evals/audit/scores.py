"""The effect of contamination: scores of the items that training read, compared with clean items and with the run's
start.

The audit's own table assigns each item to a group. There are two comparisons, each with its 95 % interval (a bootstrap
over items):

- *seen minus clean*: the same model on other items. Items differ in difficulty, so alone it proves little.
- *since the start*, for a run that began with another's checkpoint: the same items under both models, so difficulty
  cancels; and the change of the seen items minus that of the clean ones, which is the effect of the exposure.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from evals.audit.evidence import ITEM_KEY
from evals.scoring.intervals import difference_bootstrap, mean_bootstrap, wilson
from lineage.artifact.store import Artifact
from lineage.match_tiers import FRAGMENT, PARTIAL, STANDING_TIERS

GROUPS = ("clean", "removed", "unread", FRAGMENT, PARTIAL, "seen")
"""`clean`: no document of any source holds it. `removed`: one did, none is in the mixture. `unread`: one is in the
mixture, and no step has read it yet. `fragment`: steps have read a few words of it. `partial`: about half of
its question. `seen`: steps have read it.
"""
SEED = 7


def item_groups(table: pl.DataFrame) -> pl.DataFrame:
    """Return (suite, task, item_id, group) of the audit's item table; items too short to be matched have no group."""
    seen = pl.col("num_exposures") > 0
    group = (
        pl.when(seen & pl.col("tier_after").is_in(STANDING_TIERS))
        .then(pl.lit("seen"))
        .when(seen)
        .then(pl.when(pl.col("tier_after") == PARTIAL).then(pl.lit(PARTIAL)).otherwise(pl.lit(FRAGMENT)))
        .when(pl.col("num_documents_after") > 0)
        .then(pl.lit("unread"))
        .when(pl.col("num_documents_before") > 0)
        .then(pl.lit("removed"))
        .otherwise(pl.lit("clean"))
    )
    return table.filter((pl.col("status") != "unknown") | (pl.col("num_documents_before") > 0)).select(ITEM_KEY, group=group)


def score_effects(table: pl.DataFrame, scores: Sequence[Artifact]) -> dict[str, Any]:
    """Return scores by task and group, and the differences between them; `scored` is False if the audit got no scores.

    `bits_per_byte` is the mean over items of the gold answer's, `accuracy` the share right (only tasks with choices).
    `all` sums over tasks: every item counts once.
    """
    if not scores:
        return {"scored": False}
    checkpoint = scores[0].input("checkpoint").data_version
    records = pl.concat([pl.read_parquet(artifact.files("records.parquet")[0]) for artifact in scores])
    rows = records.filter(pl.col("verdict") == "graded").join(item_groups(table), on=["task", "item_id"])
    now = rows.filter(pl.col("checkpoint") == checkpoint)
    before = rows.filter(pl.col("checkpoint") != checkpoint).select("task", "item_id", bpb_before="bpb")
    paired = now.join(before, on=["task", "item_id"])
    tasks = sorted(now["task"].unique())
    of_task = {task: pl.col("task") == task for task in tasks} | {"all": pl.lit(True)}
    return {
        "scored": True,
        "has_start": before.height > 0,
        "unscorable": records.filter(pl.col("verdict") != "graded").height,
        "by_task": {
            task: {"groups": _groups(now.filter(chosen)), **_differences(now.filter(chosen), paired.filter(chosen))}
            for task, chosen in of_task.items()
        },
    }


def _groups(rows: pl.DataFrame) -> dict[str, dict[str, Any]]:
    entries = {}
    for group in GROUPS:
        of_group = rows.filter(pl.col("group") == group)
        if of_group.height:
            entries[group] = {"items": of_group.height, "bits_per_byte": _mean(of_group["bpb"]), **_accuracy(of_group)}
    return entries


def _accuracy(rows: pl.DataFrame) -> dict[str, list[float]]:
    graded = rows["correct"].drop_nulls()
    if not graded.len():
        return {}
    right = int(graded.sum())
    return {"accuracy": _rounded((right / graded.len(), *wilson(right, graded.len())))}


def _differences(now: pl.DataFrame, paired: pl.DataFrame) -> dict[str, list[float]]:
    """Return differences in bits per byte as [value, low, high]; each only if both sides have at least two items."""

    def of_group(rows: pl.DataFrame, group: str) -> pl.DataFrame:
        return rows.filter(pl.col("group") == group)

    entries = {}
    seen, clean = of_group(now, "seen")["bpb"], of_group(now, "clean")["bpb"]
    if min(seen.len(), clean.len()) > 1:
        entries["seen_less_clean"] = _rounded(difference_bootstrap(seen.to_numpy(), clean.to_numpy(), SEED))
    changes = {g: (of_group(paired, g)["bpb"] - of_group(paired, g)["bpb_before"]).to_numpy() for g in ("seen", "clean")}
    for group, change in changes.items():
        if change.size > 1:
            entries[f"{group}_since_start"] = _rounded(mean_bootstrap(change, SEED))
    if min(change.size for change in changes.values()) > 1:
        entries["seen_less_clean_since_start"] = _rounded(difference_bootstrap(changes["seen"], changes["clean"], SEED))
    return entries


def _mean(values: pl.Series) -> list[float]:
    return _rounded(mean_bootstrap(values.to_numpy(), SEED))


def _rounded(values: Sequence[float] | np.ndarray) -> list[float]:
    return [round(float(value), 5) for value in values]
