"""Compare two results of one task item by item.

The comparison is paired: only items that both graded count, and both must have been asked in the same words (equal
prompt digests), so a changed suite or style is refused and not compared.
"""

from dataclasses import dataclass

import polars as pl

from evals.scoring.statistics import Comparison, compare_paired
from lineage.artifact.store import Artifact

SEED = 0


@dataclass(frozen=True)
class TaskComparison:
    """A comparison of one task by one measure, and how many items either result did not grade."""

    task: str
    measure: str
    comparison: Comparison
    left_out: int


def compare_results(first: Artifact, second: Artifact) -> list[TaskComparison]:
    """Compare every task that both have: verdicts by McNemar's exact test, bits by the sign test, intervals by a paired
    bootstrap.

    Raises: ValueError if they share no task, have different policies, or asked an item differently.
    """
    policies = [a.manifest.extra["policy"]["data_version"] for a in (first, second)]
    if policies[0] != policies[1]:
        names = [
            f"{a.manifest.extra['policy']['name']}@{version[:8]}" for a, version in zip((first, second), policies, strict=True)
        ]
        raise ValueError(
            f"{first.name} and {second.name} are under different policies ({' and '.join(names)}): nothing to compare"
        )
    one, two = (pl.read_parquet(a.files("records.parquet")[0]) for a in (first, second))
    both = one.join(two, on=["task", "item_id"], suffix="_second")
    changed = both.filter(pl.col("prompt_digest") != pl.col("prompt_digest_second"))
    if changed.height:
        row = changed.row(0, named=True)
        raise ValueError(f"{row['task']}/{row['item_id']} was asked differently of the two, and {changed.height - 1} others")
    if not both.height:
        raise ValueError(f"{first.name} and {second.name} have no item in common")
    return [
        comparisons for task in both["task"].unique().sort() for comparisons in _compared(str(task), both.filter(task=task))
    ]


def _compared(task: str, rows: pl.DataFrame) -> list[TaskComparison]:
    comparisons = []
    for measure, higher in (("correct", True), ("bpb", False)):
        graded = rows.drop_nulls([measure, f"{measure}_second"])
        if graded.height:
            values = [graded[name].cast(pl.Float64).to_list() for name in (measure, f"{measure}_second")]
            comparison = compare_paired(values[0], values[1], SEED, higher_is_better=higher)
            comparisons.append(TaskComparison(task, measure, comparison, rows.height - graded.height))
    return comparisons
