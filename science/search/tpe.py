"""Propose by Optuna's tree-structured Parzen estimator. Optuna is an optional package (group `search`).

A diverged trial is a trial of Optuna whose constraint is violated: it ranks behind every trial that ended.
"""

import importlib
from typing import Any

import numpy as np

from science.search.space import PlacedTrials

VERSION = "5.0.0"
"""Another version may propose other trials, so it is refused; a proposal's config names it."""
EVEN = 4
"""With fewer trials Optuna draws at random."""
DIVERGED = "diverged"
"""A constraint of Optuna's; it is violated above 0."""


def propose_tpe(trials: PlacedTrials, count: int, seed: int) -> np.ndarray:
    """Places of the next trials, (count, dimensions). Raises: ValueError without this version of Optuna."""
    optuna = _optuna()
    names = [f"x{index}" for index in range(trials.places.shape[1])]
    box = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in names}
    sampler = optuna.samplers.TPESampler(seed=seed % 2**32, n_startup_trials=EVEN)
    study = optuna.create_study(sampler=sampler, direction="minimize")
    for place, loss in zip(trials.places, trials.losses, strict=True):
        if ((place >= 0) & (place <= 1)).all():
            study.add_trial(_trial(optuna, dict(zip(names, place.tolist(), strict=True)), box, loss, trials.worst))
    proposed = [study.ask(box) for _ in range(count)]
    return np.array([[trial.params[name] for name in names] for trial in proposed])


def _trial(optuna: Any, params: dict[str, float], box: dict[str, Any], loss: float, worst: float) -> Any:
    ended = bool(np.isfinite(loss))
    return optuna.trial.create_trial(
        params=params,
        distributions=box,
        value=float(min(loss, worst)) if ended else worst,
        constraints={DIVERGED: 0.0 if ended else 1.0},
    )


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ValueError(f"method 'tpe' needs Optuna {VERSION}: pip install 'marin-lab[search]', or use 'gaussian'") from error
    if optuna.__version__ != VERSION:
        raise ValueError(f"Optuna {optuna.__version__} is installed; method 'tpe' is that of {VERSION}: install it")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
