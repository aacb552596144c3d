"""Build the optax transformation of a RunSpec; select between two states, and average parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, PyTree

from trainer.optimizers.adam import adam, decay_with_rate, nadam, on_sphere
from trainer.optimizers.groups import decay_mask, groups
from trainer.optimizers.muon import muon
from trainer.optimizers.rolling import Ring, clip_update_norm
from trainer.optimizers.sign import cautious, lion
from trainer.spec.config import RunSpec
from trainer.spec.optimizers import (
    AdamCConfig,
    AdamHConfig,
    AdamWConfig,
    CautiousConfig,
    ElementwiseConfig,
    LionConfig,
    MuonConfig,
    MuonHConfig,
    NAdamWConfig,
    OptimizerConfig,
)
from trainer.spec.roles import Role

ADAM_ROLES: tuple[Role, ...] = ("embedding", "norm", "router", "gate")
"""Roles that AdamH and Muon leave to Adam; the head is one of them for Muon."""


def build_optimizer(spec: RunSpec, model: PyTree) -> optax.GradientTransformationExtraArgs:
    """Clip by global norm, the rule, weight decay, clip of the update's norm: `update(gradients, state, parameters, rate=...)`.

    Its result is the direction; parameters move by minus the rate times it. The first clip scales all gradients by
    min(1, max_grad_norm / n), n their norm together (Pascanu, Mikolov & Bengio 2013, arXiv 1211.5063).
    """
    config = spec.optimizer
    limit = config.rule.max_grad_norm if isinstance(config, CautiousConfig) else config.max_grad_norm
    clip = optax.identity() if limit is None else optax.clip_by_global_norm(limit)
    parts = [clip, *_rule(config, model, spec.schedule.peak_learning_rate)]
    if spec.clip_update_norm is not None:
        parts.append(clip_update_norm(spec.clip_update_norm))
    return optax.with_extra_args_support(optax.chain(*parts))


def clip_ring(spec: RunSpec, state: Any) -> Ring | None:
    """The ring of `clip_update_norm` in a state of `build_optimizer`; None if the spec does not set it."""
    return None if spec.clip_update_norm is None else state[-1]


def _rule(config: OptimizerConfig, model: PyTree, peak_rate: float) -> list[optax.GradientTransformation]:
    """The parts of a rule. Their positions are names in existing checkpoints, so they must not change."""
    match config:
        case CautiousConfig(rule=rule):
            return [cautious(_elementwise(rule)), _decay(rule, model, peak_rate)]
        case AdamHConfig():
            plain = optax.chain(adam(config), optax.scale(config.adam_lr_ratio))
            sphere = optax.chain(adam(config), on_sphere())
            return [_by_group(model, {"matrix": sphere, "expert": sphere, "head": sphere, **dict.fromkeys(ADAM_ROLES, plain)})]
        case MuonHConfig():
            plain = optax.chain(adam(config), optax.scale(config.adam_lr_ratio))
            sphere, turned = optax.chain(adam(config), on_sphere()), optax.chain(muon(config), on_sphere())
            return [_by_group(model, {"matrix": turned, "expert": turned, "head": sphere, **dict.fromkeys(ADAM_ROLES, plain)})]
        case MuonConfig():
            decay = optax.add_decayed_weights(config.weight_decay, mask=decay_mask(model, config.decay_groups))
            rest = adam(config)
            ratio = optax.scale(config.adam_lr_ratio)
            same, turned = optax.identity(), muon(config)
            return [
                _by_group(model, {"matrix": turned, "expert": turned, "head": rest, **dict.fromkeys(ADAM_ROLES, rest)}),
                decay,
                _by_group(model, {"matrix": same, "expert": same, "head": ratio, **dict.fromkeys(ADAM_ROLES, ratio)}),
            ]
        case _:
            return [_elementwise(config), _decay(config, model, peak_rate)]


def _elementwise(config: ElementwiseConfig) -> optax.GradientTransformation:
    match config:
        case NAdamWConfig():
            return nadam(config)
        case LionConfig():
            return lion(config)
        case AdamWConfig() | AdamCConfig():
            return adam(config)


def _decay(config: ElementwiseConfig, model: PyTree, peak_rate: float) -> optax.GradientTransformation:
    mask = decay_mask(model, config.decay_groups)
    if isinstance(config, AdamCConfig):
        return decay_with_rate(config.weight_decay, peak_rate, mask)
    return optax.add_decayed_weights(config.weight_decay, mask=mask)


def _by_group(model: PyTree, rules: dict[str, optax.GradientTransformation]) -> optax.GradientTransformation:
    """A rule for each role; roles that the model lacks (a tied head) are left out.

    The labels are passed in a function, because their tree is a model, which is callable, and optax would call it.
    """
    labels = groups(model)
    present = set(jax.tree.leaves(labels))
    return optax.partition({group: rule for group, rule in rules.items() if group in present}, lambda _: labels)


def select(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """`new` if the condition holds, else `old` bit for bit. A select, because multiplying by zero would keep a NaN."""
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def averaged(average: PyTree, parameters: PyTree, beta: float) -> PyTree:
    """beta average + (1 - beta) parameters: an exponential moving average without bias correction.

    It starts at the initial parameters, as in Levanter's `optim/model_averaging.py`; Polyak & Juditsky 1992 average uniformly.
    """
    return jax.tree.map(lambda a, p: beta * a + (1 - beta) * p, average, parameters)
