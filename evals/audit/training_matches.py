"""When a checkpoint read a document, or the documents that hold a benchmark item: every read, in every run that led to
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from evals.audit.evidence import ITEM_KEY, tier_rank
from lineage.artifact.store import Artifact
from lineage.match_tiers import STANDING_TIERS
from lineage.order.exposure import SCHEMA, exposures
from lineage.order.history import training_legs
from lineage.order.order import DataOrder

MARKS_STAGE = "datakit.contamination"
READS_SCHEMA = {"leg": pl.Int64, "checkpoint": pl.String, **SCHEMA}


@dataclass(frozen=True)
class ItemMatches:
    """What the marks above a checkpoint say about an item.

    `statuses`: of `lineage.match_tiers.ITEM_STATUSES`, one for each scanned source. `documents`: (id, channel, tier, score,
    longest_run), the strongest first; they include parts and fragments, which make no document contaminated.
    """

    statuses: tuple[str, ...]
    documents: pl.DataFrame

    @property
    def is_matched(self) -> bool:
        return bool(self.documents["tier"].is_in(STANDING_TIERS).any())


def document_reads(checkpoint: Artifact, documents: Sequence[str]) -> pl.DataFrame:
    """Return READS_SCHEMA: one row for every (document, sequence) that a step read, the oldest run first.

    `leg` numbers the runs that led to the checkpoint, `checkpoint` names the one that ended each; `row` is the place in
    the batch of `step`. Raises: what `training_legs` and `DataOrder.open` raise.
    """
    frames = [pl.DataFrame(schema=READS_SCHEMA)]
    for number, leg in enumerate(training_legs(checkpoint)):
        order = DataOrder.open(leg.mixture, leg.seq_len)
        wanted = {name: sorted(set(documents)) for name in order.names}
        matched = exposures(order, wanted, batches=leg.batches, num_steps=leg.num_steps)
        named = matched.with_columns(leg=pl.lit(number, pl.Int64), checkpoint=pl.lit(leg.checkpoint.name))
        frames.append(named.select(READS_SCHEMA.keys()))
    return pl.concat(frames).sort("leg", "step", "row", "component", "id")


def item_matches(checkpoint: Artifact, item: str) -> ItemMatches:
    """Return what is known of an item, `task/item_id` or `suite/task/item_id`, from every contamination artifact above
    a checkpoint.

    Raises: ValueError if nothing above it was scanned for items, or not for that one.
    """
    by_suite = pl.concat_str([pl.col(column) for column in ITEM_KEY], separator="/")
    is_item = (by_suite == item) | (pl.concat_str(["task", "item_id"], separator="/") == item)  # Ids may hold slashes too.
    marks = [artifact for artifact in checkpoint.store.walk_up(checkpoint) if artifact.spec.stage == MARKS_STAGE]
    if not marks:
        raise ValueError(f"nothing above {checkpoint.name} was scanned for benchmark items: it has no {MARKS_STAGE} ancestor")
    statuses = [status for m in marks for status in _table(m, "items").filter(is_item)["status"]]
    if not statuses:
        tasks = sorted({task for m in marks[:1] for task in _table(m, "items")["task"].unique()})
        raise ValueError(
            f"no item {item!r} among those that {marks[0].name} was scanned for; give task/item_id or suite/task/item_id, its "
            f"tasks are {', '.join(tasks)}"
        )
    matched = pl.concat([_table(m, "matches").filter(is_item) for m in marks])
    chosen = matched.select("id", "channel", "tier", "score", "longest_run").unique()
    return ItemMatches(tuple(statuses), chosen.sort(tier_rank(), pl.col("score") * -1, "id", "channel"))


def _table(marks: Artifact, name: str) -> pl.DataFrame:
    return pl.read_parquet(marks.files(f"{name}.parquet")[0])
