"""Memory and FLOP plans from shapes equal those of real states, real steps and published formulas."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_model, tiny_spec

from trainer.footprint import activation_bytes, footprint, forward_flops
from trainer.model.build import init_model
from trainer.model.experts import Experts, ExpertsConfig, with_experts
from trainer.model.transformer import Transformer
from trainer.objectives import next_token_loss
from trainer.spec.compute import ComputeConfig
from trainer.spec.mesh import Layout, MeshShape
from trainer.spec.schedules import WarmupStableDecay
from trainer.step import initial_step_state

MODEL = tiny_model(vocab_size=96, intermediate_dim=64, num_layers=3, max_seq_len=64)
SPEC = tiny_spec(
    name="planned",
    model=MODEL,
    schedule=WarmupStableDecay(1e-3, 2, 0.5),
    batch_size=8,
    seq_len=64,
    num_steps=4,
    compute=ComputeConfig(remat="full"),
)
EXPERTS = ExpertsConfig(num_experts=8, per_token=2, intermediate_dim=16)


def real_model(experts: ExpertsConfig | None = None) -> Transformer:
    key = jax.random.key(0)
    return init_model(MODEL, key=key) if experts is None else with_experts(MODEL, experts, key=key)


@pytest.mark.parametrize("experts", [None, EXPERTS])
def test_state_is_counted_as_it_is_allocated(experts: ExpertsConfig | None) -> None:
    state = initial_step_state(SPEC, real_model(experts))
    found = footprint(SPEC, MeshShape(), 1, experts)
    allocated = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert found.state_bytes == found.device_state_bytes == allocated
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
    assert found.parameters == parameters
    assert found.device_gradient_bytes == 4 * parameters


def test_a_device_of_a_mesh_has_its_share_and_an_uneven_mesh_is_refused() -> None:
    one, eight = (footprint(SPEC, MeshShape(expert=n), n, EXPERTS) for n in (1, 8))
    experts = EXPERTS.num_experts * MODEL.num_layers * 3 * MODEL.hidden_dim * EXPERTS.intermediate_dim
    router = MODEL.num_layers * MODEL.hidden_dim * EXPERTS.num_experts
    rest = one.parameters - experts - router
    assert eight.device_gradient_bytes == 4 * (experts // 8 + router // 8 + rest)
    assert eight.state_bytes == one.state_bytes
    assert eight.device_activation_bytes * 8 == one.device_activation_bytes, "rows are split over experts too"
    by_data = footprint(SPEC, MeshShape(data=8), 8, EXPERTS)
    assert by_data.device_state_bytes < one.device_state_bytes / 7
    with pytest.raises(ValueError, match="divi"):
        footprint(SPEC, MeshShape(expert=3), 3, EXPERTS)
    with pytest.raises(ValueError, match="8 sequences does not divide over 16"):
        footprint(SPEC, MeshShape(data=16), 16)


def test_flops_are_levanters_formula_but_for_the_softmax() -> None:
    per_token = MODEL.training_flops_per_token(SPEC.seq_len)
    softmax = 3.0 * MODEL.num_layers * 3 * SPEC.seq_len * MODEL.num_heads
    assert footprint(SPEC, MeshShape(), 1).flops_per_step == (per_token - softmax) * SPEC.step_tokens(0)


def test_flops_of_experts_are_those_that_a_token_meets() -> None:
    dense, mixed = (forward_flops(SPEC, eqx.filter_eval_shape(lambda e=e: real_model(e))) for e in (None, EXPERTS))
    one = 2 * 3 * MODEL.hidden_dim * EXPERTS.intermediate_dim
    router = 2 * MODEL.hidden_dim * EXPERTS.num_experts
    assert mixed - dense == SPEC.seq_len * MODEL.num_layers * (EXPERTS.per_token * one + router)


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["none", "named", "full"])
def test_activations_are_what_backward_keeps(remat: str) -> None:
    """Of a real backward function: its arrays that grow with the rows."""
    spec = replace(SPEC, compute=ComputeConfig(remat=remat, attention="blocked"))  # type: ignore[arg-type]
    model = real_model()
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    compute = replace(model.resolved(spec.compute, spec.seq_len, segmented=False), by_rows=False)  # as accelerators do

    def kept(rows: int) -> int:
        tokens = jnp.zeros((rows, spec.seq_len), jnp.int32)
        objective = lambda p: next_token_loss(eqx.combine(p, static), tokens, 0.0, compute=compute)[0]  # noqa: E731
        arrays = {id(leaf): leaf.nbytes for leaf in jax.tree.leaves(jax.vjp(objective, parameters)[1])}
        return sum(arrays.values())

    counted = activation_bytes(spec, eqx.filter_eval_shape(real_model), 2)
    assert counted == 2 * (kept(3) - kept(2))


def test_less_is_kept_the_more_is_made_again() -> None:
    shapes = eqx.filter_eval_shape(real_model)
    kept = [activation_bytes(replace(SPEC, compute=ComputeConfig(remat=r)), shapes, 1) for r in ("none", "named", "full")]  # type: ignore[arg-type]
    assert kept[0] > kept[1] > kept[2]
    assert kept[2] >= MODEL.num_layers * SPEC.seq_len * MODEL.hidden_dim * 4, "the input of every layer"


def test_experts_compute_what_a_loop_over_tokens_does() -> None:
    experts = Experts.init(MODEL, EXPERTS, key=jax.random.key(1))
    x = np.random.default_rng(0).normal(size=(11, MODEL.hidden_dim)).astype(np.float32)
    router, w_gate, w_up, w_down = (np.asarray(w.array) for w in (experts.router, experts.w_gate, experts.w_up, experts.w_down))
    expected = np.zeros_like(x)
    for row, token in enumerate(x):
        logits = token @ router
        for chosen in np.argsort(-logits)[: EXPERTS.per_token]:
            gate = token @ w_gate[chosen]
            wide = gate / (1 + np.exp(-gate)) * (token @ w_up[chosen])
            expected[row] += (wide @ w_down[chosen]) / (1 + np.exp(-logits[chosen]))
    np.testing.assert_allclose(experts.of_rows(jnp.asarray(x)), expected, atol=1e-6, rtol=1e-4)


def test_a_run_spec_has_no_experts_so_a_mesh_for_them_is_refused() -> None:
    layout = Layout(jax.sharding.AbstractMesh((1, 1, 2, 1), ("slice", "data", "expert", "tensor")))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mesh\.expert is 2; it must be 1"):
        layout.check(SPEC)
