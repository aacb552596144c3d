"""The runs of a swarm as an artifact: shares of every source, and the loss of every target, one row each.

`shares.parquet` has (trial, source, tokens, digest, share): with the digest of the token cache, old runs stay usable when a
source is split. `losses.parquet` has (trial, anchor, seed, target, loss); a trial that diverged has no row there. Rows of
an earlier swarm follow (`science/mixtures/earlier.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.outcome import Outcome, outcome_of
from science.mixtures.earlier import LOSSES, SHARES, Held, Split, earlier_rows

MOST_OFF = 0.05
"""A declared token count may be off by this share; the prior and the caps of epochs are made from it."""


@dataclass(frozen=True)
class Designed:
    """A trial that a swarm declares: a design, or a repeat at an anchor."""

    name: str
    seed: int
    anchor: str = ""


@dataclass(frozen=True)
class SwarmRunsConfig:
    """The trials, the sources with their declared tokens, and the scores that the mixture should lower."""

    trials: tuple[Designed, ...]
    sources: tuple[tuple[str, int], ...]
    targets: tuple[str, ...]
    metric: str
    splits: tuple[Split, ...] = field(default=(), metadata={"added_later": True})
    """Sources of an earlier swarm that are several sources now."""


@dataclass(frozen=True)
class SwarmRuns:
    """The runs that ended, in the order of the table."""

    names: tuple[str, ...]
    anchors: tuple[str, ...]
    """The anchor of each run; empty for a design."""
    seeds: tuple[int, ...]
    sources: tuple[str, ...]
    weights: np.ndarray
    """(runs, sources), rows sum to 1."""
    losses: Mapping[str, np.ndarray]
    """Target -> (runs,)."""

    def repeats(self, target: str) -> dict[str, list[float]]:
        """Losses by anchor."""
        of: dict[str, list[float]] = {}
        for anchor, loss in zip(self.anchors, self.losses[target], strict=True):
            if anchor:
                of.setdefault(anchor, []).append(float(loss))
        return of

    def designs(self, target: str) -> list[float]:
        """Losses of the runs that are no repeats."""
        return [float(loss) for anchor, loss in zip(self.anchors, self.losses[target], strict=True) if not anchor]


def write_runs(out: Writer, config: SwarmRunsConfig, results: tuple[Artifact, ...], earlier: Artifact | None = None) -> None:
    """Read shares from the mixtures and losses from the results; `earlier` is the table of an earlier swarm, whose rows follow.

    Raises: ValueError naming trials without a result, mixed policies, a score that is missing, a source outside the declared
    ones, a declared token count that is off, or an earlier table that cannot be compared.
    """
    by_name = {str(result.spec.partition): outcome_of(result) for result in results}
    if missing := [trial.name for trial in config.trials if trial.name not in by_name]:
        raise ValueError(f"{out.spec.name}: no result of {', '.join(missing)}; materialize the results of all trials")
    if len(policies := {outcome.policy for outcome in by_name.values()}) > 1:
        raise ValueError(f"{out.spec.name}: the results have {len(policies)} policies; score all trials by one")
    shares, losses, diverged = [], [], []
    for trial in config.trials:
        outcome = by_name[trial.name]
        shares += [{"trial": trial.name, **row} for row in _shares(outcome, config)]
        if outcome.diverged is not None:
            diverged.append(trial.name)
            continue
        row = {"trial": trial.name, "anchor": trial.anchor, "seed": trial.seed}
        losses += [row | {"target": target, "loss": outcome.score(target, config.metric)} for target in config.targets]
    if earlier is not None:
        held = {str(row["source"]): Held(int(str(row["tokens"])), str(row["digest"])) for row in shares}
        more = earlier_rows(earlier, config.splits, held, config.targets, config.metric, policies.pop())
        shares, losses = shares + more[0], losses + more[1]
    pl.DataFrame(shares).write_parquet(out.folder / SHARES)
    pl.DataFrame(losses, orient="row", infer_schema_length=None).write_parquet(out.folder / LOSSES)
    done = len(config.trials) - len(diverged)
    out.extra["swarm"] = {"trials": len(config.trials), "sources": len(config.sources), "diverged": diverged}
    out.record(rows_in=len(config.trials), rows_out=done, drops={"diverged": len(diverged)} if diverged else {})


def _shares(outcome: Outcome, config: SwarmRunsConfig) -> list[dict[str, object]]:
    """The share of each source in the mixture that a run read, with the source's tokens and digest."""
    record = outcome.checkpoint.input("mixture").manifest.extra["mixture"]
    weights = record["phases"][0]["weights"]
    total, declared = sum(weights.values()), dict(config.sources)
    if strange := sorted(name for name, weight in weights.items() if weight > 0 and name not in declared):
        raise ValueError(f"{outcome.name}: its mixture reads {', '.join(strange)}, which the swarm does not declare")
    components = {component["name"]: component for component in record["components"]}
    rows = []
    for name, tokens in config.sources:
        component = components[name]
        if abs(component["num_tokens"] / tokens - 1) > MOST_OFF:
            raise ValueError(
                f"source {name} has {component['num_tokens']} tokens, the swarm declares {tokens}; correct the declaration, "
                "from which the prior and the caps of epochs are made"
            )
        share = weights.get(name, 0.0) / total
        rows.append({"source": name, "tokens": component["num_tokens"], "digest": component["data_version"], "share": share})
    return rows


def read_runs(artifact: Artifact) -> SwarmRuns:
    """The runs of a table, in its order. Raises: ValueError for a run that lacks a source or a target."""
    shares, losses = (pl.read_parquet(artifact.file(name)) for name in (SHARES, LOSSES))
    sources = tuple(shares["source"].unique(maintain_order=True))
    targets = tuple(losses["target"].unique(maintain_order=True))
    runs = losses.unique("trial", maintain_order=True)
    names = tuple(runs["trial"])
    return SwarmRuns(
        names,
        tuple(runs["anchor"]),
        tuple(runs["seed"]),
        sources,
        np.stack([_column(artifact, shares, "source", name, "share", names) for name in sources], axis=1),
        {target: _column(artifact, losses, "target", target, "loss", names) for target in targets},
    )


def _column(artifact: Artifact, rows: pl.DataFrame, by: str, value: str, column: str, names: Sequence[str]) -> np.ndarray:
    of = dict(rows.filter(pl.col(by) == value).select("trial", column).iter_rows())
    if absent := [name for name in names if name not in of]:
        raise ValueError(f"{artifact.name}: {', '.join(absent)} have no {column} of {value}; make the table again")
    values = np.array([of[name] for name in names], float)
    if not np.isfinite(values).all():
        raise ValueError(f"{artifact.name}: a {column} of {value} is not finite; make the table again")
    return values


SWARM_RUNS = Stage(
    "science.swarm_runs", "1", write_runs, description="Shares and losses of every run of a swarm.", checks=("file_set",)
)
