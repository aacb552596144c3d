"""Find the descendants of a bad artifact or a bad stage version, and estimate the cost of making them again.

Costs are recorded in manifests when artifacts are made: seconds on the machine of that day, and bytes written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from lineage.graph.edges import LineageTables
from lineage.graph.walk import LineageGraph


@dataclass(frozen=True)
class Cost:
    """Sums over artifacts. Checkpoints that one training job saved count its seconds once, their bytes each."""

    num_artifacts: int
    wall_seconds: float
    cpu_seconds: float
    num_bytes: int


@dataclass(frozen=True)
class Affected:
    """`rows`: ARTIFACTS_SCHEMA and `is_origin` (bad itself, not by descent), inputs before what was made from them."""

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
    found = of_stage if version is None else of_stage.filter(pl.col("stage_version") == version)
    if not found.height:
        versions = ", ".join(of_stage["stage_version"].unique().sort())
        raise ValueError(f"nothing here was made by version {version!r} of {stage}; the store holds: {versions}")
    return found["address"].to_list()


def affected_by(tables: LineageTables, origins: Sequence[str]) -> Affected:
    """Return the origins and all their descendants. Raises: ValueError for an address that the tables do not have."""
    graph = LineageGraph(tables)
    reached = {address for origin in origins for address in graph.walk(origin, "down")}
    ordered = pl.DataFrame({"address": graph.oldest_first(reached)}, schema={"address": pl.String})
    bad = pl.Series(list(origins), dtype=pl.String).implode()
    rows = ordered.join(tables.artifacts, on="address", how="inner", maintain_order="left")
    return Affected(rows.with_columns(is_origin=pl.col("address").is_in(bad)), cost_of(rows))


def cost_of(rows: pl.DataFrame) -> Cost:
    """Return the cost of making these artifacts (rows of ARTIFACTS_SCHEMA) again."""
    processes = rows.group_by("process", "run_id").agg(pl.col("wall_seconds", "cpu_seconds").max())
    return Cost(
        num_artifacts=rows.height,
        wall_seconds=round(float(processes["wall_seconds"].sum()), 3),
        cpu_seconds=round(float(processes["cpu_seconds"].sum()), 3),
        num_bytes=int(rows["num_bytes"].sum()),
    )
