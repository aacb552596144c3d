"""Find the descendants of a bad artifact or a bad stage version, and estimate the cost of making them again.

Costs are recorded in manifests when artifacts are made: seconds on the machine of that day, and bytes written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from lineage.graph.edges import LineageTables
from lineage.graph.walk import LineageGraph

GONE = "{} of data version {}"
"""The name of a node for bytes that were read and that no artifact has any more."""


@dataclass(frozen=True)
class Cost:
    """Sums over artifacts. Checkpoints that one training job saved count its seconds once, their bytes each."""

    num_artifacts: int
    wall_seconds: float
    cpu_seconds: float
    num_bytes: int


@dataclass(frozen=True)
class Affected:
    """`rows`: ARTIFACTS_SCHEMA and `is_origin` (bad itself or equal to it, not by descent), inputs before what was made from
    them."""

    rows: pl.DataFrame
    cost: Cost

    @property
    def addresses(self) -> list[str]:
        return self.rows["address"].to_list()


def artifacts_of_stage(tables: LineageTables, stage: str, version: str | None = None) -> list[str]:
    """Return the addresses of artifacts that a stage made, at one version or at any.

    Raises: ValueError listing the stages, or the versions of the stage, that the store holds.
    """
    of_stage = tables.artifacts.filter(pl.col("stage") == stage)
    if not of_stage.height:
        stages = ", ".join(tables.artifacts["stage"].unique().sort())
        raise ValueError(f"nothing here was made by stage {stage!r}; the store holds: {stages or 'no artifact'}")
    selected = of_stage if version is None else of_stage.filter(pl.col("stage_version") == version)
    if not selected.height:
        versions = ", ".join(of_stage["stage_version"].unique().sort())
        raise ValueError(f"nothing here was made by version {version!r} of {stage}; the store holds: {versions}")
    return selected["address"].to_list()


def affected_by(tables: LineageTables, origins: Sequence[str]) -> Affected:
    """Return the origins, what is equal to them, and all descendants of both.

    Descent goes as the launch gate walks (`lineage.trust.ancestry`): what is equal to an origin is as bad, a missing input
    is replaced by an equal one, and what was made from an equal sibling of a descendant is not affected.
    Raises: ValueError for an address that the tables do not have.
    """
    graph, walked = LineageGraph(tables), LineageGraph(standing_in(tables))
    for origin in origins:
        graph.require(origin)
    read = tables.edges.select(address="parent", name="parent_name", data_version="parent_data_version")
    artifacts = tables.artifacts.select("address", "name", "data_version")
    gone = read.join(artifacts, on="address", how="anti")
    of_origins = (
        pl.concat([artifacts, gone]).filter(pl.col("address").is_in(list(origins))).select("name", "data_version").unique()
    )
    equal = artifacts.join(of_origins, on=["name", "data_version"], how="semi")["address"].to_list()
    starts = [*equal, *of_origins.select(pl.format(GONE, "name", "data_version")).to_series()]
    reached = walked.reach((start for start in starts if start in walked.index), "down")
    selected = artifacts.filter(pl.col("address").is_in(list(reached)))["address"].to_list()
    ordered = pl.DataFrame({"address": graph.oldest_first(selected)}, schema={"address": pl.String})
    rows = ordered.join(tables.artifacts, on="address", how="inner", maintain_order="left")
    return Affected(rows.with_columns(is_origin=pl.col("address").is_in(equal)), cost_of(rows))


def standing_in(tables: LineageTables) -> LineageTables:
    """Return the tables with each edge to the artifact that its child would open today.

    That is the one at the edge's address if it has the bytes that were read, else the first of equal bytes by address, else
    a node `GONE` for bytes that no artifact has.
    """
    own = tables.artifacts.select(parent="address", own_data_version="data_version")
    equal = tables.artifacts.group_by(parent_name="name", parent_data_version="data_version").agg(
        stand_in=pl.col("address").min()
    )
    edges = tables.edges.join(own, on="parent", how="left")
    edges = edges.join(equal, on=["parent_name", "parent_data_version"], how="left")
    as_read = pl.col("own_data_version").eq_missing(pl.col("parent_data_version"))
    gone = pl.format(GONE, "parent_name", "parent_data_version")
    parent = pl.when(as_read).then("parent").otherwise(pl.coalesce("stand_in", gone))
    return LineageTables(tables.artifacts, edges.with_columns(parent=parent).drop("own_data_version", "stand_in"))


def cost_of(rows: pl.DataFrame) -> Cost:
    """Return the cost of making these artifacts (rows of ARTIFACTS_SCHEMA) again."""
    processes = rows.group_by("process", "run_id").agg(pl.col("wall_seconds", "cpu_seconds").max())
    return Cost(
        num_artifacts=rows.height,
        wall_seconds=round(float(processes["wall_seconds"].sum()), 3),
        cpu_seconds=round(float(processes["cpu_seconds"].sum()), 3),
        num_bytes=int(rows["num_bytes"].sum()),
    )
