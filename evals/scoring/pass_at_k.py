"""pass@k: the chance that at least one of k samples of a problem is right, estimated from n samples."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evals.scoring.intervals import RESAMPLES
from evals.scoring.records import Score

SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)
"""The k that become scores; the curve holds all of them."""


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the unbiased estimate 1 - C(n - c, k) / C(n, k), for n samples of which c are right.

    As a product, 1 - prod (1 - k / i) for i from n - c + 1 to n: binomials of 128 overflow nothing but lose digits. Picking
    k samples once, or 1 - (1 - c/n)^k, is noisy or biased. Source: Chen et al. 2021, arXiv:2107.03374, section 2.1.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"{right} right of {samples} samples give no pass@{k}; 0 <= right <= samples and 1 <= k <= samples")
    if samples - right < k:
        return 1.0
    return float(1 - np.prod(1 - k / np.arange(samples - right + 1, samples + 1)))


@dataclass(frozen=True)
class PassCurve:
    """pass@k of a task for k from 1 to `samples`: the mean over problems, with 95 % intervals over problems."""

    task: str
    samples: int
    problems: int
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def scores(self) -> list[Score]:
        """Return one score for each k in `SHOWN`."""
        numbers = list(zip(self.values, self.lows, self.highs, strict=True))
        return [Score(self.task, f"pass_at_{k}", *numbers[k - 1], self.problems) for k in SHOWN if k <= self.samples]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {name: [round(value, 6) for value in getattr(self, name)] for name in ("values", "lows", "highs")}


def pass_curve(task: str, samples: int, right: Sequence[int], seed: int) -> PassCurve:
    """Return the curve of problems with `right[i]` right samples each. Problems are resampled, all k together.

    Raises: ValueError without problems.
    """
    if not right:
        raise ValueError(f"task {task}: pass@k of no problem; give at least one")
    ks = range(1, samples + 1)
    by_count = {count: [pass_at_k(samples, count, k) for k in ks] for count in set(right)}
    values = np.array([by_count[count] for count in right])
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.multinomial(len(right), np.full(len(right), 1 / len(right)), size=RESAMPLES)
    lows, highs = np.quantile(drawn @ values / len(right), [0.025, 0.975], axis=0)
    means = values.mean(axis=0)
    bounds = np.minimum(lows, means), np.maximum(highs, means)
    return PassCurve(task, samples, len(right), *(tuple(map(float, part)) for part in (means, *bounds)))
