"""AdamW with a warm-up/stable/decay schedule, and the guard that lets no non-finite step touch a parameter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, PyTree

from trainer.config import AdamWConfig, RunSpec, WarmupStableDecay


def learning_rate(schedule: WarmupStableDecay, num_steps: int, step) -> Array:
    r"""Learning rate of step `step` (from 0): linear to the peak, flat, linear down over the last `decay_frac`.

    >>> s = WarmupStableDecay(peak_learning_rate=1.0, warmup_steps=10, decay_frac=0.2, min_lr_ratio=0.0)
    >>> [round(float(learning_rate(s, 100, t)), 3) for t in (0, 4, 9, 50, 79, 90, 99)]
    [0.1, 0.5, 1.0, 1.0, 1.0, 0.5, 0.05]
    """
    decay_steps = max(1, round(schedule.decay_frac * num_steps))
    warm = jnp.minimum((step + 1) / max(1, schedule.warmup_steps), 1.0)
    left = jnp.minimum((num_steps - step) / decay_steps, 1.0) if schedule.decay_frac > 0 else 1.0
    return schedule.peak_learning_rate * warm * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * left)


def build_optimizer(spec: RunSpec, model: PyTree) -> optax.GradientTransformation:
    """Clip by global norm, Adam, decoupled weight decay on the matrices; the step scales by minus the learning rate.

    The rate is not part of the chain: it is a function of the step, and the chain's own count stands still on a skipped step.
    """
    config: AdamWConfig = spec.optimizer
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=decay_mask(model)),
    )


def decay_mask(model: PyTree) -> PyTree:
    """True where weight decay applies: not on norms and not on the embedding."""

    def decays(path, leaf) -> bool:
        name = jax.tree_util.keystr(path)
        return not ("norm" in name or "embedding" in name)

    return jax.tree_util.tree_map_with_path(decays, eqx.filter(model, eqx.is_inexact_array))


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every element of every leaf is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def keep_if(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """`new` where the condition holds, `old` bit for bit where not (a select: multiplying by zero would keep a NaN)."""
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)
