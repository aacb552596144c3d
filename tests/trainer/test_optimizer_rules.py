"""Every update rule against a slow one in float64, for each weight and layer."""

import functools
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from tiny import tiny_model, tiny_spec
from tiny_models import quick_model
from tiny_moe import tiny_moe

from trainer.model.parts import parameters_of
from trainer.model.transformer import Transformer
from trainer.optimizers.build import build_optimizer
from trainer.optimizers.muon import newton_schulz
from trainer.spec.optimizers import (
    AdamCConfig,
    AdamHConfig,
    AdamWConfig,
    CautiousConfig,
    LionConfig,
    MuonConfig,
    MuonHConfig,
    NAdamWConfig,
    OptimizerConfig,
)
from trainer.spec.schedules import WarmupStableDecay

PEAK = 0.02
RATES = (0.004, 0.02, 0.02, 0.011)
SPEC = tiny_spec(
    name="rules",
    model=tiny_model(
        vocab_size=12, hidden_dim=8, intermediate_dim=6, max_seq_len=8, tie_embeddings=False, initializer_range=0.3
    ),
    schedule=WarmupStableDecay(peak_learning_rate=PEAK, warmup_steps=0, decay_frac=0.0),
    batch_size=1,
    seq_len=8,
    num_steps=4,
    save_every_steps=4,
)
RULES: tuple[OptimizerConfig, ...] = (
    AdamWConfig(),
    AdamWConfig(weight_decay=0.5, max_grad_norm=None, decay_groups=("norm", "embedding")),
    NAdamWConfig(beta2=0.9),
    AdamCConfig(weight_decay=0.7),
    AdamHConfig(adam_lr_ratio=0.25),
    MuonConfig(weight_decay=0.3, adam_lr_ratio=0.2),
    MuonConfig(nesterov=False, scale="match_adamw", momentum=0.8, num_iterations=3, max_grad_norm=None),
    MuonHConfig(adam_lr_ratio=0.2),
    LionConfig(),
    CautiousConfig(AdamWConfig(weight_decay=0.4)),
    CautiousConfig(NAdamWConfig()),
    CautiousConfig(AdamCConfig()),
    CautiousConfig(LionConfig(max_grad_norm=None)),
)
OTHER_FORMS = (RULES[6], *RULES[-3:])
"""A second form of Muon and of the cautious rule: each is a program, and the first form holds the promise."""
BY_RULE = [pytest.param(rule, id=type(rule).__name__, marks=[pytest.mark.slow] * (rule in OTHER_FORMS)) for rule in RULES]
INPUT_DIMS = {"w_q": 1, "w_k": 1, "w_v": 1, "w_o": 3, "w_gate": 1, "w_up": 1, "w_down": 1}
"""How many leading dimensions of a weight of one layer are inputs: w_o reads from kv heads, query groups, head dimensions."""


def group_of(name: str) -> str:
    """The role of a Llama's parameter by its path, written independently of the declared roles."""
    if "norm" in name:
        return "norm"
    return {".embedding": "embedding", ".head": "head"}.get(name.split("[")[0], "matrix")


@dataclass
class Weight:
    """One parameter in one layer, with what its rule remembers."""

    name: str
    value: np.ndarray
    m: np.ndarray | float = 0.0
    v: np.ndarray | float = 0.0
    group: str = field(init=False)

    def __post_init__(self) -> None:
        self.group = group_of(self.name)


def weights_of(tree) -> list[Weight]:
    weights = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name, array = jax.tree_util.keystr(path), np.asarray(leaf, np.float64)
        weights += [Weight(name, layer) for layer in array] if "stacked" in name else [Weight(name, array)]
    return weights


def adam(w: Weight, g: np.ndarray, c, t: int, nesterov: bool = False) -> np.ndarray:
    w.m, w.v = c.beta1 * w.m + (1 - c.beta1) * g, c.beta2 * w.v + (1 - c.beta2) * g**2
    first = w.m / (1 - c.beta1**t)
    if nesterov:
        first = c.beta1 * w.m / (1 - c.beta1 ** (t + 1)) + (1 - c.beta1) * g / (1 - c.beta1**t)
    return first / (np.sqrt(w.v / (1 - c.beta2**t)) + c.eps)


def elementwise(c, w: Weight, g: np.ndarray, t: int) -> np.ndarray:
    if isinstance(c, LionConfig):
        u = np.sign(c.beta1 * w.m + (1 - c.beta1) * g)
        w.m = c.beta2 * w.m + (1 - c.beta2) * g
        return u
    return adam(w, g, c, t, nesterov=isinstance(c, NAdamWConfig))


