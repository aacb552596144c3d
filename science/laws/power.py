"""One law in one variable: L = L_inf + A C^-alpha over a few points, with the asymptote pinned or free, and its intervals."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

LEAST_POINTS = 3


@dataclass(frozen=True)
class PowerLaw:
    """A fitted law; `covariance` is that of (ln A, alpha) or, with a free asymptote, of (L_inf, ln A, alpha)."""

    asymptote: float
    amplitude: float
    exponent: float
    pinned: bool
    covariance: np.ndarray
    spread: float
    """Standard deviation of residuals: of ln(L - L_inf) if pinned, else of L."""
    freedom: int
    square: float
    """Sum of squared residuals of L."""
    centre: float
    """Mean of ln C, around which the constants were fitted."""
    log_amplitude: float
    """ln A at that centre."""

    def at(self, x: float) -> float:
        """The loss at a budget."""
        return self.asymptote + self.amplitude * x**-self.exponent

    def interval(self, x: float, level: float = 0.9) -> tuple[float, float]:
        """(low, high) for a new point at a budget, by Student's t with `freedom` degrees."""
        edge = float(special.stdtrit(self.freedom, 0.5 + level / 2))
        distance = float(np.log(x)) - self.centre
        excess = self.at(x) - self.asymptote
        if self.pinned:
            slopes = np.array([1.0, -distance])
            width = edge * float(np.sqrt(slopes @ self.covariance @ slopes + self.spread**2))
            return self.asymptote + excess * float(np.exp(-width)), self.asymptote + excess * float(np.exp(width))
        slopes = np.array([1.0, excess, -excess * distance])
        width = edge * float(np.sqrt(slopes @ self.covariance @ slopes + self.spread**2))
        return self.at(x) - width, self.at(x) + width

    def half_width(self, level: float = 0.9) -> float:
        """Half of the asymptote's interval; 0 if pinned."""
        edge = float(special.stdtrit(self.freedom, 0.5 + level / 2))
        return 0.0 if self.pinned else edge * float(np.sqrt(self.covariance[0, 0]))


def fit_pinned(x: np.ndarray, losses: np.ndarray, asymptote: float) -> PowerLaw:
    """Least squares of ln(L - L_inf) on ln C. Raises: ValueError for too few points or an asymptote not below all losses."""
    _check(x, losses, LEAST_POINTS)
    if asymptote >= losses.min():
        raise ValueError(f"asymptote is {asymptote}; it must be below the lowest loss, {losses.min()}")
    centre = float(np.log(x).mean())
    columns = np.stack([np.ones_like(x), centre - np.log(x)], axis=1)
    logs = np.log(losses - asymptote)
    (constant, exponent), *_ = np.linalg.lstsq(columns, logs, rcond=None)
    residuals = logs - columns @ [constant, exponent]
    freedom = len(x) - 2
    variance = float(residuals @ residuals) / freedom
    fitted = asymptote + np.exp(columns @ [constant, exponent])
    return PowerLaw(
        asymptote, float(np.exp(constant + exponent * centre)), float(exponent), True,
        variance * np.linalg.inv(columns.T @ columns), variance**0.5, freedom,
        float(((losses - fitted) ** 2).sum()), centre, float(constant),
    )  # fmt: skip


def fit_free(x: np.ndarray, losses: np.ndarray) -> PowerLaw:
    """Least squares of L with a free asymptote, and its interval by the delta method.

    For each exponent the other two constants follow by linear least squares, so one bounded search finds the minimum.
    Raises: ValueError for fewer than 4 points, or an exponent at the end of its range: the points then do not bend.
    """
    _check(x, losses, LEAST_POINTS + 1)
    centre = float(np.log(x).mean())
    shift = np.log(x) - centre

    def constants(exponent: float) -> tuple[np.ndarray, float]:
        columns = np.stack([np.ones_like(shift), np.exp(-exponent * shift)], axis=1)
        solution, *_ = np.linalg.lstsq(columns, losses, rcond=None)
        return solution, float(((losses - columns @ solution) ** 2).sum())

    grid = np.geomspace(1e-3, 3.0, 400)
    best = int(np.argmin([constants(exponent)[1] for exponent in grid]))
    if best in (0, len(grid) - 1):
        raise ValueError(
            f"exponent {grid[best]:.3g} is at the end of its range: the points show no power law with an asymptote"
        )
    optimum = optimize.minimize_scalar(
        lambda exponent: constants(exponent)[1],
        bounds=(grid[best - 1], grid[best + 1]),
        method="bounded",
        options={"xatol": 1e-12},
    )
    exponent = float(optimum.x)
    (asymptote, scale), square = constants(exponent)
    if scale <= 0:
        raise ValueError(f"losses rise with compute (amplitude {scale:.3g}); a power law needs losses that fall")
    decay = scale * np.exp(-exponent * shift)
    slopes = np.stack([np.ones_like(shift), decay, -decay * shift], axis=1)
    freedom = len(x) - 3
    variance = square / freedom
    return PowerLaw(
        float(asymptote), float(scale * np.exp(exponent * centre)), exponent, False,
        variance * np.linalg.inv(slopes.T @ slopes), variance**0.5, freedom, square, centre, float(np.log(scale)),
    )  # fmt: skip


@dataclass(frozen=True)
class PinTest:
    """The F test of a pinned asymptote against a free one."""

    statistic: float
    freedom: int
    p: float
    amplitude: float
    """A of the pinned law by least squares of the losses and not of their logarithms."""
    exponent: float


def reject_pin(x: np.ndarray, losses: np.ndarray, asymptote: float) -> PinTest:
    """Whether the points reject an asymptote: F with 1 and n - 3 degrees, residuals in loss, both fits by least squares."""
    free = fit_free(x, losses)
    shift = np.log(x) - free.centre

    def residuals(p: np.ndarray) -> np.ndarray:
        return asymptote + np.exp(p[0] - p[1] * shift) - losses

    pinned = fit_pinned(x, losses, asymptote)
    optimum = optimize.least_squares(residuals, [pinned.log_amplitude, pinned.exponent], xtol=1e-14, ftol=1e-14, gtol=1e-14)
    statistic = (2 * float(optimum.cost) - free.square) / (free.square / free.freedom)
    constant, exponent = (float(value) for value in optimum.x)
    return PinTest(
        statistic, free.freedom, float(special.fdtrc(1, free.freedom, max(statistic, 0.0))),
        float(np.exp(constant + exponent * free.centre)), exponent,
    )  # fmt: skip


def _check(x: np.ndarray, losses: np.ndarray, least: int) -> None:
    if len(x) < least or len(set(x.tolist())) < least:
        raise ValueError(f"{len(set(x.tolist()))} budgets; a power law needs at least {least}")
    if not (np.isfinite(losses).all() and (x > 0).all()):
        raise ValueError(f"losses {losses.tolist()} at {x.tolist()}: all must be finite, budgets above 0")
