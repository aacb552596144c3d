"""The gradient-noise scale beside the critical batch that the losses give: a second witness from the same runs.

The losses say at which batch a run needs twice the tokens. The noise scale says at which batch an update loses half of its
worth (`science.noise_scale`). Where both intervals overlap they agree; where they do not, the page says so.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from lineage.artifact.store import Artifact
from science.critical_batch import BatchPoint, CriticalBatch
from science.forecasts.outcome import outcome_of
from science.forecasts.table import trial_name
from science.noise_scale import NoiseScale, noise_scale
from science.trials import Trial
from trainer.spec.stage import METRICS_FILE, NOISE_COLUMNS

type Terms = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By trial: estimates of |G|^2 and of tr(Sigma), one a step."""


@dataclass(frozen=True)
class BatchNoise:
    """The noise scale of the run with a batch's best rate."""

    batch: int
    trial: str
    scale: NoiseScale


@dataclass(frozen=True)
class Witness:
    """The noise scale of each batch at one count of tokens, and whether it agrees with the losses."""

    rows: tuple[BatchNoise, ...]
    at: BatchNoise
    """Of the batch nearest to the critical one: the scale depends on the path of a run, and so on its batch and rate."""
    overlap: bool | None
    """Whether its interval overlaps that of the losses; None where it has none."""


def read_terms(results: Sequence[Artifact]) -> Terms:
    """The terms of every trial that did not diverge. Raises: ValueError naming a trial that has none."""
    terms = {}
    for result in results:
        outcome = outcome_of(result)
        if outcome.diverged is None:
            columns = pq.read_table(outcome.checkpoint.file(METRICS_FILE)).to_pydict()
            if missing := [name for name in NOISE_COLUMNS if name not in columns]:
                raise ValueError(
                    f"{result.name}: its metrics lack {', '.join(missing)}; set run.gradient_noise and train it again"
                )
            square, trace = (np.array(columns[name], float) for name in NOISE_COLUMNS)
            terms[trial_name(result)] = square, trace
    return terms


def witness(
    points: Sequence[BatchPoint],
    fitted: CriticalBatch,
    trials: Sequence[Trial],
    terms: Terms,
    start: float,
    blocks: int,
    level: float,
) -> Witness | None:
    """The noise scales after the share `start` of the steps; None where no run has both terms and a step for each block."""
    rows = tuple(_rows(points, trials, terms, start, blocks, level))
    if not rows:
        return None
    at = min(rows, key=lambda row: abs(math.log(row.batch / fitted.batch)))
    return Witness(rows, at, _overlap((fitted.low, fitted.high), (at.scale.low, at.scale.high)))


def _rows(
    points: Sequence[BatchPoint], trials: Sequence[Trial], terms: Terms, start: float, blocks: int, level: float
) -> Iterator[BatchNoise]:
    for point in points:
        of_batch = [trial for trial in trials if trial.batch_tokens == point.batch and trial.name in terms]
        for trial in sorted(of_batch, key=lambda trial: (abs(math.log(trial.learning_rate / point.rate)), trial.name))[:1]:
            squares, traces = (column[int(start * len(column)) :] for column in terms[trial.name])
            if (np.isfinite(squares) & np.isfinite(traces)).sum() >= blocks:
                yield BatchNoise(trial.batch_tokens, trial.name, noise_scale(squares, traces, blocks, level))


def _overlap(first: tuple[float | None, float | None], second: tuple[float | None, float | None]) -> bool | None:
    """Whether two intervals share a point; None if the second has no end at all."""
    if second == (None, None):
        return None
    (low, high), (other_low, other_high) = (
        (-math.inf if low is None else low, math.inf if high is None else high) for low, high in (first, second)
    )
    return bool(low <= other_high and other_low <= high)


def record(witness: Witness | None) -> dict[str, Any] | None:
    """As JSON."""
    if witness is None:
        return None
    rows = [{"batch": row.batch, "trial": row.trial, **asdict(row.scale)} for row in witness.rows]
    return {"rows": rows, "at": rows[witness.rows.index(witness.at)], "overlap": witness.overlap}


def noise_page(facts: Mapping[str, Any]) -> Iterator[str]:
    """Both witnesses of each count of tokens side by side, then every batch."""
    percent, rows = round(100 * facts["level"]), [row for row in facts["horizons"] if row["noise"] is not None]
    yield from ("", "## Two witnesses", "")
    if not rows:
        yield "No run has enough steps with both terms of its gradient's noise."
        return
    yield f"| tokens | by the losses | {percent} % interval | by the noise scale | {percent} % interval | of batch | overlap |"
    yield "|---" * 7 + "|"
    for row in rows:
        noise = row["noise"]
        overlap = {True: "yes", False: "**no**", None: "the scale has no interval"}[noise["overlap"]]
        both = " | ".join(f"{_number(each)} | {_interval(each)}" for each in (row | {"tokens": row["batch"]}, noise["at"]))
        yield f"| {row['tokens']:.3g} | {both} | {noise['at']['batch']:,} | {overlap} |"
    if apart := [f"{row['tokens']:.3g}" for row in rows if row["noise"]["overlap"] is False]:
        yield from ("", f"**The two witnesses disagree** at {', '.join(apart)} tokens: their intervals share no batch.")
    yield from (
        "",
        f"| tokens | batch | run | steps | noise scale | {percent} % interval | mean G^2 | mean tr(Sigma) |",
        "|---" * 8 + "|",
    )
    for row in rows:
        for each in row["noise"]["rows"]:
            terms = f"{each['gradient_square']:.3g} | {each['noise_trace']:.3g}"
            scale = f"{_number(each)} | {_interval(each)} | {terms}"
            yield f"| {row['tokens']:.3g} | {each['batch']:,} | {each['trial']} | {each['steps']:,} | {scale} |"
    yield from ("", "The noise scale is of each batch at the trial nearest to its best rate. It changes along a run.")


def _number(row: Mapping[str, Any]) -> str:
    return "-" if row["tokens"] is None else f"{row['tokens']:.3g}"


def _interval(row: Mapping[str, Any]) -> str:
    return " to ".join("open" if end is None else f"{end:.3g}" for end in (row["low"], row["high"]))