def muon(c: MuonConfig | MuonHConfig, w: Weight, g: np.ndarray) -> np.ndarray:
    w.m = c.momentum * w.m + g
    x = c.momentum * w.m + g if c.nesterov else w.m
    short = next(short for short in INPUT_DIMS if short in w.name)
    inputs = int(np.prod(g.shape[: INPUT_DIMS[short]]))
    x = x.reshape(inputs, -1)
    outputs = x.shape[1]
    x = x / np.linalg.norm(x)
    for _ in range(c.num_iterations):
        x = 3.4445 * x - 4.7750 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
    scale = np.sqrt(max(1, outputs / inputs)) if c.scale == "aspect" else 0.2 * np.sqrt(max(inputs, outputs))
    return (scale * x).reshape(g.shape)


def moved(c: OptimizerConfig, w: Weight, g: np.ndarray, rate: float, t: int) -> np.ndarray:
    p = w.value
    if isinstance(c, AdamHConfig | MuonHConfig):
        u = muon(c, w, g) if isinstance(c, MuonHConfig) and w.group == "matrix" else adam(w, g, c, t)
        if w.group in ("embedding", "norm"):
            return p - rate * c.adam_lr_ratio * u
        q = p - rate * u * np.linalg.norm(p) / np.linalg.norm(u)
        return q * np.linalg.norm(p) / np.linalg.norm(q)
    if isinstance(c, MuonConfig):
        decay = c.weight_decay * p if w.group in c.decay_groups else 0.0
        if w.group == "matrix":
            return p - rate * (muon(c, w, g) + decay)
        return p - rate * c.adam_lr_ratio * (adam(w, g, c, t) + decay)
    rule = c.rule if isinstance(c, CautiousConfig) else c
    u = elementwise(rule, w, g, t)
    if isinstance(c, CautiousConfig):
        mask = (u * g > 0).astype(float)
        u = u * mask / max(mask.mean(), 1e-3)
    decay = rule.weight_decay if w.group in rule.decay_groups else 0.0
    if isinstance(rule, AdamCConfig):
        decay *= rate / PEAK
    return p - rate * (u + decay * p)


def reference(c: OptimizerConfig, parameters, gradients: list) -> list[np.ndarray]:
    weights = weights_of(parameters)
    limit = (c.rule if isinstance(c, CautiousConfig) else c).max_grad_norm
    for t, (tree, rate) in enumerate(zip(gradients, RATES, strict=True), start=1):
        slopes = [w.value for w in weights_of(tree)]
        norm = np.sqrt(sum((g**2).sum() for g in slopes))
        shrink = 1.0 if limit is None else min(1.0, limit / norm)
        for w, g in zip(weights, slopes, strict=True):
            w.value = moved(c, w, g * shrink, rate, t)
    return [w.value for w in weights]


def model() -> Transformer:
    return quick_model(SPEC.model, 3)


def random_gradients(parameters, seed: int, scale: float) -> list:
    rng = np.random.default_rng(seed)
    return [jax.tree.map(lambda leaf: scale * rng.normal(size=leaf.shape).astype(np.float32), parameters) for _ in RATES]


@functools.cache
def update_of(rule: OptimizerConfig):
    """(optimizer, its compiled update): one program for all tests of a rule."""
    optimizer = build_optimizer(replace(SPEC, optimizer=rule), model())
    return optimizer, jax.jit(optimizer.update)


@pytest.mark.parametrize("scale", [0.03, 3.0], ids=["below the clip", "above the clip"])
@pytest.mark.parametrize("rule", BY_RULE)
def test_a_rule_moves_every_weight_as_its_formula_says(rule: OptimizerConfig, scale: float) -> None:
    parameters = eqx.filter(model(), eqx.is_inexact_array)
    optimizer, update = update_of(rule)
    gradients = random_gradients(parameters, seed=int(scale * 100), scale=scale)
    ours, state = parameters, optimizer.init(parameters)
    for g, rate in zip(gradients, map(np.float32, RATES), strict=True):
        directions, state = update(g, state, ours, rate=rate)
        ours = jax.tree.map(lambda a, u, rate=rate: a - rate * np.asarray(u), ours, directions)
    wanted = reference(rule, parameters, gradients)
    for weight, value in zip(weights_of(ours), wanted, strict=True):
        np.testing.assert_allclose(weight.value, value, rtol=2e-4, atol=2e-6, err_msg=weight.name)


