"""What a step minimizes, by the objective of the run spec.

Shapes: B batch, S sequence.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trainer.model.cross_entropy import row_nll, weighted_objective
from trainer.model.protocol import LanguageModel
from trainer.spec.compute import Compute
from trainer.spec.config import NextToken, RunSpec


class Batch(NamedTuple):
    """Arrays of one microbatch."""

    tokens: Int[Array, "B S"]
    weights: Float[Array, "B S"] | None = None
    """Weight of each token as a prediction target; None: all one."""
    segment_ids: Int[Array, "B S"] | None = None
    """Tokens attend to their own segment only; None: to the whole row."""


type Objective = Callable[[LanguageModel, Batch], tuple[Array, tuple[Array, Array]]]
"""(model, batch) to (objective, (loss, number of counted tokens)). Only the objective has a gradient."""


def objective_of(spec: RunSpec, compute: Compute) -> Objective:
    """The objective of a run, computed as `compute` says."""
    match spec.objective:
        case NextToken():

            def next_token(model: LanguageModel, batch: Batch) -> tuple[Array, tuple[Array, Array]]:
                tokens, weights, segment_ids = batch
                value, loss = next_token_loss(model, tokens, spec.z_loss_weight, weights, segment_ids, compute)
                every = jnp.float32(tokens.shape[0] * (tokens.shape[1] - 1))
                return value, (loss, every if weights is None else weights[:, 1:].sum())

            return next_token


def next_token_loss(
    model: LanguageModel,
    tokens: Int[Array, "B S"],
    z_loss_weight: float,
    weights: Float[Array, "B S"] | None = None,
    segment_ids: Int[Array, "B S"] | None = None,
    compute: Compute | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(objective, next-token loss in nats); they differ by the z-loss. Only the objective has a gradient.

    The loss is the mean over all tokens but the first of each sequence. With `weights` it is sum(weight x nll) / sum(weight),
    and 0 where no token of the batch counts, so that such a batch changes nothing. Every position is computed, the last of
    each sequence with weight 0, which keeps shapes round.
    """
    x = model.hidden(tokens, segment_ids, compute)
    of_targets = jnp.ones(tokens.shape, jnp.float32) if weights is None else weights
    of_targets = jnp.roll(of_targets.at[:, 0].set(0.0), -1, axis=1).reshape(-1)
    total = of_targets.sum()
    shares = of_targets / jnp.where(total > 0, total, 1.0)
    targets = jnp.roll(tokens, -1, axis=1).reshape(-1)
    return weighted_objective(x.reshape(-1, x.shape[-1]), model.head_weight().astype(x.dtype), targets, shares, z_loss_weight)


def token_nll(model: LanguageModel, tokens: Int[Array, "B S"]) -> Float[Array, "B S1"]:
    """Nats of tokens 1..S-1 given the tokens before them."""
    x = model.hidden(tokens[:, :-1])
    nll, _ = row_nll(x.reshape(-1, x.shape[-1]), model.head_weight(), tokens[:, 1:].reshape(-1))
    return nll.reshape(tokens.shape[0], -1)
