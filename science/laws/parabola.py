"""The minimum of each budget: a parabola of loss in ln N and in ln tokens, and whether it may be used."""

from dataclasses import dataclass

import numpy as np

from science.laws.fit import Points


@dataclass(frozen=True)
class Valley:
    """The parabola of one budget; sizes and tokens at its vertex."""

    budget: float
    curvature: float
    """Second derivative of the loss in ln N; above 0 for a minimum."""
    parameters: float
    tokens: float
    """Vertex of the parabola in ln tokens: at one budget it need not be the size's exact partner."""
    loss: float
    """At the vertex in ln N."""
    inner: bool
    """Whether the lowest measured size and the vertex lie inside the range of sizes."""

    @property
    def fault(self) -> tuple[str, str] | None:
        """(name, what) if no minimum may be read from it."""
        if self.curvature <= 0:
            return "concave_budget", f"budget {self.budget:.3g} bends down ({self.curvature:+.3g} nats per squared e-fold of N)"
        if not self.inner:
            return "edge_minimum", f"the minimum of budget {self.budget:.3g} lies at the edge of its sizes; move the sizes"
        return None


def valleys(points: Points) -> list[Valley]:
    """One parabola for each budget of the first data set. Raises: ValueError for a budget of fewer than 3 sizes."""
    return [_valley(points.chosen(points.budgets == budget), float(budget)) for budget in np.unique(points.budgets)]


def _valley(points: Points, budget: float) -> Valley:
    losses = points.losses[0]
    sizes = np.unique(points.parameters)
    if len(sizes) < 3:
        raise ValueError(f"budget {budget:.3g} has {len(sizes)} sizes; a parabola needs at least 3")
    means = np.array([losses[points.parameters == size].mean() for size in sizes])
    lowest = int(np.argmin(means))
    curve, at, loss = _vertex(np.log(points.parameters), losses)
    _, tokens, _ = _vertex(np.log(points.tokens), losses)
    inner = 0 < lowest < len(sizes) - 1 and np.log(sizes[0]) < at < np.log(sizes[-1])
    return Valley(budget, curve, _exp(at), _exp(tokens), loss, bool(inner))


def _vertex(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """(second derivative, place, height) of the least-squares parabola."""
    centre = x.mean()
    a, b, c = np.polyfit(x - centre, y, 2)
    if a == 0:
        return 0.0, float("nan"), float("nan")
    return float(2 * a), float(centre - b / (2 * a)), float(c - b**2 / (4 * a))


def _exp(x: float) -> float:
    return float(np.exp(np.clip(x, -700, 700)))
