"""Rules that use signs: Lion takes only the sign, Cautious only elements whose sign agrees with the gradient."""

import jax.numpy as jnp
import optax
from haliax import NamedArray

from trainer.optimizers.groups import like, map_named, own_dims
from trainer.spec.optimizers import LionConfig

LEAST_SHARE = 1e-3


def lion(config: LionConfig) -> optax.GradientTransformation:
    """u = sign(beta1 m + (1 - beta1) g); then m = beta2 m + (1 - beta2) g.

    Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", arXiv 2302.06675, algorithm 2.
    """
    return optax.scale_by_lion(b1=config.beta1, b2=config.beta2)


def cautious(rule: optax.GradientTransformation) -> optax.GradientTransformation:
    """u mask / max(mean(mask), 1e-3) with mask = 1 where u g > 0, the mean over one weight in one layer; u is the rule's.

    Source: Liang et al. 2024, arXiv 2411.16085; the floor of the mean is that of the authors' code. Levanter adds 1e-8 to the
    mean instead, so that one agreeing element among n moves n times as far. Weight decay comes after the mask.
    """

    def update(updates, state, params=None):
        directions, state = rule.update(updates, state, params)
        return map_named(_masked, directions, updates), state

    return optax.GradientTransformation(rule.init, update)


def _masked(direction: NamedArray, gradient: NamedArray) -> NamedArray:
    agrees = (direction.array * gradient.array > 0).astype(direction.array.dtype)
    share = jnp.mean(agrees, axis=own_dims(direction), keepdims=True)
    return like(direction, direction.array * agrees / jnp.maximum(share, LEAST_SHARE))
