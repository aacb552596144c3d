"""Memory and FLOP plans from shapes equal those of real states, real steps and published formulas."""

from dataclasses import fields, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from tiny import tiny_model, tiny_spec
from tiny_models import quick_model

from trainer.footprint import footprint, forward_flops, kept_bytes
from trainer.model.transformer import Transformer
from trainer.objectives import next_token_loss
from trainer.spec.compute import ComputeConfig
from trainer.spec.decoder import DecoderConfig
from trainer.spec.mesh import Layout, MeshShape
from trainer.spec.models import ModelConfig
from trainer.spec.moe import ExpertsConfig, MoeConfig
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
MIXED = MoeConfig(
    **{
        **{field.name: getattr(MODEL, field.name) for field in fields(DecoderConfig)},
        "tie_embeddings": MODEL.tie_embeddings,
        "qk_norm": "none",
        "experts": ExpertsConfig(8, 16, shared_dim=64),
    }
)
MODELS: dict[str, ModelConfig] = {"dense": MODEL, "mixed": MIXED}


def real_model(model: ModelConfig = MODEL) -> Transformer:
    return quick_model(model)


@pytest.mark.parametrize("model", MODELS)
def test_state_is_counted_as_it_is_allocated(model: str) -> None:
    spec = replace(SPEC, model=MODELS[model])
    state = initial_step_state(spec, real_model(spec.model))
    counted = footprint(spec, MeshShape(), 1)
    allocated = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert counted.state_bytes == counted.device_state_bytes == allocated
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
    assert counted.parameters == parameters
    assert counted.device_gradient_bytes == 4 * parameters


def test_a_device_of_a_mesh_has_its_share_and_an_uneven_mesh_is_refused() -> None:
    one, eight = (footprint(replace(SPEC, model=MIXED), MeshShape(expert=n), n) for n in (1, 8))
    experts = 8 * MODEL.num_layers * 3 * MODEL.hidden_dim * MIXED.experts.dim
    assert eight.device_gradient_bytes == 4 * (experts // 8 + one.parameters - experts)
    assert eight.state_bytes == one.state_bytes
    assert eight.device_activation_bytes * 8 == one.device_activation_bytes, "rows are split over experts too"
    by_data = footprint(replace(SPEC, model=MIXED), MeshShape(data=8), 8)
    assert by_data.device_state_bytes < one.device_state_bytes / 7
    with pytest.raises(ValueError, match="divi"):
        footprint(replace(SPEC, model=MIXED), MeshShape(expert=3), 3)
    with pytest.raises(ValueError, match="8 sequences does not divide over 16"):
        footprint(SPEC, MeshShape(data=16), 16)


def test_the_axis_tensor_divides_heads_and_mlps_of_activations() -> None:
    """A device keeps what the model of half the heads and half the width keeps; the residual stream is whole on each."""
    half = replace(MODEL, num_heads=2, num_kv_heads=1, intermediate_dim=32, head_dim=MODEL.head_size)
    split = footprint(SPEC, MeshShape(tensor=2), 2)
    assert split.device_activation_bytes == footprint(replace(SPEC, model=half), MeshShape(), 1).device_activation_bytes
    none = replace(SPEC, compute=ComputeConfig())
    one, two = (footprint(none, MeshShape(tensor=n), n).device_activation_bytes for n in (1, 2))
    assert one / 2 < two < one


def test_flops_are_levanters_formula_but_for_the_softmax() -> None:
    per_token = MODEL.training_flops_per_token(SPEC.seq_len)
    softmax = 3.0 * MODEL.num_layers * 3 * SPEC.seq_len * MODEL.num_heads
    assert footprint(SPEC, MeshShape(), 1).flops_per_step == (per_token - softmax) * SPEC.step_tokens(0)


def test_flops_of_experts_are_those_that_a_token_meets() -> None:
    dense, mixed = (
        forward_flops(replace(SPEC, model=m), eqx.filter_eval_shape(lambda m=m: real_model(m))) for m in MODELS.values()
    )
    one = 2 * 3 * MODEL.hidden_dim * MIXED.experts.dim
    router = 2 * MODEL.hidden_dim * 8
    assert mixed - dense == SPEC.seq_len * MODEL.num_layers * (2 * one + router)
    counted = MIXED.training_flops_per_token(SPEC.seq_len) - MODEL.training_flops_per_token(SPEC.seq_len)
    assert counted * SPEC.seq_len == 3 * (mixed - dense)


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

    counted = kept_bytes(spec, eqx.filter_eval_shape(real_model), 2).activations
    assert counted == 2 * (kept(3) - kept(2))


def test_less_is_kept_the_more_is_made_again() -> None:
    shapes = eqx.filter_eval_shape(real_model)
    specs = [replace(SPEC, compute=ComputeConfig(remat=r)) for r in ("none", "named", "full")]  # type: ignore[arg-type]
    kept = [kept_bytes(spec, shapes, 1).activations for spec in specs]
    assert kept[0] > kept[1] > kept[2]
    assert kept[2] >= MODEL.num_layers * SPEC.seq_len * MODEL.hidden_dim * 4, "the input of every layer"


def test_a_mesh_for_experts_is_refused_for_a_dense_model() -> None:
    layout = Layout(jax.sharding.AbstractMesh((1, 1, 2, 1), ("slice", "data", "expert", "tensor")))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mesh\.expert is 2; it must be 1"):
        layout.check(SPEC)
