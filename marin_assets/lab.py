"""The lab from a notebook: `lab.open(root)` gives frames of scores, learning curves, exposure and lineage.

It reads storage only: no Dagster, no code of a run, no accelerator. Names are those that `marin list` prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from evals.audit.training_matches import READS_SCHEMA, document_reads, item_matches
from evals.reports.leaderboard import open_board, primary_scores
from lineage.artifact.locate import locate
from lineage.artifact.store import Artifact, Store
from marin_assets.cli.query import ledger_of_stores
from marin_assets.cli.show_lineage import walk
from operations.ledger.database import opened, query
from resources.stores import lab_stores, stores_from_environment

LINEAGE_SCHEMA = {
    "artifact": pl.String,
    "stage": pl.String,
    "stage_version": pl.String,
    "data_version": pl.String,
    "created": pl.String,
    "bytes": pl.Int64,
    "inputs": pl.List(pl.String),
}


@dataclass(frozen=True)
class OpenLab:
    """The stores of a lab. Each method reads them again, so it shows their present state."""

    stores: tuple[Store, ...]

    def artifact(self, name: str) -> Artifact:
        """Return the newest artifact of a name. Raises: ValueError that says which names are near."""
        return locate(self.stores, name)

    def scores(self, policy: str | None = None) -> pl.DataFrame:
        """Return the primary score of every task at every checkpoint, with its interval, or those of one evaluation policy."""
        return primary_scores(open_board(self.stores), policy)

    def curve(self, checkpoint: str) -> pl.DataFrame:
        """Return what training recorded, a row for each step up to a checkpoint; `loss_nats` is a column."""
        return pl.read_parquet(self.artifact(checkpoint).file("metrics.parquet"))

    def curves(self, checkpoints: Sequence[str]) -> pl.DataFrame:
        """Return the curves of several checkpoints below each other, with the column `checkpoint`."""
        frames = [self.curve(name).with_columns(checkpoint=pl.lit(name)) for name in checkpoints]
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema={"checkpoint": pl.String})

    def exposure(self, checkpoint: str, *, documents: Sequence[str] = (), item: str | None = None) -> pl.DataFrame:
        """Return one row for every read of documents by a training step, or of the documents that hold a benchmark item.

        `item` is `task/item_id` or `suite/task/item_id`. Columns: `READS_SCHEMA` of `evals.audit.training_matches`.
        Raises: ValueError unless exactly one of `documents` and `item` is given.
        """
        if (item is None) == (not documents):
            raise ValueError(f"exposure of {checkpoint}: give documents, or an item such as item='mmlu/12'; not both")
        of = self.artifact(checkpoint)
        wanted = documents if item is None else item_matches(of, item).documents["id"].unique().sort().to_list()
        return document_reads(of, wanted) if wanted else pl.DataFrame(schema=READS_SCHEMA)

    def lineage(self, artifact: str, *, down: bool = False) -> pl.DataFrame:
        """Return an artifact and what it was made from, nearest first; with `down` what was made from it."""
        walked = walk(self.artifact(artifact), "down" if down else "up")
        return pl.DataFrame([_row(each) for each in walked], schema=LINEAGE_SCHEMA, orient="row")

    def query(self, sql: str) -> pl.DataFrame:
        """Return the answer of one SELECT over the tables of the ledger; `show tables` lists them."""
        with opened(ledger_of_stores(self.stores)) as connection:
            return query(connection, sql)


def open(root: str | None = None) -> OpenLab:
    """Open the lab under a root, a folder or a URL; without one, that of the environment variable `MARIN_ROOT`."""
    return OpenLab(stores_from_environment() if root is None else lab_stores(root))


def _row(artifact: Artifact) -> tuple[object, ...]:
    manifest, spec = artifact.manifest, artifact.spec
    size = sum(entry.bytes for entry in manifest.files)
    inputs = [ref.address for ref in spec.inputs]
    return (artifact.name, spec.stage, spec.stage_version, artifact.data_version, manifest.created, size, inputs)
