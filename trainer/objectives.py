"""What an objective is, and the objective of the next token.

`trainer.step.OBJECTIVES` has a row for each kind of a run spec. `compiled_step` takes any other function of this form, whose
batch may be any tree of arrays with rows as their first axis.

Shapes: B batch, S sequence.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trainer.batch import Batch
from trainer.model.cross_entropy import TILE_ROWS, row_log_probs, row_nll, weighted_objective
from trainer.model.protocol import LanguageModel
from trainer.model.router import Routing
from trainer.spec.compute import Compute
from trainer.spec.config import RunSpec
from trainer.spec.moe import MoeConfig, RouterConfig


class Sums(NamedTuple):
    """What a microbatch gives besides its objective."""

    loss: Float[Array, ""]
    """Mean over what the microbatch counts: tokens, pairs or completions."""
    weight: Float[Array, ""]
    """How much it counts. The loss, the gradient and the extras of a step are means of its microbatches by this weight."""
    routing: Routing | None = None
    extras: dict[str, Array] | None = None
    """More scalars by name, each a mean like `loss`. They become metrics of the step."""


type Objective = Callable[[LanguageModel, Any, Array | None], tuple[Array, Sums]]
"""(model, batch, share of each expert's load in the whole batch if it is known) to (objective, sums). Only the objective has a
gradient."""


def next_token(spec: RunSpec, compute: Compute) -> Objective:
    """The loss of the next token, with the z-loss and the losses of routers. Its batch is a `Batch`."""

    def of_batch(model: LanguageModel, batch: Batch, loads: Array | None = None) -> tuple[Array, Sums]:
        tokens, weights, segment_ids = (None if array is None else jnp.asarray(array) for array in batch)
        assert tokens is not None
        x, routing = model.routed(tokens, segment_ids, replace(compute, training=True))
        value, loss = loss_of_hidden(model, x, tokens, spec.z_loss_weight, weights, compute)
        if routing is not None and isinstance(spec.model, MoeConfig):
            value = value + router_losses(spec.model.router, routing, tokens.size, loads)
        every = jnp.float32(tokens.shape[0] * (tokens.shape[1] - 1))
        return value, Sums(loss, every if weights is None else weights[:, 1:].sum(), routing)

    return of_batch


def router_losses(
    config: RouterConfig, routing: Routing, rows: int, loads: Float[Array, "L E"] | None = None
) -> Float[Array, ""]:
    """The router's z-loss and balance loss (`trainer.spec.moe.RouterConfig`), means over layers and over all rows.

    `loads` is each expert's share of the assignments of the whole batch; None: these rows are the whole batch.
    """
    total = jnp.float32(0)
    if config.z_loss_weight:
        total = total + config.z_loss_weight * jnp.mean(routing.log_z) / rows
    if config.balance_loss_weight:
        mean_scores = routing.scores / rows
        mean_scores = mean_scores / mean_scores.sum(axis=-1, keepdims=True)
        shares = load_shares(routing.loads) if loads is None else loads
        total = total + config.balance_loss_weight * shares.shape[-1] * jnp.mean((shares * mean_scores).sum(axis=-1))
    return total


def load_shares(loads: Int[Array, "L E"]) -> Float[Array, "L E"]:
    """Each expert's share of a layer's assignments."""
    numbers = loads.astype(jnp.float32)
    return numbers / jnp.maximum(numbers.sum(axis=-1, keepdims=True), 1.0)


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
    return loss_of_hidden(model, model.hidden(tokens, segment_ids, compute), tokens, z_loss_weight, weights, compute)


def loss_of_hidden(
    model: LanguageModel,
    x: Float[Array, "B S D"],
    tokens: Int[Array, "B S"],
    z_loss_weight: float,
    weights: Array | None,
    compute: Compute | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`next_token_loss` of given hidden states."""
    of_targets = jnp.ones(tokens.shape, jnp.float32) if weights is None else jnp.asarray(weights)
    of_targets = jnp.roll(of_targets.at[:, 0].set(0.0), -1, axis=1).reshape(-1)
    total = of_targets.sum()
    shares = of_targets / jnp.where(total > 0, total, 1.0)
    targets = jnp.roll(tokens, -1, axis=1).reshape(-1)
    rows = TILE_ROWS if compute is None or compute.loss_rows is None else compute.loss_rows
    head = model.head_weight().astype(x.dtype)
    by_gold = compute is not None and compute.loss_shift == "gold"
    return weighted_objective(x.reshape(-1, x.shape[-1]), head, targets, shares, z_loss_weight, rows, by_gold=by_gold)


def token_log_probs(
    model: LanguageModel,
    tokens: Int[Array, "B S"],
    segment_ids: Int[Array, "B S"] | None = None,
    compute: Compute | None = None,
    temperature: float | Array = 1.0,
) -> Float[Array, "B S"]:
    """Log-probability in nats of each token given the tokens before it in its segment, at a temperature; with a gradient.

    The first token of a row has 0. The first token of a later segment has the log-probability given the segment before it,
    which nobody should use. Logits exist for a tile of rows at a time.
    """
    x = model.hidden(tokens, segment_ids, compute)
    targets = jnp.roll(tokens, -1, axis=1).reshape(-1)
    rows = TILE_ROWS if compute is None or compute.loss_rows is None else compute.loss_rows
    head = model.head_weight().astype(x.dtype)
    log_probs = row_log_probs(x.reshape(-1, x.shape[-1]), head, targets, temperature, rows).reshape(tokens.shape)
    return jnp.roll(log_probs, 1, axis=1).at[:, 0].set(0.0)


def token_nll(model: LanguageModel, tokens: Int[Array, "B S"]) -> Float[Array, "B S1"]:
    """Nats of tokens 1..S-1 given the tokens before them."""
    x = model.hidden(tokens[:, :-1])
    nll, _ = row_nll(x.reshape(-1, x.shape[-1]), model.head_weight(), tokens[:, 1:].reshape(-1))
    return nll.reshape(tokens.shape[0], -1)
