"""Published numbers that laws are fitted and tested against, each with its source. Nothing here was measured by this lab."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Source:
    """Where numbers come from, and what they are."""

    issue: str
    metric: str
    note: str = ""


@dataclass(frozen=True)
class PublishedLaw:
    """Losses at compute-optimal points, and runs that were held out when the law was frozen."""

    source: Source
    budgets: np.ndarray
    losses: np.ndarray
    outcomes: dict[float, float]


V16 = PublishedLaw(
    Source(
        "marin-community/marin#4447, #4697, #8096",
        "Paloma macro loss, nats a token",
        "minimum of the parabola of each budget of the v16 MoE sweep; training FLOPs without the head",
    ),
    np.array([1e18, 3e18, 1e19, 3e19, 1e20, 3e20]),
    np.array([3.522, 3.339, 3.154, 3.000, 2.848, 2.725]),
    {1e21: 2.599, 1e22: 2.432, 1e23: 2.234},
)
PINNED = 1.6
"""The asymptote at which that law was frozen before the 1e23 run."""


@dataclass(frozen=True)
class BetaSweep:
    """c4_en bits per byte by batch size (sequences of 4,096) and beta2."""

    source: Source
    budget: float
    width: int
    beta2: tuple[float, ...]
    rows: dict[int, tuple[float, ...]]

    def best(self, batch: int) -> float:
        """The beta2 of the lowest loss."""
        return self.beta2[int(np.argmin(self.rows[batch]))]


_BETAS = (0.95, 0.97, 0.99, 0.995, 0.999)
_BETA_SOURCE = Source("marin-community/marin#4567", "Paloma c4_en, bits a byte")
BETA_SWEEPS = (
    BetaSweep(_BETA_SOURCE, 6e18, 1024, _BETAS, {
        64: (0.9780, 0.9759, 0.9732, 0.9722, 0.9728),
        128: (0.9743, 0.9736, 0.9727, 0.9725, 0.9734),
        256: (0.9761, 0.9748, 0.9759, 0.9760, 0.9783),
        512: (0.9826, 0.9830, 0.9831, 0.9859, 0.9917),
    }),
    BetaSweep(_BETA_SOURCE, 2e18, 768, _BETAS, {
        64: (1.0369, 1.0336, 1.0298, 1.0286, 1.0293),
        128: (1.0344, 1.0330, 1.0309, 1.0314, 1.0322),
        256: (1.0348, 1.0345, 1.0340, 1.0342, 1.0385),
    }),
)  # fmt: skip
BATCH_LAWS = ((1.87e-5, 0.388), (7.46e-3, 0.257))
"""Two fits of the critical batch in sequences, B = a C^b, from one issue (marin-community/marin#4432); they contradict."""


def half_life_tokens(beta2: float, batch: int, seq_len: int = 4096) -> float:
    """Tokens after which a squared gradient counts half in Adam's second moment.

    Marek et al. 2025, arXiv 2507.07101: keep this and not beta2 when the batch changes.
    """
    return float(np.log(0.5) / np.log(beta2) * batch * seq_len)
