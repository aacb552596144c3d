"""Which rollouts a checkpoint learned from, and at which updates: given documents, or those that contain a benchmark item.

A run on rewards may start from another one. The legs are these runs, the oldest first. Each has its own rollouts. What was
before the first leg (a run on text, an imported model) has its own audit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from evals.audit.evidence import ITEM_KEY, tier_rank
from lineage.artifact.store import Artifact
from lineage.graph.below import children_of
from post_training.stage import REWARD_CHECKPOINT
from post_training.texts import ORIGINS_FILE, ROLLOUT_TEXTS

MARKS_STAGE = "datakit.contamination"
READS_SCHEMA = {
    "leg": pl.Int64,
    "checkpoint": pl.String,
    "id": pl.String,
    "prompt_id": pl.String,
    "iteration": pl.Int64,
    "row": pl.Int64,
    "step": pl.Int64,
    "verdict": pl.String,
}
"""One row for every update that read a rollout. `id` is the document of prompt and completion."""


@dataclass(frozen=True)
class Leg:
    """A run on rewards up to a checkpoint, with its rollouts as documents and their marks."""

    checkpoint: Artifact
    texts: Artifact
    marks: tuple[Artifact, ...]


def reward_legs(checkpoint: Artifact) -> tuple[list[Artifact], Artifact | None]:
    """Return (checkpoints of the runs on rewards that led here, the oldest first; the checkpoint before them, or None).

    Raises: ValueError for a checkpoint of another stage.
    """
    if checkpoint.spec.stage != REWARD_CHECKPOINT.name:
        raise ValueError(f"{checkpoint.name} was made by {checkpoint.spec.stage}, which does not learn from rollouts")
    legs, before = [checkpoint], None
    while any(ref.name == "start" for ref in legs[0].spec.inputs):
        start = legs[0].input("start")
        if start.spec.stage != REWARD_CHECKPOINT.name:
            before = start
            break
        legs.insert(0, start)
    return legs, before


def marked_legs(checkpoint: Artifact) -> list[Leg]:
    """Return the legs with the artifacts in the store that were made from them.

    Raises: ValueError naming a leg whose rollouts were not written as documents, and the asset that writes them.
    """
    return [_marked(leg) for leg in reward_legs(checkpoint)[0]]


def _marked(checkpoint: Artifact) -> Leg:
    texts = _made_of(checkpoint, ROLLOUT_TEXTS.name)
    if not texts:
        key = "/".join((*checkpoint.spec.key[:-1], "rollout_texts"))
        raise ValueError(
            f"the rollouts of {checkpoint.name} are not documents yet; `./marin materialize {key} --partition "
            f"{checkpoint.spec.partition}` writes them"
        )
    return Leg(checkpoint, texts[-1], tuple(_made_of(texts[-1], MARKS_STAGE)))


def _made_of(parent: Artifact, stage: str) -> list[Artifact]:
    """Return what a stage made directly from an artifact, the newest last."""
    children = [child for child in children_of(parent) if child.spec.stage == stage]
    return sorted(children, key=lambda each: each.manifest.created)


def rollout_reads(legs: Sequence[Leg], documents: Sequence[str]) -> pl.DataFrame:
    """Return a table (READS_SCHEMA) of the updates that read some documents, the oldest first."""
    tables = [pl.DataFrame(schema=READS_SCHEMA)]
    for number, leg in enumerate(legs):
        origins = pl.scan_parquet(leg.texts.file(ORIGINS_FILE)).filter(pl.col("id").is_in(list(documents)))
        read = origins.explode("steps").drop_nulls("steps").rename({"steps": "step"}).collect()
        named = read.with_columns(leg=pl.lit(number, pl.Int64), checkpoint=pl.lit(leg.checkpoint.name))
        tables.append(named.select(READS_SCHEMA.keys()))
    return pl.concat(tables).sort("leg", "step", "row", "id")


@dataclass(frozen=True)
class HeldItem:
    """The marks of the legs about a benchmark item: a status for each scan, and (id, tier) of the rollouts."""

    statuses: tuple[str, ...]
    documents: pl.DataFrame


def item_in_rollouts(legs: Sequence[Leg], item: str) -> HeldItem:
    """Find the rollouts that contain an item, `task/item_id` or `suite/task/item_id`.

    Raises: ValueError if a leg was not scanned, or not for that item.
    """
    by_suite = pl.concat_str([pl.col(column) for column in ITEM_KEY], separator="/")
    is_item = (by_suite == item) | (pl.concat_str(["task", "item_id"], separator="/") == item)
    statuses, matches = [], []
    for leg in legs:
        if not leg.marks:
            key = "/".join((*leg.checkpoint.spec.key[:-1], "rollout_marks"))
            raise ValueError(
                f"the rollouts of {leg.checkpoint.name} were not scanned for benchmark items; `./marin materialize {key} "
                f"--partition {leg.checkpoint.spec.partition}` does"
            )
        statuses += _table(leg.marks[-1], "items").filter(is_item)["status"].to_list()
        matches.append(_table(leg.marks[-1], "matches").filter(is_item).select("id", "tier"))
    if not statuses:
        raise ValueError(f"no item {item!r} among those that {legs[-1].marks[-1].name} was scanned for")
    strongest = pl.concat(matches).unique().sort(tier_rank(), "id").unique("id", keep="first", maintain_order=True)
    return HeldItem(tuple(statuses), strongest)


def _table(marks: Artifact, name: str) -> pl.DataFrame:
    return pl.read_parquet(marks.file(f"{name}.parquet"))
