"""Muon: orthogonalized momentum, for the matrices inside the blocks.

Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks" (kellerjordan.github.io/posts/muon); the
scale `match_adamw` is Liu et al. 2025, arXiv 2502.16982, section 2.2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from haliax import NamedArray
from jaxtyping import Array, Float, PyTree

from trainer.optimizers.groups import as_matrices, like, map_named
from trainer.spec.optimizers import MuonConfig, MuonHConfig

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""(a, b, c) of x -> a x + b x^3 + c x^5, chosen by Jordan for a steep slope at 0: five rounds bring singular values near 1."""
TINY = 1e-8


class MuonState(NamedTuple):
    """Momentum, shaped as the parameters."""

    momentum: PyTree


def muon(config: MuonConfig | MuonHConfig) -> optax.GradientTransformation:
    """b = momentum b + g; x = momentum b + g with `nesterov`, else b; direction = scale orthogonal(x), for the matrix
    of each layer.

    `orthogonal` is U V^T of x = U S V^T, by `newton_schulz`. Queries, keys and values are one matrix each, with all
    heads together. `optax.contrib.muon` treats 2-D arrays only; our weights have named axes, several of which may be
    inputs (`trainer.optimizers.groups.as_matrices`).
    """

    def init(params):
        return MuonState(jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        momentum = jax.tree.map(lambda b, g: config.momentum * b + g, state.momentum, updates)
        ahead = jax.tree.map(lambda b, g: config.momentum * b + g, momentum, updates) if config.nesterov else momentum
        return map_named(lambda x: _scaled_orthogonal(x, config), ahead), MuonState(momentum)

    return optax.GradientTransformation(init, update)


def newton_schulz(x: Float[Array, "N I O"], num_iterations: int) -> Float[Array, "N I O"]:
    """Approximate U V^T of every matrix x = U S V^T: x / |x|_F, then rounds of x -> a x + (b A + c A^2) x with A = x
    x^T.

    The smaller side comes first, so that A is small. Singular values end near 1, not at 1, which costs nothing
    (Jordan's result).
    """
    a, b, c = COEFFICIENTS
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else jnp.swapaxes(x, -1, -2)
    x = x / (jnp.sqrt(jnp.sum(jnp.square(x), axis=(-2, -1), keepdims=True)) + TINY)
    for _ in range(num_iterations):
        gram = x @ jnp.swapaxes(x, -1, -2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else jnp.swapaxes(x, -1, -2)


def _scaled_orthogonal(momentum: NamedArray, config: MuonConfig | MuonHConfig) -> NamedArray:
    matrices = as_matrices(momentum)
    inputs, outputs = matrices.shape[1:]
    scale = max(1.0, outputs / inputs) ** 0.5 if config.scale == "aspect" else 0.2 * max(inputs, outputs) ** 0.5
    return like(momentum, scale * newton_schulz(matrices, config.num_iterations))
