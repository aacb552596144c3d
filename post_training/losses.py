"""The loss of a batch of completions, computed only from log-probabilities: pure functions with gradient.

Shapes: B completions, T tokens of a row. `mask` is 1 at the tokens of a completion that count. All log-probabilities are under
the sampling distribution (temperature and kept set), in nats.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from post_training.spec import CorrectionConfig, KLConfig, LossConfig


class LogProbs(NamedTuple):
    """Log-probabilities of the sampled tokens, by the program that computed them."""

    current: Float[Array, "B T"]
    """By the policy that is trained, with a gradient."""
    before: Float[Array, "B T"]
    """By the trainer with its policy before the updates of the iteration; on the synchronous path that one sampled."""
    sampler: Float[Array, "B T"]
    """By the sampler. It differs from `before` by the order of float sums, or more if the sampler is another program or had an
    older policy."""
    reference: Float[Array, "B T"] | None = None
    full_kl: Float[Array, "B T"] | None = None
    """Exact KL(policy, reference) over all tokens at each position, with a gradient; for the estimator `full`."""


def policy_loss(
    config: LossConfig,
    kl: KLConfig | None,
    given: LogProbs,
    advantage: Float[Array, " B"],
    mask: Float[Array, "B T"],
    off_policy: bool = False,
) -> Float[Array, "B T"]:
    """Loss of every token: - w min(rho A, clip(rho) A) + coefficient x KL, where rho = exp(current - before).

    w is the importance weight of the sampler (`importance_weights`), without a gradient. `off_policy`: older policies sampled,
    so the ratio of the KL term is w rho and not rho.
    """
    ratio = ratios(config, given.current - given.before, mask)
    clipped = jnp.clip(ratio, 1 - config.clip_low, 1 + config.clip_high)
    scored = advantage[:, None]
    token = -jnp.minimum(ratio * scored, clipped * scored)
    carried = ratio
    if config.correction is not None:
        weight = importance_weights(config.correction, given.before - given.sampler, mask)
        token = token * weight
        carried = weight * ratio if off_policy else ratio
    if kl is not None and kl.where == "loss":
        token = token + kl.coefficient * kl_in_loss(kl.estimator, given, carried)
    return token * mask


def ratios(config: LossConfig, difference: Float[Array, "B T"], mask: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """exp of the difference of each token, or of its mean or its sum over the completion."""
    if config.ratio != "token":
        whole = (difference * mask).sum(axis=1, keepdims=True)
        if config.ratio == "sequence":
            whole = whole / jnp.maximum(mask.sum(axis=1, keepdims=True), 1.0)
        difference = jnp.broadcast_to(whole, difference.shape)
    return jnp.exp(difference)


def importance_weights(
    config: CorrectionConfig, difference: Float[Array, "B T"], mask: Float[Array, "B T"]
) -> Float[Array, "B T"]:
    """exp(trainer - sampler), bounded, without a gradient."""
    if config.level == "sequence":
        difference = jnp.broadcast_to((difference * mask).sum(axis=1, keepdims=True), difference.shape)
    weight = jnp.exp(stop_gradient(difference))
    if config.bound == "truncate":
        return jnp.minimum(weight, config.limit)
    return jnp.where(weight <= config.limit, weight, 0.0)


def kl_in_loss(estimator: str, given: LogProbs, ratio: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """A term whose expected gradient is that of a KL divergence, over tokens sampled by the policy before the updates.

    With d = reference - current: k2 = rho d^2 / 2 with rho held fixed, and k3_corrected = rho (exp(d) - d - 1), both have the
    gradient of KL(policy, reference). k3 = exp(d) - d - 1 has, on policy, that of KL(reference, policy); it is the term of the
    published GRPO. `full` sums over all tokens.
    """
    if estimator == "full":
        assert given.full_kl is not None
        return given.full_kl
    assert given.reference is not None
    d = given.reference - given.current
    k3 = jnp.exp(d) - d - 1.0
    return {"k2": stop_gradient(ratio) * 0.5 * d**2, "k3": k3, "k3_corrected": ratio * k3}[estimator]


def kl_in_reward(
    kl: KLConfig, sampled: Float[Array, "B T"], reference: Float[Array, "B T"], mask: Float[Array, "B T"]
) -> Float[Array, " B"]:
    """Return what is subtracted from each completion's reward: coefficient x sum of (sampled - reference), the estimator k1."""
    return kl.coefficient * ((sampled - reference) * mask).sum(axis=1)


def token_weights(
    config: LossConfig, mask: Float[Array | np.ndarray, "B T"], max_new_tokens: int
) -> Float[Array | np.ndarray, "B T"]:
    """Weight of every token, so that the loss is the sum of weight x token loss.

    `sequence_mean`: 1 / (B length_b); `token_mean`: 1 / sum of lengths; `fixed_length`: 1 / (B max_new_tokens). B counts the
    completions with a token that counts. The result is of JAX or of NumPy, like `mask`.
    """
    lengths = mask.sum(axis=1, keepdims=True)
    rows = (lengths > 0).sum().clip(min=1).astype(mask.dtype)
    match config.aggregate:
        case "sequence_mean":
            return mask / lengths.clip(min=1.0) / rows
        case "token_mean":
            return mask / mask.sum().clip(min=1.0)
        case "fixed_length":
            return mask / (rows * max_new_tokens)
