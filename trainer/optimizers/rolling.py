"""Rules that compare a step with recent ones: clip the norm of the update, skip a bad step. A NaN never enters their state.

Both keep a ring of the last `window` values and call a value an outlier above T = mean + num_std max(std, std_floor), with mean
and population deviation of the ring; the value is pushed afterwards. With fewer than max(2, window // 2) values there is no
threshold. Non-finite values never enter; in Levanter one NaN enters, and the next 128 steps are all skipped.
Limit of both rules, as in their sources: a finite outlier enters and raises T until it leaves the ring.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from trainer.spec.optimizers import ClipUpdateNormConfig, SkipBadStepsConfig

TINY = 1e-6


class Ring(NamedTuple):
    """The last values, and the number of all values ever pushed."""

    values: Float[Array, " window"]
    count: Int[Array, ""]


def empty_ring(window: int) -> Ring:
    """Return a ring for `window` values that has none yet."""
    return Ring(jnp.zeros(window, jnp.float32), jnp.zeros((), jnp.int32))


def push(ring: Ring, value: Float[Array, ""]) -> Ring:
    """The ring with a value in place of its oldest; unchanged, bit for bit, if the value is not finite."""
    fits = jnp.isfinite(value)
    slot = ring.count % ring.values.size
    kept = jnp.where(fits, value, ring.values[slot])
    return Ring(ring.values.at[slot].set(kept), ring.count + fits.astype(jnp.int32))


def last_value(ring: Ring) -> Float[Array, ""]:
    """The value that was pushed last; 0 for an empty ring."""
    return ring.values[(ring.count - 1) % ring.values.size]


def threshold(ring: Ring, num_std: float, std_floor: float) -> Float[Array, ""]:
    """mean + num_std max(std, std_floor) of the ring; infinity while it holds too few values.

    Values are divided by the largest before squaring, so finite values give finite statistics.
    """
    window = ring.values.size
    held = jnp.minimum(ring.count, window)
    filled = jnp.arange(window) < held
    number = jnp.maximum(held, 1)
    values = jnp.where(filled, ring.values, 0.0)
    largest = jnp.maximum(jnp.max(jnp.abs(values)), 1e-30)
    shares = values / largest
    mean = jnp.sum(shares) / number
    std = jnp.sqrt(jnp.sum(jnp.where(filled, jnp.square(shares - mean), 0.0)) / number)
    limit = mean * largest + num_std * jnp.maximum(std * largest, std_floor)
    return jnp.where(held >= max(2, window // 2), limit, jnp.inf)


def clip_update_norm(config: ClipUpdateNormConfig) -> optax.GradientTransformation:
    """Scale the direction by T / n where its global norm n (decay in it, the rate not) is above T; n enters the ring.

    Source: `optim/clip_update_norm.py` of Levanter, used in Marin's 32B run (window 128, num_std 2).
    """

    def init(params):
        return empty_ring(config.window)

    def update(updates, state, params=None):
        norm = optax.tree.norm(updates)
        limit = threshold(state, config.num_std, config.std_floor)
        scale = jnp.where(norm > limit, limit / jnp.maximum(norm, TINY), 1.0)
        return optax.tree.scale(scale, updates), push(state, norm)

    return optax.GradientTransformation(init, update)


class SkipState(NamedTuple):
    """State of `accept_step`. It changes on skipped steps too, while parameters and optimizer state do not."""

    losses: Ring
    grad_norms: Ring
    in_a_row: Int[Array, ""]
    """Length of the current run of skipped steps."""


def empty_skip_state(config: SkipBadStepsConfig) -> SkipState:
    """Return the state of `skip_bad_steps` before the first step."""
    return SkipState(empty_ring(config.window), empty_ring(config.window), jnp.zeros((), jnp.int32))


def accept_step(
    config: SkipBadStepsConfig, state: SkipState, loss: Float[Array, ""], grad_norm: Float[Array, ""]
) -> tuple[Bool[Array, ""], SkipState]:
    """(whether to take the step, the new state). False if loss or unclipped gradient norm is not finite or above its T.

    Source: OLMo-core's SkipStepOptimizer through Levanter's `optim/skipstep.py` (window 128, num_std 6). There the update of
    a bad step is multiplied by 0, which keeps a NaN; here the step's result is selected away.
    """
    usual = (loss <= threshold(state.losses, config.num_std, config.std_floor)) & (
        grad_norm <= threshold(state.grad_norms, config.num_std, config.std_floor)
    )
    good = usual & jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    in_a_row = jnp.where(good, 0, state.in_a_row + 1)
    return good, SkipState(push(state.losses, loss), push(state.grad_norms, grad_norm), in_a_row)
