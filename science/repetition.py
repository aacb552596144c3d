"""The law of runs that repeat their data: how fast repeated tokens lose their worth.

D tokens that read U unique ones D / U times count as D' = U + U R* (1 - exp(-(D / U - 1) / R*)) unique tokens: the first passes
count almost as new ones, and after R* repetitions most of what they can give is given (Muennighoff et al. 2023, arXiv
2305.16264, equation 5, who find R* = 15.4). The law of N and D comes from runs that repeat nothing; only R* is fitted to those
that do. Their second constant, for parameters beyond what the unique tokens can use, is not fitted.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from science.laws.fit import Fit
from science.laws.profile import profile
from science.trials import Fault, RefusedSweepError

LEAST_RUNS, LEAST_EPOCHS = 4, 2
REPEATED = 1.5
"""A run repeats its data if it reads them more often than this."""
RANGE = (0.1, 1000.0)
LEAST_P = 0.01
"""Of all sets of runs that follow the law, this share is refused."""


@dataclass(frozen=True)
class Repetition:
    """R*, with the interval of its profile."""

    constant: float
    low: float | None
    """None: even an R* of .1 is not rejected."""
    high: float | None
    """None: as far as these runs tell, repeated tokens count as new ones."""
    p: float
    """Of the test that the runs follow the law with this constant."""
    runs: int


def effective_tokens(tokens: np.ndarray | float, unique: np.ndarray | float, constant: np.ndarray | float) -> np.ndarray:
    """Unique tokens that are worth as much as `tokens` over `unique` ones."""
    own = np.minimum(np.asarray(unique, float), tokens)
    repeats = np.asarray(tokens, float) / own - 1
    return own + own * constant * -np.expm1(-repeats / constant)


def fit_repetition(
    base: Fit, parameters: np.ndarray, tokens: np.ndarray, epochs: np.ndarray, losses: np.ndarray, level: float = 0.9
) -> Repetition:
    """Generalized least squares of R* over runs that repeat: their errors share that of the base law.

    Every source of a run's mixture must repeat alike, so that unique tokens are tokens / epochs.
    Raises: RefusedSweepError for too few runs or counts of epochs, and if no R* fits the runs.
    """
    faults = []
    counts = {round(float(count), 1) for count in epochs[epochs > REPEATED]}
    if int((epochs > REPEATED).sum()) < LEAST_RUNS:
        faults.append(Fault("too_few_repeated", f"{int((epochs > REPEATED).sum())} of at least {LEAST_RUNS} runs repeat data"))
    if len(counts) < LEAST_EPOCHS:
        faults.append(Fault("too_few_epochs", f"the runs repeat {sorted(counts)} times; give at least {LEAST_EPOCHS} counts"))
    if faults:
        raise RefusedSweepError(faults)

    def errors(constants: np.ndarray) -> np.ndarray:
        worth = effective_tokens(tokens, tokens / epochs, constants[:, None])
        sizes = np.broadcast_to(parameters, worth.shape)
        return losses - base.losses(sizes.ravel(), worth.ravel())[0].reshape(worth.shape)

    def against(constants: np.ndarray) -> np.ndarray:
        off = errors(constants)
        return np.einsum("gn,nm,gm->g", off, inverse, off)

    rough = profile(lambda constants: (errors(constants) ** 2).sum(axis=1), *RANGE, lambda least: least).best
    shared = base.joint_covariance(parameters, effective_tokens(tokens, tokens / epochs, rough))
    inverse, freedom, runs = np.linalg.inv(shared), float(base.freedom[0]), len(losses)
    edge = float(special.stdtrit(freedom, 0.5 + level / 2)) ** 2
    profiled = profile(against, *RANGE, lambda least: least + edge)
    p = float(special.fdtrc(runs - 1, freedom, profiled.square / (runs - 1)))
    if p < LEAST_P:
        what = f"no constant fits the {runs} runs (p {p:.2g}); do all sources repeat alike, and all rates decay?"
        raise RefusedSweepError([Fault("not_the_law_of_repetition", what)])
    if profiled.low is None and profiled.high is None:
        what = "the runs exclude no constant; repeat the data more often, or add seeds"
        raise RefusedSweepError([Fault("undecided_repetition", what)])
    return Repetition(profiled.best, profiled.low, profiled.high, p, runs)
