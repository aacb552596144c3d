"""The stage `post_training.audit`: which rollouts contained benchmark items, of which prompts, and which updates used them.

An update trains on the whole rollout. So if a rollout contains an item and is used, the run has read the item.
"""

import json
from dataclasses import dataclass

import polars as pl

from evals.audit.evidence import ITEM_KEY, item_statuses, tier_rank
from lineage.artifact.store import Artifact
from lineage.match_tiers import STANDING_TIERS, verdict
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.exposure import READS_SCHEMA, Leg, reward_legs, rollout_reads

REPORT_FILE, ITEMS_FILE, EXPOSURES_FILE = "audit.json", "items.parquet", "exposures.parquet"
ITEM_COLUMNS = (*ITEM_KEY, "status", "tier", "num_rollouts", "first_leg", "first_step", "num_exposures")
EXPOSURE_COLUMNS = (*ITEM_KEY, "tier", *READS_SCHEMA)


@dataclass(frozen=True)
class RewardAuditConfig:
    """Nothing to choose: the audit lists every exposure."""


def audit_rollouts(
    out: Writer, config: RewardAuditConfig, checkpoint: Artifact, marks: tuple[Artifact, ...], suites: tuple[Artifact, ...]
) -> None:
    """Write `items.parquet` (a row for each item), `exposures.parquet` (a row for each update that read a rollout with an item)
    and `audit.json`. `marks` has the contamination marks of the rollouts of every leg.

    Raises: ValueError if a leg has no marks, or marks are of other rollouts or suites.
    """
    chain, before = reward_legs(checkpoint)
    legs = [_leg(each, marks) for each in chain]
    strangers = {each.name for each in marks} - {mark.name for leg in legs for mark in leg.marks}
    if strangers:
        raise ValueError(f"{min(strangers)} marks rollouts that {checkpoint.name} did not learn from; give those of its runs")
    matches = pl.concat([pl.read_parquet(each.file("matches.parquet")) for leg in legs for each in leg.marks])
    statuses = item_statuses(suites, marks, matches)
    best = matches.select(*ITEM_KEY, "id", "tier").sort(tier_rank()).unique([*ITEM_KEY, "id"], keep="first")
    reads = rollout_reads(legs, best["id"].unique().to_list())
    exposed = best.join(reads, on="id").select(EXPOSURE_COLUMNS).sort(EXPOSURE_COLUMNS)
    items = _items(statuses, best, exposed)
    items.write_parquet(out.folder / ITEMS_FILE, compression="zstd")
    exposed.write_parquet(out.folder / EXPOSURES_FILE, compression="zstd")
    summary = _summary(items, exposed) | {
        "step": checkpoint.manifest.extra["checkpoint"]["step"],
        "legs": [each.name for each in chain],
        "before": None if before is None else before.name,
    }
    (out.folder / REPORT_FILE).write_text(json.dumps(summary, indent=1) + "\n")
    out.extra["audit"] = summary
    out.record(rows_in=len(statuses), rows_out=len(items))


def _leg(checkpoint: Artifact, marks: tuple[Artifact, ...]) -> Leg:
    for each in marks:
        texts = each.input("normalized")
        if texts.input("checkpoint").data_version == checkpoint.data_version:
            return Leg(checkpoint, texts, (each,))
    raise ValueError(f"none of the {len(marks)} given marks is of the rollouts of {checkpoint.name}; add them")


def _items(statuses: pl.DataFrame, best: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    held = best.group_by(ITEM_KEY).agg(
        tier=pl.col("tier").sort_by(tier_rank()).first(), num_rollouts=pl.col("id").n_unique().cast(pl.Int64)
    )
    steps = exposed.group_by(ITEM_KEY).agg(
        first_leg=pl.col("leg").sort_by("leg", "step").first(),
        first_step=pl.col("step").sort_by("leg", "step").first(),
        num_exposures=pl.len().cast(pl.Int64),
    )
    joined = statuses.join(held, on=ITEM_KEY, how="left").join(steps, on=ITEM_KEY, how="left")
    filled = joined.with_columns(
        pl.col("tier").fill_null(""), pl.col("^num_.*$").fill_null(0), pl.col("first_leg", "first_step").fill_null(-1)
    )
    return filled.select(ITEM_COLUMNS).sort(ITEM_KEY)


def _summary(items: pl.DataFrame, exposed: pl.DataFrame) -> dict[str, object]:
    """Return the verdict in the words of `evals.audit`."""
    standing = items.filter(pl.col("tier").is_in(STANDING_TIERS))
    seen = exposed.filter(pl.col("tier").is_in(STANDING_TIERS)).select(ITEM_KEY).unique()
    return {
        "verdict": verdict(items.filter(pl.col("tier") != "")["tier"]),
        "verdict_at_step": verdict(exposed["tier"]),
        "counts": {"items": len(items), "matched_after": len(standing), "seen_in_training": len(seen)},
    }


REWARD_AUDIT = Stage(
    "post_training.audit",
    "2",
    audit_rollouts,
    description="Which benchmark items rollouts held, which rollout of which prompt, and at which update it was learned from.",
    checks=("file_set",),
)
