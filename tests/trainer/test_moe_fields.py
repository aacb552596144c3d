"""Each field of `ExtrasConfig`, alone and together, against a decoder that is written out in float64 numpy."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from haliax import NamedArray
from tiny_models import noisy_model
from tiny_moe import EVERYTHING, tiny_moe

from trainer.model.layers import Attention
from trainer.model.moe import moe_attention
from trainer.model.transformer import READING, Transformer
from trainer.spec.moe import ExpertsConfig, ExtrasConfig, LongShortConfig, MoeConfig

TOKENS = np.random.default_rng(0).integers(0, 64, (2, 12)).astype(np.int32)
CASES = {
    "nothing": ExtrasConfig(),
    "gated norm": ExtrasConfig(gated_norm_rank=3),
    "exclude self": ExtrasConfig(exclude_self=True),
    "head gate": ExtrasConfig(head_gate=True),
    "half rope": ExtrasConfig(rope_share=0.5),
    "long and short": ExtrasConfig(long_short=LongShortConfig(2, 4)),
    "everything": EVERYTHING,
}
FAST_CASES = ("nothing", "everything")


def config_of(extras: ExtrasConfig, activation: str = "swiglu") -> MoeConfig:
    """Three layers, of which the pattern makes the second and the last long."""
    experts = ExpertsConfig(4, 8, shared_dim=8, activation=activation)  # type: ignore[arg-type]
    return tiny_moe(num_layers=3, hidden_dim=16, intermediate_dim=16, num_heads=4, extras=extras, experts=experts)


def array(named: NamedArray, *axes: str) -> np.ndarray:
    return np.asarray(named.rearrange(axes).array, np.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def normed(x: np.ndarray, norm, axis: str = "embed") -> np.ndarray:
    """A norm of the last axis, with its gate if it has one."""
    gated = hasattr(norm, "w_down")
    inner = norm.norm if gated else norm
    out = x / np.sqrt((x**2).mean(-1, keepdims=True) + inner.eps) * array(inner.weight, axis)
    if not gated:
        return out
    down = out @ array(norm.w_down, "embed", "gate_rank")
    return out * sigmoid(down * sigmoid(down) @ array(norm.w_up, "gate_rank", "embed"))


def rotated(x: np.ndarray, at: int, share: float, theta: float) -> np.ndarray:
    """One head at a position: pairs (i, i + half) of its first dimensions are turned."""
    size = round(share * len(x))
    half, out = size // 2, x.copy()
    for i in range(half):
        angle = at * theta ** (-2 * i / size)
        a, b = x[i], x[i + half]
        out[i], out[i + half] = a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)
    return out


def attended(x: np.ndarray, layer, config: MoeConfig, number: int) -> np.ndarray:
    """One sequence [S, D], query by query and head by head."""
    extras, of = config.extras, layer.attention
    w_q, w_k = array(of.w_q, "embed", "kv_heads", "q_group", "head_dim"), array(of.w_k, "embed", "kv_heads", "head_dim")
    w_v, w_o = array(of.w_v, "embed", "kv_heads", "head_dim"), array(of.w_o, "kv_heads", "q_group", "head_dim", "embed")
    rule, last = extras.long_short, config.num_layers - 1
    long = rule is None or number % rule.every == rule.every - 1 or number == last
    turn = partial(rotated, share=extras.rope_share, theta=config.rope_theta)
    out = np.zeros_like(x)
    for head in range(config.num_kv_heads):
        keys = [normed(row @ w_k[:, head], of.k_norm, "head_dim") for row in x]
        values = [row @ w_v[:, head] for row in x]
        for group in range(config.num_heads // config.num_kv_heads):
            for s, row in enumerate(x):
                query = normed(row @ w_q[:, head, group], of.q_norm, "head_dim")
                first = 0 if long else max(0, s - rule.window + 1)
                plain = rule is not None and long  # a long layer of the pattern has no rotations
                scores = [
                    (query if plain else turn(query, s)) @ (keys[t] if plain else turn(keys[t], t)) for t in range(first, s + 1)
                ]
                weights = np.exp(np.array(scores) / np.sqrt(config.head_size))
                read = sum(w * values[t] for w, t in zip(weights / weights.sum(), range(first, s + 1), strict=True))
                if extras.exclude_self:
                    own = values[s]
                    read = read - (read @ own) / (own @ own) * own
                if extras.head_gate:
                    read = read * 2 * sigmoid(row @ array(of.head_gate, "embed", "kv_heads", "q_group")[:, head, group])
                out[s] += read @ w_o[head, group]
    return out


def mixed(x: np.ndarray, experts, config: MoeConfig) -> np.ndarray:
    """The two best experts of every row, and the shared one."""

    def mlp(row: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        opened = row @ gate
        return ((opened * sigmoid(opened) if config.experts.activation == "swiglu" else opened) * (row @ up)) @ down

    gate, up = (array(w, "expert", "embed", "expert_mlp") for w in (experts.w_gate, experts.w_up))
    down, router = array(experts.w_down, "expert", "expert_mlp", "embed"), array(experts.router.weight, "embed", "choice")
    shared = experts.shared
    common = [array(shared.w_gate, "embed", "mlp"), array(shared.w_up, "embed", "mlp"), array(shared.w_down, "mlp", "embed")]
    out = np.stack([mlp(row, *common) for row in x])
    for s, row in enumerate(x):
        logits = row @ router
        for expert in np.argsort(-logits)[:2]:
            out[s] += sigmoid(logits[expert]) * mlp(row, gate[expert], up[expert], down[expert])
    return out


def obvious(model: Transformer, config: MoeConfig, tokens: np.ndarray) -> np.ndarray:
    """Hidden states of one sequence."""
    x = array(model.embedding, "vocab", "embed")[tokens]
    x = x if model.embedding_norm is None else normed(x, model.embedding_norm)
    for number in range(config.num_layers):
        is_named = lambda leaf: isinstance(leaf, NamedArray)  # noqa: E731
        layer = jax.tree.map(lambda leaf, n=number: leaf["layers", n], model.blocks.stacked, is_leaf=is_named)
        x = x + attended(normed(x, layer.attention_norm), layer, config, number)
        x = x + mixed(normed(x, layer.mlp_norm), layer.experts, config)
    return normed(x, model.norm)


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in FAST_CASES else pytest.mark.slow) for case in CASES])
def test_a_field_does_what_its_formula_says(case: str) -> None:
    activation = "bilinear" if case == "nothing" else "swiglu"
    config = replace(config_of(CASES[case], activation), initializer_range=0.3)
    model = noisy_model(config)
    bias = lambda m: m.blocks.stacked.experts.router.bias.array  # noqa: E731
    model = eqx.tree_at(bias, model, replace_fn=jnp.zeros_like)
    hidden = jax.jit(lambda m, t: m.hidden(t))(model, jnp.asarray(TOKENS))
    for ours, tokens in zip(hidden, TOKENS, strict=True):
        np.testing.assert_allclose(ours, obvious(model, config, tokens), atol=1e-4)


def test_fields_that_are_off_leave_the_program_of_plain_attention() -> None:
    """The operations and their order equal those of a decoder without such fields, so the bits are equal."""
    config = config_of(ExtrasConfig())
    ours = moe_attention(config, key=jax.random.PRNGKey(0))
    plain = Attention(ours.w_q, ours.w_k, ours.w_v, ours.w_o, ours.q_norm, ours.k_norm, config.rope_theta, None)
    x = hax.named(jnp.ones((2, 12, 16)), ("batch", "position", "embed"))
    compute = noisy_model(config).resolved(READING, 12, segmented=False)
    programs = [
        str(jax.make_jaxpr(lambda array, a=a: a(hax.named(array, x.axes), None, None, compute).array)(x.array))
        for a in (ours, plain)
    ]
    assert programs[0] == programs[1]
    changed = moe_attention(config_of(ExtrasConfig(exclude_self=True)), key=jax.random.PRNGKey(0))
    assert (
        str(jax.make_jaxpr(lambda array: changed(hax.named(array, x.axes), None, None, compute).array)(x.array)) != programs[0]
    )