def directions_of(rule: OptimizerConfig, parameters_scale: float, gradient_scale: float, rate: float):
    parameters = jax.tree.map(lambda p: p * np.float32(parameters_scale), eqx.filter(model(), eqx.is_inexact_array))
    optimizer, update = update_of(rule)
    state = optimizer.init(parameters)
    for g in random_gradients(parameters, 5, gradient_scale)[:2]:
        directions, state = update(g, state, parameters, rate=jnp.float32(rate))
    return parameters, directions, state


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-15, 1e15, 1e17])
@pytest.mark.parametrize("rule", BY_RULE)
def test_gradients_of_a_finite_norm_give_finite_directions_and_states(rule: OptimizerConfig, scale: float) -> None:
    _, directions, state = directions_of(rule, 1.0, scale, 0.01)
    for leaf in jax.tree.leaves((directions, state)):
        assert np.isfinite(np.asarray(leaf)).all()


@pytest.mark.parametrize("rate", [1e-3, 0.1, 2.0])
def test_adamh_keeps_the_norm_of_every_weight(rate: float) -> None:
    parameters, directions, _ = directions_of(AdamHConfig(), 1.0, 1.0, rate)
    after = jax.tree.map(lambda p, u: p - rate * u, parameters, directions)
    for old, new in zip(weights_of(parameters), weights_of(after), strict=True):
        if old.group in ("matrix", "head"):
            assert np.linalg.norm(new.value) == pytest.approx(np.linalg.norm(old.value), rel=1e-5)
            assert not np.allclose(new.value, old.value, rtol=1e-5)


@pytest.mark.parametrize(
    "rule", [pytest.param(AdamHConfig(), marks=pytest.mark.slow), MuonHConfig()], ids=lambda rule: rule.kind
)
def test_every_expert_keeps_the_norm_of_its_own_and_routers_do_not(rule: OptimizerConfig) -> None:
    model = quick_model(tiny_moe())
    parameters = parameters_of(model)
    optimizer = build_optimizer(replace(SPEC, optimizer=rule), model)
    gradients = random_gradients(parameters, 1, 1.0)[0]
    directions, _ = jax.jit(optimizer.update)(gradients, optimizer.init(parameters), parameters, rate=jnp.float32(0.3))
    moved_to = jax.tree.map(lambda p, u: p - np.float32(0.3) * np.asarray(u), parameters, directions)
    for name in ("w_gate", "w_up", "w_down"):
        old, new = (getattr(tree.blocks.stacked.experts, name).array for tree in (parameters, moved_to))
        lengths = [np.linalg.norm(np.asarray(each), axis=(2, 3)) for each in (old, new)]
        assert lengths[0].shape == (2, 8)
        np.testing.assert_allclose(*lengths, rtol=1e-5, err_msg=name)
        assert not np.allclose(old, new, rtol=1e-2)
    old, new = (tree.blocks.stacked.experts.router.weight.array for tree in (parameters, moved_to))
    assert not np.allclose(np.linalg.norm(old, axis=1), np.linalg.norm(new, axis=1), rtol=1e-3)


def test_adamh_leaves_a_weight_of_norm_zero_where_it_is() -> None:
    _, directions, _ = directions_of(AdamHConfig(), 0.0, 1.0, 0.1)
    assert all((w.value == 0).all() for w in weights_of(directions) if w.group in ("matrix", "head"))


orthogonalized = jax.jit(lambda x: newton_schulz(x, 5))


@settings(max_examples=examples(8))  # each shape is compiled
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 100), st.floats(1e-6, 1e6))
def test_newton_schulz_makes_singular_values_near_one_and_keeps_the_vectors(rows, columns, seed, scale) -> None:
    rng = np.random.default_rng(seed)
    smaller = min(rows, columns)
    u, _, vt = np.linalg.svd(rng.normal(size=(rows, columns)), full_matrices=False)
    x = scale * (u * rng.uniform(0.2, 1.0, smaller)) @ vt
    out = np.asarray(orthogonalized(jnp.asarray(x[None], jnp.float32)))[0]
    turned = u.T @ out @ vt.T
    np.testing.assert_allclose(turned - np.diag(np.diag(turned)), 0, atol=1e-3)
    assert (np.diag(turned) > 0.6).all() and (np.diag(turned) < 1.3).all()
