"""Forms of the law L(N, D): loss in nats by parameters and tokens, as logarithms around a reference point.

`n` is ln(N / N0) and `d` is ln(D / D0), where N0 and D0 are the geometric means of the fitted trials (`Reference`). Every form
gives ln L, which keeps every law above 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

type LogLoss = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(problems, parameters), n, d -> (problems, points)."""
EXPONENTS = (0.1, 0.2, 0.3, 0.45, 0.65, 0.9)
"""Grid of starts for both exponents. Published laws lie between .05 and .8."""


@dataclass(frozen=True)
class Form:
    """A family of laws."""

    name: str
    names: tuple[str, ...]
    """The free parameters, in order."""
    log_loss: LogLoss
    starts: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    """n, d, losses -> starts (starts, parameters)."""
    priors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Parameter -> (centre, width) of a weak normal prior, for what few points cannot tell."""
    source: str = ""


def _three_terms(p: np.ndarray, n: np.ndarray, d: np.ndarray) -> np.ndarray:
    e, a, b, alpha, beta = (p[:, [index]] for index in range(5))
    return np.log(np.exp(e) + np.exp(a - alpha * n) + np.exp(b - beta * d))


def _one_term(p: np.ndarray, n: np.ndarray, d: np.ndarray) -> np.ndarray:
    e, a, b, alpha, beta = (p[:, [index]] for index in range(5))
    inner = np.exp(a - alpha / beta * n) + np.exp(b - d)
    return np.log(np.exp(e) + np.exp(beta * np.log(inner)))


def _bent(x: np.ndarray, power: np.ndarray) -> np.ndarray:
    """(e^(power x) - 1) / power, which is x at power 0: N^power around N0, without its constant."""
    safe = np.where(np.abs(power) < 1e-8, 1e-8, power)
    return (np.exp(safe * x) - 1) / safe


def _farseer(p: np.ndarray, n: np.ndarray, d: np.ndarray) -> np.ndarray:
    b3, a3, g3, b2, a2, g2, b1, a1, g1 = (p[:, [index]] for index in range(9))
    size = np.exp(b3 + a3 * _bent(n, g3))
    exponent = np.exp(b1 + a1 * _bent(n, g1))
    return np.log(size + np.exp(b2 + a2 * _bent(n, g2) - exponent * d))


def _three_term_starts(n: np.ndarray, d: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """For each pair of exponents, the constants by linear least squares, kept positive."""
    starts = []
    for alpha, beta in product(EXPONENTS, EXPONENTS):
        columns = np.stack([np.ones_like(n), np.exp(-alpha * n), np.exp(-beta * d)], axis=1)
        constants = np.maximum(np.linalg.lstsq(columns, losses, rcond=None)[0], 0.02 * losses.min())
        starts.append([*np.log(constants), alpha, beta])
    return np.array(starts)


def _one_term_starts(n: np.ndarray, d: np.ndarray, losses: np.ndarray) -> np.ndarray:
    starts = _three_term_starts(n, d, losses)
    starts[:, 1] /= starts[:, 4]
    starts[:, 2] /= starts[:, 4]
    return starts


def _farseer_starts(n: np.ndarray, d: np.ndarray, losses: np.ndarray) -> np.ndarray:
    e, a, b, alpha, beta = _three_term_starts(n, d, losses).T
    floor = np.exp(e) + np.exp(a)
    slope = -alpha * np.exp(a) / floor
    zero = np.zeros_like(e)
    bend = np.full_like(e, FARSEER_BEND[0])
    return np.stack([np.log(floor), slope, bend, b, zero, zero, np.log(beta), zero, zero], axis=1)


FARSEER_BEND = (-0.22, 0.08)
"""Prior of the bend of the size term: between a pure power law without floor (0) and a fast approach to its floor."""
CHINCHILLA = Form(
    "chinchilla",
    ("e", "a", "b", "alpha", "beta"),
    _three_terms,
    _three_term_starts,
    source="Hoffmann et al. 2022, arXiv 2203.15556, approach 3, with the objective of Besiroglu et al. 2024, arXiv 2404.10102",
)
KAPLAN = Form(
    "kaplan",
    ("e", "a", "b", "alpha", "beta"),
    _one_term,
    _one_term_starts,
    source="Kaplan et al. 2020, arXiv 2001.08361, equation 1.5, with an asymptote",
)
FARSEER = Form(
    "farseer",
    ("b3", "a3", "g3", "b2", "a2", "g2", "b1", "a1", "g1"),
    _farseer,
    _farseer_starts,
    {"g3": FARSEER_BEND, "a2": (0.0, 0.05), "g2": (0.0, 0.05), "a1": (0.0, 0.03), "g1": (0.0, 0.05)},
    source="Li et al. 2025, arXiv 2506.10972; powers of N around N0, weak priors on what a small sweep cannot tell",
)
FORMS = (CHINCHILLA, KAPLAN, FARSEER)


def pinned(form: Form, values: Mapping[str, float]) -> Form:
    """The form with some parameters held at given values: an explicit choice that belongs to a forecast's method.

    Raises: ValueError for a parameter that the form lacks.
    """
    unknown = sorted(set(values) - set(form.names))
    if unknown:
        raise ValueError(f"form {form.name} has no parameter {unknown[0]!r}; it has {', '.join(form.names)}")
    free = [index for index, name in enumerate(form.names) if name not in values]
    held = [values.get(name, 0.0) for name in form.names]

    def whole(p: np.ndarray) -> np.ndarray:
        full = np.tile(np.array(held, dtype=p.dtype), (len(p), 1))
        full[:, free] = p
        return full

    return replace(
        form,
        name=f"{form.name} with {', '.join(f'{name} = {value:g}' for name, value in sorted(values.items()))}",
        names=tuple(form.names[index] for index in free),
        log_loss=lambda p, n, d: form.log_loss(whole(p), n, d),
        starts=lambda n, d, losses: form.starts(n, d, losses)[:, free],
        priors={name: prior for name, prior in form.priors.items() if name not in values},
    )


@dataclass(frozen=True)
class Reference:
    """The point around which logarithms are taken."""

    parameters: float
    tokens: float

    @staticmethod
    def of(parameters: np.ndarray, tokens: np.ndarray) -> "Reference":
        """Geometric means."""
        return Reference(float(np.exp(np.log(parameters).mean())), float(np.exp(np.log(tokens).mean())))

    def logs(self, parameters: np.ndarray | float, tokens: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """(n, d)."""
        return (
            np.log(np.atleast_1d(np.asarray(parameters, float)) / self.parameters),
            np.log(np.atleast_1d(np.asarray(tokens, float)) / self.tokens),
        )
