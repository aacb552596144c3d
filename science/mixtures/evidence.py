"""What runs say: signal to noise of a metric, and the paired confirmation of a proposal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

LEAST_PAIRS = 6


@dataclass(frozen=True)
class SignalToNoise:
    """A metric over a swarm: spread of the designs against repeats at each anchor (the noise depends on the mixture)."""

    metric: str
    signal: float
    noise: dict[str, float]
    """Anchor -> standard deviation of its repeats."""

    @property
    def ratio(self) -> float:
        """Signal over the worst anchor's noise."""
        return self.signal / max(max(self.noise.values()), 1e-300)

    def runs_for(self, difference: float, level: float = 0.95) -> int:
        """Pairs of runs that show a difference at the worst anchor, by the normal approximation."""
        edge = float(special.ndtri(0.5 + level / 2))
        return max(2, int(np.ceil(2 * (edge * max(self.noise.values()) / difference) ** 2)))


def signal_to_noise(metric: str, designs: Sequence[float], repeats: Mapping[str, Sequence[float]]) -> SignalToNoise:
    """Raises: ValueError for fewer than two repeats at an anchor, or no anchor."""
    if not repeats or min(len(values) for values in repeats.values()) < 2:
        raise ValueError(f"metric {metric}: repeats are {dict(repeats)}; give at least two at each of one or more anchors")
    noise = {anchor: float(np.std(values, ddof=1)) for anchor, values in repeats.items()}
    return SignalToNoise(metric, float(np.std(designs, ddof=1)), noise)


@dataclass(frozen=True)
class Confirmation:
    """A proposal against a contender by paired fresh seeds; a gain above 0 is for the proposal."""

    contender: str
    pairs: int
    gain: float
    low: float
    high: float
    smallest_visible: float
    """The gain whose 95 % interval would have excluded 0."""
    verdict: Literal["beats", "ties", "loses"]


def confirm(
    contender: str, proposal: Mapping[int, float], other: Mapping[int, float], used_seeds: Sequence[int], level: float = 0.95
) -> Confirmation:
    """Compare losses by seed. Seeds of the swarm do not count: the proposal was chosen on them (winner's curse).

    Raises: ValueError for seeds that are not paired or were used, or for fewer than 6 pairs.
    """
    stale = sorted(set(proposal) & set(used_seeds))
    if stale or set(proposal) != set(other):
        raise ValueError(
            f"confirmation against {contender}: seeds {sorted(proposal)} and {sorted(other)}, used before: {stale}"
        )
    if len(proposal) < LEAST_PAIRS:
        raise ValueError(f"confirmation against {contender}: {len(proposal)} pairs; give at least {LEAST_PAIRS}")
    differences = np.array([other[seed] - proposal[seed] for seed in sorted(proposal)])
    error = float(differences.std(ddof=1) / np.sqrt(len(differences)))
    width = float(special.stdtrit(len(differences) - 1, 0.5 + level / 2)) * error
    gain = float(differences.mean())
    verdict = "beats" if gain - width > 0 else "loses" if gain + width < 0 else "ties"
    return Confirmation(contender, len(differences), gain, gain - width, gain + width, width, verdict)
