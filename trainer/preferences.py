"""Direct preference optimization: log-probabilities of both sides of pairs, losses, and what a step reports of them.

A pair has a chosen side w and a rejected side l with one prompt x. Of a side y the score is
s(y) = log pi(y | x) - log pi_ref(y | x), the sum over the completion's tokens, or their mean with `length_normalized`. With
d = s(w) - s(l) the loss of a pair is

- `sigmoid`: -(1 - e) log sigmoid(beta d) - e log sigmoid(-beta d) with label smoothing e: DPO (Rafailov et al. 2023,
  arXiv 2305.18290, equation 7); e > 0 is the conservative form of Mitchell's note of 2023 (ericmitchell.ai/cdpo.pdf);
- `ipo`: (d - 1 / (2 beta)) ** 2 (Azar et al. 2023, arXiv 2310.12036, equation 17). TRL takes means over tokens there, which
  is `length_normalized`.

Shapes: P pairs, S tokens of a side.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trainer.batch import Rows
from trainer.model.protocol import LanguageModel
from trainer.objectives import Objective, Sums, token_log_probs
from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec
from trainer.spec.objectives import Dpo


class Pairs(NamedTuple):
    """The arrays of a step on preference pairs."""

    tokens: Rows
    """[pairs, 2 S]: the chosen side, then the rejected side, each padded behind its end."""
    weights: Rows
    """[pairs, 2 S]: one for the tokens of a completion, zero for its prompt and for padding."""
    reference: Rows
    """[pairs, 2]: log-probabilities of the two completions under the reference, in nats."""


class PairLoss(NamedTuple):
    """Losses of pairs, and the scores that they come from; all [P] or [P, 2] with the chosen side first."""

    loss: Float[Array, " P"]
    rewards: Float[Array, "P 2"]
    """The implicit rewards: beta times the score of a side."""


def side_log_probs(
    model: LanguageModel, tokens: Int[Array, "P S2"], weights: Float[Array, "P S2"], compute: Compute
) -> Float[Array, "P 2"]:
    """Log-probability of each side's completion given its prompt, summed over tokens, in nats; with a gradient."""
    sides = tokens.reshape(-1, tokens.shape[1] // 2)
    log_probs = token_log_probs(model, sides, compute=compute) * weights.reshape(sides.shape)
    return log_probs.sum(axis=1).reshape(-1, 2)


def side_lengths(weights: Float[Array, "P S2"]) -> Float[Array, "P 2"]:
    """Tokens of each side's completion."""
    return weights.reshape(len(weights), 2, -1).sum(axis=2)


def pair_losses(
    objective: Dpo, policy: Float[Array, "P 2"], reference: Float[Array, "P 2"], lengths: Float[Array, "P 2"]
) -> PairLoss:
    """The loss of each pair, from the log-probabilities of its sides and the tokens of its completions."""
    scores = policy - reference
    if objective.length_normalized:
        scores = scores / jnp.maximum(lengths, 1.0)
    difference = scores[:, 0] - scores[:, 1]
    if objective.loss == "ipo":
        loss = jnp.square(difference - 1 / (2 * objective.beta))
    else:
        kept, smoothing = objective.beta * difference, objective.label_smoothing
        loss = -(1 - smoothing) * jax.nn.log_sigmoid(kept) - smoothing * jax.nn.log_sigmoid(-kept)
    return PairLoss(loss, objective.beta * scores)


def accuracy(values: Float[Array, "P 2"]) -> Float[Array, ""]:
    """Share of pairs whose chosen side has the higher value; a tie counts half, so that no knowledge is 50 %."""
    chosen, rejected = values[:, 0], values[:, 1]
    return jnp.mean((chosen > rejected) + 0.5 * (chosen == rejected))


def preferences(spec: RunSpec, compute: Compute) -> Objective:
    """The objective of a `Dpo` run. Its batch is `Pairs`; it counts pairs."""
    declared = spec.objective
    assert isinstance(declared, Dpo)

    def of_batch(model: LanguageModel, batch: Pairs, loads: Array | None = None) -> tuple[Array, Sums]:
        tokens, weights, reference = (jnp.asarray(array) for array in batch)
        policy = side_log_probs(model, tokens, weights, compute)
        losses, rewards = pair_losses(declared, policy, reference, side_lengths(weights))
        value = losses.mean()
        extras = {
            "chosen_log_prob": policy[:, 0].mean(),
            "rejected_log_prob": policy[:, 1].mean(),
            "chosen_reward": rewards[:, 0].mean(),
            "rejected_reward": rewards[:, 1].mean(),
            "margin": (rewards[:, 0] - rewards[:, 1]).mean(),
            "accuracy": accuracy(rewards),
            "log_prob_accuracy": accuracy(policy),
            "reference_log_prob_accuracy": accuracy(reference),
        }
        return value, Sums(value, jnp.float32(len(tokens)), extras=extras)

    return of_batch
