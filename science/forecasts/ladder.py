"""Freeze a forecast of a midtraining branch of the largest rung of a ladder, from branches of the smaller rungs.

Every rung is a trained model; a branch goes on from it over the midtraining mix for the same share of its tokens. The loss
after the branch is a power law of the FLOPs of model and branch, with a declared asymptote or, from four rungs, a free one.
The file has the form of every forecast (`science.forecasts.freeze`), so runs, verdicts and the ledger read it alike.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy import optimize

from lineage.artifact.store import Artifact
from lineage.config import from_jsonable, to_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from science.forecasts.freeze import (
    FORMAT,
    NOT_PROVABLE,
    TRAINED,
    RefusedForecastError,
    refuse_known,
    refuse_second,
    target_facts,
)
from science.forecasts.outcome import Outcome, outcome_of
from science.forecasts.table import data_of
from science.laws.interval import LEVELS
from science.laws.power import PowerLaw, fit_free, fit_pinned
from science.trials import FLOP_TOLERANCE
from trainer.spec.config import RunSpec
from trainer.spec.stage import CheckpointConfig
from trainer.spec.target import FORECAST_FILE, size_of

LEAST_RUNGS = 3
SAME_SHARE = 0.05
"""Branches may differ by this much of their share of the tokens: a run has a whole number of steps."""


@dataclass(frozen=True)
class LadderConfig:
    """What is forecast, and by which law; all of it is identity."""

    target: RunSpec
    task: str
    metric: str
    unit: str
    asymptote: float | None = None
    """Loss that no budget reaches; None: it is fitted, which takes four rungs."""
    max_ratio: float = 10.0
    siblings: tuple[str, ...] = ()
    beyond: str = ""
    """Why a target above `max_ratio` times the largest rung is forecast all the same."""


@dataclass(frozen=True)
class Rung:
    """One branch of the ladder."""

    name: str
    flops: float
    """Of the model and its branch."""
    share: float
    """Tokens of the branch as a share of those before it."""
    loss: float
    seed: int


@dataclass(frozen=True)
class Ladder:
    """The law through the means of the rungs, and what data orders alone do."""

    law: PowerLaw
    """Its spread is that of one new branch: rungs around the law, and a branch around its rung."""
    noise: float
    """Standard deviation between branches of one rung."""


def fit_ladder(flops: np.ndarray, losses: np.ndarray, asymptote: float | None) -> Ladder:
    """Fit the means of the rungs; branches of equal FLOPs are of one rung.

    Branches of one checkpoint share what its own seed did, so they are not independent: a rung counts once, and the degrees of
    freedom are those of the rungs. Raises: RefusedForecastError for too few rungs, no repeats, or no falling power law.
    """
    rungs = np.unique(flops)
    groups = [losses[flops == rung] for rung in rungs]
    within = int(sum(len(group) - 1 for group in groups))
    if len(rungs) < LEAST_RUNGS + (asymptote is None):
        wanted = f"at least {LEAST_RUNGS} with a declared asymptote, {LEAST_RUNGS + 1} with a free one"
        raise RefusedForecastError(f"the ladder has {len(rungs)} rungs; {wanted}")
    if within < 1:
        raise RefusedForecastError("no rung has two branches, so the noise of a branch is unknown; add another data order")
    means = np.array([group.mean() for group in groups])
    try:
        law = fit_free(rungs, means) if asymptote is None else _fit_held(rungs, means, asymptote)
    except ValueError as error:
        raise RefusedForecastError(f"the rungs lie on no power law: {error}") from error
    if law.exponent <= 0:
        raise RefusedForecastError(f"the losses of larger rungs are not lower (exponent {law.exponent:.3g})")
    variance = float(sum(((group - group.mean()) ** 2).sum() for group in groups)) / within
    # A mean of n branches has the noise of one, less (1 - 1 / n) of its variance.
    single = law.spread**2 + variance * float(np.mean([1 - 1 / len(group) for group in groups]))
    return Ladder(replace(law, spread=single**0.5), variance**0.5)


def _fit_held(flops: np.ndarray, losses: np.ndarray, asymptote: float) -> PowerLaw:
    """Least squares of the loss itself with a held asymptote.

    `fit_pinned` takes logarithms. The noise of a branch is constant in nats, so its intervals at lower losses are too narrow
    (90 % ones covered .74 of simulated branches).
    """
    first = fit_pinned(flops, losses, asymptote)
    shift = np.log(flops) - first.centre
    solution = optimize.least_squares(
        lambda p: asymptote + np.exp(p[0] - p[1] * shift) - losses, [first.log_amplitude, first.exponent],
        xtol=1e-14, ftol=1e-14, gtol=1e-14,
    )  # fmt: skip
    freedom, square = len(losses) - 2, 2 * float(solution.cost)
    covariance = np.zeros((3, 3))
    covariance[1:, 1:] = np.linalg.inv(solution.jac.T @ solution.jac) * square / freedom
    constant, exponent = float(solution.x[0]), float(solution.x[1])
    amplitude = float(np.exp(constant + exponent * first.centre))
    spread = (square / freedom) ** 0.5
    return PowerLaw(asymptote, amplitude, exponent, False, covariance, spread, freedom, square, first.centre, constant)


def trained_flops(checkpoint: Artifact) -> tuple[float, float]:
    """(FLOPs, tokens) of a checkpoint and of all that it started from. Raises: RefusedForecastError for an imported model."""
    if checkpoint.spec.stage not in TRAINED:
        raise RefusedForecastError(f"{checkpoint.name} was not trained here, so its FLOPs are unknown; start the ladder here")
    config = from_jsonable(CheckpointConfig, checkpoint.spec.config)
    tokens = config.run.tokens_before(config.step)
    flops = float(tokens * config.run.model.training_flops_per_token(config.run.seq_len))
    if "start" not in {ref.name for ref in checkpoint.spec.inputs}:
        return flops, float(tokens)
    before = trained_flops(checkpoint.input("start"))
    return flops + before[0], tokens + before[1]


def make_ladder_forecast(
    out: Writer, config: LadderConfig, results: tuple[Artifact, ...], mixture: Artifact, start: Artifact
) -> None:
    """Write `forecast.json` of the branch of `start`. Raises: RefusedForecastError."""
    outcomes = [outcome_of(result) for result in results]
    before, size = trained_flops(start), size_of(config.target)
    target = target_facts(out, config.target, mixture, start) | {"flops": before[0] + size.flops}
    refuse_known(out, config.target, mixture, *results, start)
    if odd := list(_faults(outcomes, mixture)):
        raise RefusedForecastError(f"{out.spec.name}: {'; '.join(odd)}")
    refuse_second(out, target, (config.task, config.metric), outcomes[0].policy, config.siblings)
    rungs = [_rung(outcome, config) for outcome in outcomes]
    share, flops = size.tokens / before[1], target["flops"]
    if uneven := [f"{rung.name} {rung.share:.3g}" for rung in rungs if abs(rung.share / share - 1) > SAME_SHARE]:
        raise RefusedForecastError(
            f"{out.spec.name}: the branch of the target has {share:.3g} of the tokens before it, others have "
            f"{', '.join(uneven)}; branch every rung for the same share"
        )
    largest = max(rung.flops for rung in rungs)
    if flops <= largest or (flops > config.max_ratio * largest * (1 + FLOP_TOLERANCE) and not config.beyond):
        raise RefusedForecastError(
            f"{out.spec.name}: the target has {flops:.3g} FLOPs, the largest rung {largest:.3g}; a ladder forecasts 1 to "
            f"{config.max_ratio:g} times its largest rung, or say in `beyond` why"
        )
    fitted = fit_ladder(np.array([rung.flops for rung in rungs]), np.array([rung.loss for rung in rungs]), config.asymptote)
    frozen = {
        "format": FORMAT,
        "target": target,
        "metric": {"task": config.task, "name": config.metric, "unit": config.unit, "policy": outcomes[0].policy},
        "point": fitted.law.at(flops),
        "intervals": {f"{level:g}": list(fitted.law.interval(flops, level)) for level in LEVELS},
        "noise": fitted.noise,
        "method": {"form": "ladder", "asymptote": fitted.law.asymptote, "pinned": config.asymptote is not None,
                   "exponent": fitted.law.exponent},
        "largest_budget": largest,
        "ratio": flops / largest,
        "beyond": config.beyond,
        "seeds": sorted({rung.seed for rung in rungs}),
        "siblings": list(config.siblings),
        "not_provable": NOT_PROVABLE,
        "rungs": [asdict(rung) for rung in rungs],
    }  # fmt: skip
    (out.folder / FORECAST_FILE).write_text(json.dumps(to_jsonable(frozen), indent=1, sort_keys=True) + "\n")
    out.extra["forecast"] = frozen
    out.record(rows_in=len(results), rows_out=1)


def _rung(outcome: Outcome, config: LadderConfig) -> Rung:
    checkpoint = outcome.checkpoint
    (flops, tokens), before = trained_flops(checkpoint), trained_flops(checkpoint.input("start"))
    seed = from_jsonable(CheckpointConfig, checkpoint.spec.config).run.seed
    return Rung(outcome.name, flops, tokens / before[1] - 1, outcome.score(config.task, config.metric), seed)


def _faults(outcomes: Sequence[Outcome], mixture: Artifact) -> Iterator[str]:
    yield from (f"{outcome.name} diverged: {outcome.diverged}" for outcome in outcomes if outcome.diverged is not None)
    if len(policies := sorted({outcome.policy for outcome in outcomes})) > 1:
        yield f"the results have {len(policies)} policies ({', '.join(policies)}); score all by one"
    wanted = data_of(mixture)
    for outcome in outcomes:
        if "start" not in {ref.name for ref in outcome.checkpoint.spec.inputs}:
            yield f"{outcome.name} starts from no checkpoint; it is no branch"
            return
        own = data_of(outcome.checkpoint.input("mixture"))
        if (own.vocabulary, own.shares) != (wanted.vocabulary, wanted.shares):
            yield f"{outcome.name} reads another mix than the target, or under another tokenizer"


LADDER_FORECAST = Stage("science.ladder_forecast", "1", make_ladder_forecast)
