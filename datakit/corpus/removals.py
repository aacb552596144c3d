"""The stage `datakit.removals`: documents that no corpus may hold, as takedown requests name them.

A corpus that reads the list leaves these documents out, and every copy in their duplicate clusters, in all of its sources. Raw
files and normalized sets keep them. What was trained on the text beside the corpus (a scorer) is made from normalized sets.
"""

import re
from dataclasses import dataclass

import polars as pl

from datakit.documents.schemas import DUPLICATES_FILE
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

REMOVALS_FILE = "removals.parquet"
REMOVED = "removed"
"""The reason of such drops."""
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Removal:
    """One request: the documents by id (32 hex digits), and why they go, such as the number of a ticket."""

    documents: tuple[str, ...]
    why: str

    def __post_init__(self) -> None:
        if not self.documents or not self.why.strip():
            raise ValueError(f"removal: documents is {self.documents}, why is {self.why!r}; give documents and a reason")
        if bad := [text for text in self.documents if not _ID.fullmatch(text)]:
            raise ValueError(
                f"removal {self.why!r}: document id {bad[0]!r} is not 32 hex digits in lower case, as the column `id` has them"
            )


@dataclass(frozen=True)
class RemovalsConfig:
    """Every request so far; a later list repeats the earlier requests."""

    requests: tuple[Removal, ...]

    def __post_init__(self) -> None:
        if not self.requests:
            raise ValueError("removals: requests is empty; leave the list away instead")


def list_removals(out: Writer, config: RemovalsConfig) -> None:
    """Write `removals.parquet`: `id` and `why`, each id once with the first request that names it."""
    pairs = [(document, request.why) for request in config.requests for document in request.documents]
    table = pl.DataFrame(pairs, schema={"id": pl.String, "why": pl.String}, orient="row")
    table.unique("id", keep="first", maintain_order=True).sort("id").write_parquet(out.folder / REMOVALS_FILE)
    out.record(rows_out=table["id"].n_unique())


REMOVALS = Stage(
    "datakit.removals",
    "1",
    list_removals,
    description="Documents that no corpus may hold, by request.",
    checks=("file_set",),
)


@dataclass(frozen=True)
class Removed:
    """Ids of the listed documents, and the duplicate clusters that they are in."""

    ids: tuple[str, ...]
    clusters: tuple[str, ...]

    def drops(self) -> pl.Expr:
        """Whether a document goes, from the columns `id` and `cluster_id` (null without a cluster)."""
        ids, clusters = (pl.Series(values, dtype=pl.String).implode() for values in (self.ids, self.clusters))
        return pl.col("id").is_in(ids) | pl.col("cluster_id").is_in(clusters).fill_null(False)


def read_removed(removals: Artifact, duplicates: Artifact) -> Removed:
    """Return the listed documents and their clusters, in any source of the duplicates table or of earlier scopes."""
    ids = pl.read_parquet(removals.files(REMOVALS_FILE)[0])["id"]
    before = [ref for ref in duplicates.spec.inputs if ref.name.startswith("earlier_duplicates.")]
    every = (duplicates, *(duplicates.store.parent(duplicates, ref) for ref in before))
    clusters = pl.scan_parquet([table.file(DUPLICATES_FILE) for table in every]).filter(pl.col("id").is_in(ids.implode()))
    removed_clusters = clusters.select(pl.col("cluster_id").unique().sort()).collect()["cluster_id"]
    return Removed(tuple(ids.to_list()), tuple(removed_clusters.to_list()))
