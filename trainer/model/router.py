"""A router: which experts a token goes to, with which weights, and what balancing must know about a batch.

Shapes: N rows, D hidden, E experts, k experts a token, L layers.
"""

from dataclasses import field
from typing import NamedTuple

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import Axis, NamedArray
from jaxtyping import Array, Float, Int, PRNGKeyArray

from trainer.model.balance import counted, margins
from trainer.spec.moe import RouterConfig
from trainer.spec.roles import ROUTER, STATE


class Choice(NamedTuple):
    """A batch's experts."""

    ids: Int[Array, "N k"]
    shares: Float[Array, "N k"]


class Routing(NamedTuple):
    """What a router did with a batch; with a leading axis, what every router did. All sums over tokens, so they add up over
    microbatches and devices."""

    loads: Int[Array, "*L E"]
    """Assignments by expert, before any capacity."""
    margins: Int[Array, "*L E bins"]
    """Tokens by expert and bin of the margin (`trainer.model.balance`)."""
    dropped: Int[Array, "*L"]
    """Assignments above capacity."""
    scores: Float[Array, "*L E"]
    """Sum of the tokens' scores; with a gradient, for the balance loss."""
    log_z: Float[Array, "*L"]
    """Sum of the squared log partition functions; with a gradient, for the router's z-loss."""


class Router(eqx.Module):
    """A float32 product, and a bias that moves by `trainer.model.balance`."""

    weight: NamedArray = field(metadata=ROUTER)
    bias: NamedArray = field(metadata=STATE)
    config: RouterConfig = eqx.field(static=True)

    @staticmethod
    def init(embed: Axis, count: int, config: RouterConfig, std: float, *, key: PRNGKeyArray) -> "Router":
        choice = Axis("choice", count)  # not named expert: a router is whole on every device
        return Router(hax.random.normal(key, (embed, choice)) * std, hax.zeros(choice), config)

    def __call__(self, x: Float[Array, "N D"], *, watched: bool = False) -> tuple[Choice, Routing | None]:
        """The choice for every row; with `watched`, also what balancing and its losses need."""
        config = self.config
        with jax.default_matmul_precision("highest"):
            logits = x.astype(jnp.float32) @ self.weight.array
        scores = jax.nn.sigmoid(logits) if config.score == "sigmoid" else jax.nn.softmax(logits, axis=-1)
        bias = jax.lax.stop_gradient(self.bias.array)
        values = jax.lax.stop_gradient(logits if config.bias_on == "logits" else scores)
        ids = jax.lax.top_k(values + bias, config.per_token)[1]
        shares = jnp.take_along_axis(scores, ids, axis=-1)
        if config.renormalize:
            shares = shares / (shares.sum(axis=-1, keepdims=True) + 1e-20)
        choice = Choice(ids, shares * config.scale)
        if not watched:
            return choice, None
        count = logits.shape[-1]
        chosen = jax.nn.one_hot(ids, count, dtype=jnp.int32).sum(axis=(0, 1))
        seen = counted(margins(values + bias, config.per_token))
        log_z = jnp.square(jax.nn.logsumexp(logits, axis=-1)).sum()
        return choice, Routing(chosen, seen, jnp.int32(0), scores.sum(axis=0), log_z)
