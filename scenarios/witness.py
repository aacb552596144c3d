"""Three ways to the same exposures: the audit's inverse, `marin exposure`'s, and a log of every batch read forward."""

from collections.abc import Sequence

import polars as pl

from evals.audit.training_matches import document_reads, item_matches
from evals.items.item import Item
from lineage.artifact.store import Artifact
from lineage.match_tiers import STANDING_TIERS
from lineage.order.history import training_legs
from lineage.order.order import DataOrder

READ_SCHEMA = {"leg": pl.Int64, "component": pl.String, "id": pl.String, "step": pl.Int64, "row": pl.Int64}
READ = list(READ_SCHEMA)


def audited_reads(audit: Artifact) -> pl.DataFrame:
    """`exposures.parquet` of an audit, standing matches only: item_id and READ."""
    table = pl.read_parquet(audit.files("exposures.parquet")[0])
    return table.filter(pl.col("tier").is_in(STANDING_TIERS)).select("item_id", *READ).unique().sort("item_id", *READ)


def reads_from_order(checkpoint: Artifact, items: Sequence[Item]) -> pl.DataFrame:
    """The same, one item at a time, as `marin exposure --item` does."""
    frames = [pl.DataFrame(schema={"item_id": pl.String, **READ_SCHEMA})]
    for item in items:
        documents = item_matches(checkpoint, f"{item.task}/{item.item_id}").documents
        ids = documents.filter(pl.col("tier").is_in(STANDING_TIERS))["id"].unique().to_list()
        reads = document_reads(checkpoint, ids).select(pl.lit(item.item_id).alias("item_id"), *READ)
        frames.append(reads)
    return pl.concat(frames).unique().sort("item_id", *READ)


def logged_reads(checkpoint: Artifact, documents: Sequence[str]) -> pl.DataFrame:
    """READ of every batch in the order of training: which of the documents are in each row. It does not use the inverse."""
    wanted = set(documents)
    rows = []
    for number, leg in enumerate(training_legs(checkpoint)):
        order = DataOrder.open(leg.mixture, leg.seq_len)
        for step in range(leg.num_steps):
            first, size = leg.batches.first(step), leg.batches.size(step)
            for row, component, start, length, _ in order.pieces(first, size):
                held = order.caches[component].documents_between(start, start + length)
                rows += [(number, order.names[component], name, step, row) for name, _, _ in held if name in wanted]
    return pl.DataFrame(rows, schema=READ_SCHEMA, orient="row").unique().sort(READ)
