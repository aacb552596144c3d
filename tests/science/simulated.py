"""A simulated sweep of the lab, shared by tests of fits and forecasts."""

import numpy as np

from science.laws.simulate import design, known_laws, simulate
from science.trials import Trial

SIGMA = 0.007


def trials(losses: np.ndarray, **changed: object) -> list[Trial]:
    """The lab's sweep as trials with given losses."""
    points = design()
    simulated = []
    for index, loss in enumerate(losses):
        fields = {
            "name": f"t{index:02}", "budget": points.budgets[index], "flops": points.budgets[index], "width": 0,
            "parameters": int(points.parameters[index]), "tokens": points.tokens[index], "loss": float(loss),
            "learning_rate": 0.003, "batch_tokens": 512, "seed": index, "vocabulary": "tok", "policy": "p",
        }  # fmt: skip
        simulated.append(Trial(**(fields | changed)))  # type: ignore[arg-type]
    return simulated


def trial_at(name: str, **changed: object) -> Trial:
    """One trial with some of its columns given; without a loss it diverged."""
    fields: dict[str, object] = {
        "name": name, "budget": 1e12, "flops": 1e12, "width": 48, "parameters": 27_648, "tokens": 6e6, "loss": 3.0,
        "learning_rate": 0.003, "batch_tokens": 512, "seed": 0, "vocabulary": "tok", "policy": "p",
    }  # fmt: skip
    fields |= changed
    return Trial(**fields, status="diverged" if fields["loss"] is None else "done")  # type: ignore[arg-type]


def sweep(law: int = 1, seed: int = 0, sigma: float = SIGMA) -> np.ndarray:
    return simulate(known_laws()[law].loss, design(), 1, sigma, np.random.default_rng(seed)).losses[0]
