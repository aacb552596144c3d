"""Adam and its variants: Nesterov momentum, decay that follows the rate, steps on a sphere.

With g the gradient of step t (from 1), after clipping, all of them keep
    m = beta1 m + (1 - beta1) g,          mh = m / (1 - beta1^t)
    v = beta2 v + (1 - beta2) g^2,        vh = v / (1 - beta2^t)
and start from u = mh / (sqrt(vh) + eps) (Kingma & Ba 2014, arXiv 1412.6980). AdamW's direction is u + weight_decay p
(Loshchilov & Hutter 2017, arXiv 1711.05101): the decay does not pass through v.
"""

import jax
import jax.numpy as jnp
import optax
from haliax import NamedArray
from jaxtyping import PyTree

from trainer.optimizers.groups import like, map_named, own_dims
from trainer.spec.optimizers import AdamCConfig, AdamHConfig, AdamWConfig, MuonConfig, MuonHConfig, NAdamWConfig


def adam(config: AdamWConfig | AdamCConfig | AdamHConfig | MuonConfig | MuonHConfig) -> optax.GradientTransformation:
    """u = mh / (sqrt(vh) + eps), of the module's formulas."""
    return optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps)


def nadam(config: NAdamWConfig) -> optax.GradientTransformation:
    """u = (beta1 m / (1 - beta1^(t+1)) + (1 - beta1) g / (1 - beta1^t)) / (sqrt(vh) + eps): momentum one step ahead.

    Source: Dozat 2016, "Incorporating Nesterov momentum into Adam", algorithm 2, without its extra factor beta2 on vh (optax
    omits it too and explains why).
    """
    return optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps, nesterov=True)


def decay_with_rate(weight_decay: float, peak_rate: float, mask: PyTree) -> optax.GradientTransformationExtraArgs:
    """AdamC: direction u + weight_decay (rate / peak_rate) p on the masked parameters, so decay moves p by rate^2.

    A layer before a normalization settles where its gradient norm is proportional to sqrt(decay / rate); a decay that falls
    with the rate keeps that from growing at the end of a run. Source: Defazio 2025, arXiv 2506.02285.
    """

    def update(updates, state, params=None, **extra_args):
        decay = weight_decay * extra_args["rate"] / peak_rate
        moved = jax.tree.map(lambda u, p, decays: u + decay * p if decays else u, updates, params, mask)
        return moved, state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def on_sphere() -> optax.GradientTransformationExtraArgs:
    """AdamH: after the step every weight has the norm it had, p' = q |p| / |q| with q = p - rate u |p| / |u|.

    Norms are Frobenius norms of one weight in one layer. As a direction, with s = |p| / |u| and r = |p| / |q|:
        (p - p') / rate = r s u - (r - 1) / rate p,
        (r - 1) / rate = (2 s <p, u> - rate s^2 |u|^2) / (|q| (|p| + |q|)),
    which has no difference of near-equal numbers, and is finite for a rate of 0. A weight of norm 0 stays.
    Source: `optim/adamh.py` of Levanter (docs/references.md#adamh).
    """

    def update(updates, state, params=None, **extra_args):
        rate = extra_args["rate"]
        return map_named(lambda u, p: _sphere_direction(u, p, rate), updates, params), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _sphere_direction(direction: NamedArray, parameter: NamedArray, rate) -> NamedArray:
    u, p = direction.array, parameter.array
    dims = own_dims(parameter)

    def norm(x):
        return jnp.sqrt(jnp.sum(jnp.square(x), axis=dims, keepdims=True))

    p_norm, u_norm = norm(p), norm(u)
    s = p_norm / jnp.maximum(u_norm, 1e-10)
    q_norm = norm(p - rate * s * u)
    along = jnp.sum(p * u, axis=dims, keepdims=True)
    safe = jnp.where(q_norm > 0, q_norm, 1.0)
    shrink = (2 * s * along - rate * jnp.square(s * u_norm)) / (safe * (p_norm + safe))
    return like(parameter, jnp.where(q_norm > 0, p_norm / safe * s * u - shrink * p, 0.0))
