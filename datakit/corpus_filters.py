"""What makes a document leave a corpus: attribute tables joined a part at a time, and one small declared thing a filter.

An attribute table lies beside the documents: parts of the same names, rows of the same ids in the same order. A filter is a
line of `reasons` below: an expression over the joined columns that gives a reason, or null where the document may stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from datakit.duplicates import DUPLICATES_FILE
from lineage.store import Artifact


@dataclass(frozen=True)
class CorpusConfig:
    """Which filters apply, and the held-out share."""

    drop_duplicates: bool = True
    drop_contaminated: bool = True
    drop_low_quality: bool = True
    heldout_frac: float = 0.02
    split_salt: str = "heldout-1"

    def __post_init__(self) -> None:
        if not 0 <= self.heldout_frac < 1:
            raise ValueError(f"corpus.heldout_frac is {self.heldout_frac}; it must be in [0, 1)")


def reasons(config: CorpusConfig) -> Iterator[pl.Expr]:
    """The declared filters in their order; of several that apply to a document the first names the drop."""
    if config.drop_duplicates:
        yield pl.when(~pl.col("is_kept")).then(pl.lit("duplicate"))
    if config.drop_contaminated:
        yield pl.when("contaminated").then(pl.lit("contaminated"))
    if config.drop_low_quality:
        yield pl.when(pl.col("low_quality") != "").then(pl.concat_str(pl.lit("low_quality:"), "low_quality"))


@dataclass(frozen=True)
class Table:
    """An attribute table of an artifact: the folder of its parts and the columns that filters read, by their new names."""

    folder: str
    columns: Mapping[str, str]


TABLES: Mapping[str, Table] = {
    "quality": Table("quality", {"low_quality": "reason"}),
    "contamination": Table("marks", {"contaminated": "contaminated"}),
}
"""By the name of the corpus's input."""


@dataclass(frozen=True)
class Attributes:
    """Where the attributes of one source's documents are. Paths only: it crosses a process border."""

    source: str
    tables: Mapping[str, tuple[str, Path]] = field(default_factory=dict)
    """Input -> (name of the artifact, folder of its parts)."""

    duplicates: Path | None = None

    @staticmethod
    def of(source: str, duplicates: Artifact, **tables: Artifact) -> "Attributes":
        """Raises ValueError for an input that `TABLES` does not know."""
        if unknown := tables.keys() - TABLES.keys():
            raise ValueError(f"no attribute table is declared for {', '.join(sorted(unknown))}; there are: {', '.join(TABLES)}")
        folders = {name: (a.name, a.folder() / TABLES[name].folder) for name, a in tables.items()}
        return Attributes(source, folders, duplicates.files(DUPLICATES_FILE)[0])

    def of_part(self, part: str, ids: pl.Series) -> pl.DataFrame:
        """Attributes of the documents of one part, in their order; duplicates' are null where a document has no cluster.

        Raises: ValueError when a table's ids are not the documents'.
        """
        joined = ids.to_frame("id")
        for name, (artifact, folder) in sorted(self.tables.items()):
            joined = joined.with_columns(_aligned(folder / part, TABLES[name], ids, artifact))
        if self.duplicates is not None:
            clusters = self.clusters(ids)
            joined = joined.join(clusters, on="id", how="left", validate="1:1", maintain_order="left")
        return joined

    def clusters(self, ids: pl.Series) -> pl.DataFrame:
        """id, cluster_id, is_kept of those documents of a part that are in a cluster. The file is streamed, not held."""
        assert self.duplicates is not None
        mine = pl.scan_parquet(self.duplicates).filter(pl.col("source") == self.source)
        mine = mine.filter(pl.col("id").is_between(pl.lit(ids.first()), pl.lit(ids.last()))) if ids.len() else mine.head(0)
        found = mine.select("id", "cluster_id", "is_kept").collect(engine="streaming")
        return found.join(ids.to_frame("id"), on="id", how="semi")

    def num_clustered(self) -> int:
        """How many of the source's documents the duplicates name."""
        assert self.duplicates is not None
        mine = pl.scan_parquet(self.duplicates).filter(pl.col("source") == self.source)
        return int(mine.select(pl.len()).collect(engine="streaming").item())


def _aligned(path: Path, table: Table, ids: pl.Series, artifact: str) -> list[pl.Series]:
    found = pl.read_parquet(path, columns=["id", *table.columns.values()]) if path.exists() else None
    if found is None or not found["id"].equals(ids):
        rows = "no such part" if found is None else f"{found.height} rows for {ids.len()} documents, or other ids"
        raise ValueError(f"{artifact}: part {path.name} has {rows}; it was made from other documents: materialize it again")
    return [found[column].alias(name) for name, column in table.columns.items()]
