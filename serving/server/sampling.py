"""Choose the next token from log-probabilities, and state the distribution that it was drawn from.

A draw is a function of log-probabilities, settings and one number u. `uniform` computes u from (seed, sample, position), so no
draw depends on earlier draws, on other requests or on a resume.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

COLDEST = 1e-5
"""Lower temperatures count as 0 (vLLM's bound too), because the division would overflow."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen, in this order: temperature, `min_p`, `top_k`, `top_p`. Each cut sees what the one before it kept.

    Temperature 0 is greedy. `min_p` keeps tokens with at least that part of the likeliest token's probability; 0 keeps all.
    `top_k` keeps the k likeliest tokens; 0 keeps all. `top_p` keeps the smallest set of likeliest tokens with at least that
    mass. Of equal tokens the lowest ids are kept.

    Source: top-p, Holtzman et al. 2019; min-p, Nguyen et al. 2024; the order is that of vLLM.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        allowed = {
            "temperature": 0 <= self.temperature < float("inf"),
            "top_p": 0 < self.top_p <= 1,
            "top_k": self.top_k >= 0,
            "min_p": 0 <= self.min_p <= 1,
        }
        for name, valid in allowed.items():
            if not valid:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; allowed: temperature >= 0, 0 < top_p <= 1, top_k >= 0, 0 <= min_p <= 1"
                )

    @property
    def greedy(self) -> bool:
        return self.temperature < COLDEST

    @property
    def cuts(self) -> bool:
        """Whether the settings may leave out tokens."""
        return self.greedy or self.top_p < 1 or self.top_k > 0 or self.min_p > 0


@dataclass(frozen=True)
class Drawn:
    """A token and its log-probability (nats) under the sampling distribution."""

    token: int
    log_prob: float


@dataclass(frozen=True)
class SamplingDistribution:
    """The tokens that may be drawn, and their probabilities as weights.

    For a kept token t: log p(t) = log softmax(log-probabilities / temperature)[t] - log(`mass`).
    """

    tokens: Int[np.ndarray, " K"]
    """Ids in ascending order."""
    weights: Float[np.ndarray, " K"]
    """Probabilities, up to a factor, float64; each above 0."""
    mass: float
    """Probability of the kept tokens together under the tempered distribution of all tokens; 1 for a greedy choice."""

    def draw(self, u: float) -> Drawn:
        """Return the first token at which the cumulative probability is above `u`, for u in [0, 1)."""
        cumulative = np.cumsum(self.weights)
        place = min(int(np.searchsorted(cumulative, u * cumulative[-1], side="right")), len(self.tokens) - 1)
        return Drawn(int(self.tokens[place]), float(np.log(self.weights[place] / cumulative[-1])))

    def log_probs(self, vocab_size: int) -> Float[np.ndarray, " V"]:
        """Return the log-probabilities of all tokens, -inf for those that cannot be drawn."""
        full = np.full(vocab_size, -np.inf)
        full[self.tokens] = np.log(self.weights / self.weights.sum())
        return full


def sampling_distribution(
    log_probs: Float[np.ndarray, " V"], sampling: Sampling, allowed: Bool[np.ndarray, " V"] | None = None
) -> SamplingDistribution:
    """Return the distribution that `sampling` makes of a model's log-probabilities.

    `allowed`: tokens that a grammar permits; the others are left out first. Raises: ValueError if none is left.
    """
    candidates = np.arange(len(log_probs)) if allowed is None else np.flatnonzero(allowed)
    if sampling.greedy and len(candidates):
        best = candidates[np.argmax(log_probs[candidates])]
        return SamplingDistribution(np.array([best]), np.ones(1), 1.0)
    tempered = log_probs.astype(np.float64) / sampling.temperature
    weights = np.exp(tempered - tempered.max(initial=-np.inf, where=np.isfinite(tempered)))
    whole = weights.sum()
    kept = candidates[weights[candidates] > 0]
    if not len(kept):
        raise ValueError(f"none of {len(log_probs)} tokens may follow: all permitted ones have probability 0")
    if sampling.min_p > 0:
        kept = kept[weights[kept] >= sampling.min_p * weights[kept].max()]
    if sampling.top_k > 0 or sampling.top_p < 1:
        kept = kept[np.argsort(-weights[kept], kind="stable")]
        kept = kept[: sampling.top_k] if sampling.top_k > 0 else kept
        if sampling.top_p < 1:
            mass = np.cumsum(weights[kept])
            kept = kept[: int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1]
        kept = np.sort(kept)
    return SamplingDistribution(kept, weights[kept], min(1.0, float(weights[kept].sum() / whole)))


def uniform(seed: int, sample: int, position: int) -> float:
    """Return the number in [0, 1) that decides token `position` (0 is the first generated one) of sample `sample` of a prompt.

    It is the first output x of Philox4x64-10 with key (seed, sample) and counter (position + 1, 0, 0, 0), as
    floor(x / 2^11) / 2^53. Source: Salmon et al. 2011; NumPy's `Philox` adds 1 to the counter before its first output.
    """
    generator = np.random.Philox(key=np.array([seed, sample], np.uint64), counter=np.array([position, 0, 0, 0], np.uint64))
    return (int(generator.random_raw()) >> 11) * 2.0**-53


def likeliest(log_probs: Float[np.ndarray, " V"], count: int) -> list[tuple[int, float]]:
    """Return the `count` likeliest tokens with their log-probabilities, likeliest first; ties by lowest id, none of -inf."""
    count = min(count, len(log_probs))
    if count == 0:
        return []
    edge = np.partition(log_probs, -count)[-count]
    candidates = np.flatnonzero(log_probs >= edge)
    best = candidates[np.lexsort((candidates, -log_probs[candidates]))][:count]
    return [(int(token), float(log_probs[token])) for token in best if log_probs[token] > -np.inf]
