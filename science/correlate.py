"""Which perplexity pools go with which task scores: rank correlations over models, with p values corrected for many tests."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

LEAST_MODELS = 5
"""With four models the smallest two-sided p value of a permutation test is 2 / 4! = .083."""


@dataclass(frozen=True)
class Correlation:
    """One pool and one score over the same models."""

    pool: str
    score: str
    rho: float
    """Spearman's rank correlation."""
    p: float
    """Of a two-sided permutation test, for this pair alone."""
    corrected: float
    """The p value after Holm's correction for all pairs (Holm 1979)."""


def correlate(
    pools: Mapping[str, np.ndarray], scores: Mapping[str, np.ndarray], permutations: int = 20_000, seed: int = 0
) -> list[Correlation]:
    """Return every pair, the smallest p value first. Each array has a value for each model, in one order.

    Raises: ValueError for too few models, an array of another length, a value that is not finite, or one that never varies.
    """
    count = _checked({**{f"pool {name}": v for name, v in pools.items()}, **{f"score {name}": v for name, v in scores.items()}})
    pairs = [(pool, score) for pool in pools for score in scores]
    ranked = {name: _centred(values) for name, values in pools.items()}, {name: _centred(v) for name, v in scores.items()}
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(count), (permutations, 1)), axis=1)
    rhos, ps = [], []
    for pool, score in pairs:
        one, other = ranked[0][pool], ranked[1][score]
        rho = float(one @ other)
        drawn = np.abs(one[orders] @ other)
        rhos.append(rho)
        ps.append((1 + int((drawn >= abs(rho) - 1e-12).sum())) / (1 + permutations))
    corrected = holm(np.array(ps))
    correlations = [Correlation(*pair, *numbers) for pair, *numbers in zip(pairs, rhos, ps, map(float, corrected), strict=True)]
    return sorted(correlations, key=lambda each: (each.p, each.pool, each.score))


def _checked(arrays: Mapping[str, np.ndarray]) -> int:
    lengths = {len(values) for values in arrays.values()}
    if len(lengths) != 1:
        raise ValueError(f"arrays have {sorted(lengths)} values; each needs one for each model")
    (count,) = lengths
    if count < LEAST_MODELS:
        raise ValueError(f"there are {count} models; at least {LEAST_MODELS} are needed, or no p value can be small")
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has a value that is not finite; leave that model out")
        if np.ptp(values) == 0:
            raise ValueError(f"{name} is {values[0]} for all models; what never varies has no rank correlation")
    return count


def _centred(values: np.ndarray) -> np.ndarray:
    """Ranks with mean 0 and length 1, so that a product of two is their correlation. Equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    ranks = ranks - ranks.mean()
    return ranks / np.linalg.norm(ranks)


def holm(ps: np.ndarray) -> np.ndarray:
    """Return the p values after Holm's step-down correction, in the order given."""
    order = np.argsort(ps, kind="stable")
    stepped = np.maximum.accumulate(ps[order] * (len(ps) - np.arange(len(ps))))
    corrected = np.empty(len(ps))
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def smallest_visible(models: int, pairs: int, level: float = 0.05) -> float:
    """The |rho| of one pair that would show after the correction for so many pairs, by Student's approximation."""
    edge = float(special.stdtrit(models - 2, 1 - level / (2 * pairs)))
    return edge / float(np.sqrt(models - 2 + edge**2))
