"""Mixtures of experts: the layer equals a loop over experts in float64, and every use of a model runs the same experts."""

from dataclasses import replace
from functools import cache

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_spec
from tiny_models import quick_model
from tiny_moe import EVERYTHING, tiny_moe

from lineage.config import from_jsonable, to_jsonable
from trainer.batch import Batch
from trainer.model.build import model_shapes
from trainer.model.expert_parallel import capacity_of
from trainer.model.expert_products import ExpertWeights, experts_output, ranks
from trainer.model.parts import parameters_of, parted
from trainer.model.router import Router
from trainer.optimizers.groups import groups
from trainer.scoring import Scorer
from trainer.spec.compute import ENGINES, ComputeConfig, Work, resolve
from trainer.spec.models import ModelConfig
from trainer.spec.moe import ExpertsConfig, ExtrasConfig, MoeConfig, RouterConfig
from trainer.spec.optimizers import EmaConfig, SkipBadStepsConfig
from trainer.step import StepFunction, compiled_step, initial_step_state

N, D, E, F, K = 37, 12, 6, 10, 3
TOKENS = np.random.default_rng(0).integers(0, 64, (4, 16)).astype(np.int32)


def layer(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, ExpertWeights]:
    """Rows, ids (the last expert is never chosen), shares and matrices, in float64."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(E - 1)[:K] for _ in range(N)])
    matrices = [rng.normal(size=shape) * 0.3 for shape in ((E, D, F), (E, D, F), (E, F, D))]
    return rng.normal(size=(N, D)), ids, rng.uniform(0.1, 1, size=(N, K)), ExpertWeights(*matrices)


def looped(x, ids, shares, weights, activation, capacity=None):
    """The sum over experts, one after another, of all rows that chose it: the obvious form."""
    out = jnp.zeros_like(x)
    for expert in range(E):
        chosen = np.argwhere(ids == expert)[:capacity]
        rows = x[chosen[:, 0]]
        gate, up = rows @ weights.gate[expert], rows @ weights.up[expert]
        inner = up * (gate / (1 + jnp.exp(-gate)) if activation == "swiglu" else gate)
        out = out.at[chosen[:, 0]].add(shares[chosen[:, 0], chosen[:, 1], None] * (inner @ weights.down[expert]))
    return out


@pytest.mark.parametrize(
    ("activation", "capacity"),
    [
        ("swiglu", 14),
        ("bilinear", None),
        pytest.param("swiglu", None, marks=pytest.mark.slow),
        pytest.param("bilinear", 14, marks=pytest.mark.slow),
    ],
)
def test_every_engine_and_its_gradient_are_those_of_a_loop_in_float64(activation: str, capacity: int | None) -> None:
    x, ids, shares, weights = layer()
    pull = np.random.default_rng(1).normal(size=(N, D))

    def gradients(of, *arguments):
        pulled = lambda x, s, w: jnp.sum(of(x, s, w) * jnp.asarray(pull, x.dtype))  # noqa: E731
        return jax.jit(jax.value_and_grad(pulled, argnums=(0, 1, 2)))(*arguments)

    with jax.enable_x64(True):
        wide = jax.tree.map(jnp.asarray, (x, shares, weights))
        wanted = jax.tree.map(np.asarray, gradients(lambda x, s, w: looped(x, ids, s, w, activation, capacity), *wide))
    narrow = jax.tree.map(lambda each: jnp.asarray(each, jnp.float32), (x, shares, weights))
    for engine in (each for each in ENGINES if each != "hopper"):  # which `benchmarks/gpu.py` compares on its GPU
        of = lambda x, s, w, engine=engine: experts_output(x, jnp.asarray(ids), s, w, engine, activation, capacity)  # noqa: E731
        narrow_gradients = gradients(of, *narrow)
        for ours, theirs in zip(jax.tree.leaves(narrow_gradients), jax.tree.leaves(wanted), strict=True):
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * scale, err_msg=engine)


def test_ranks_count_earlier_assignments_of_the_same_expert() -> None:
    ids = np.random.default_rng(0).integers(0, 5, (20, 2))
    seen, wanted = np.zeros(5, int), np.zeros_like(ids)
    for at, expert in np.ndenumerate(ids):
        wanted[at] = seen[expert]
        seen[expert] += 1
    np.testing.assert_array_equal(ranks(jnp.asarray(ids), 5), wanted)


@pytest.mark.parametrize("bias_on", ["logits", "scores"])
@pytest.mark.parametrize(("score", "renormalize"), [("sigmoid", False), ("sigmoid", True), ("softmax", True)])
def test_a_router_chooses_by_biased_values_and_weighs_by_unbiased_scores(score, renormalize, bias_on) -> None:
    config = RouterConfig(2, score=score, bias_on=bias_on, renormalize=renormalize, scale=2.5)
    rng = np.random.default_rng(3)
    router = Router.init(hax.Axis("embed", D), E, config, 1.0, key=jax.random.key(0))
    router = eqx.tree_at(lambda r: r.bias.array, router, jnp.asarray(rng.normal(size=E), jnp.float32))
    x = rng.normal(size=(N, D)).astype(np.float32)
    choice, watched = router(jnp.asarray(x), watched=True)
    assert watched is not None and int(watched.loads.sum()) == 2 * N and (watched.margins.sum(axis=1) == N).all()
    logits = x.astype(np.float64) @ np.asarray(router.weight.array, np.float64)
    raw = np.exp(logits)
    scores = 1 / (1 + 1 / raw) if score == "sigmoid" else raw / raw.sum(axis=1, keepdims=True)
    values = (logits if bias_on == "logits" else scores) + np.asarray(router.bias.array)
    for row in range(N):
        chosen = np.argsort(-values[row])[:2]
        shares = scores[row, chosen] / (scores[row, chosen].sum() if renormalize else 1)
        np.testing.assert_array_equal(choice.ids[row], chosen)
        np.testing.assert_allclose(choice.shares[row], 2.5 * shares, rtol=1e-5)


def test_the_bias_has_no_gradient_and_is_no_parameter() -> None:
    config = tiny_moe()
    model = quick_model(config)
    parameters, state, _ = parted(model)
    assert sum(leaf.size for leaf in jax.tree.leaves(parameters)) == config.num_parameters
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == [(2, 8)]
    assert set(jax.tree.leaves(groups(model))) == {"embedding", "head", "norm", "matrix", "expert", "router"}
    moved = jax.jit(jax.grad(lambda s: jnp.sum(eqx.combine(parameters, s, parted(model)[2]).hidden(jnp.asarray(TOKENS)))))(
        state
    )
    assert not np.any(jax.tree.leaves(moved)[0])


@pytest.mark.parametrize(
    "model",
    [tiny_moe(), pytest.param(tiny_moe(num_layers=5, dense_layers=1, extras=EVERYTHING), marks=pytest.mark.slow)],
)
def test_decoding_and_trees_give_the_hidden_states_of_the_whole_row(model: MoeConfig) -> None:
    made = quick_model(model)
    bias = 0.3 * jax.random.normal(jax.random.key(1), (model.num_expert_layers, 8))
    made = eqx.tree_at(lambda m: m.blocks.stacked.experts.router.bias.array, made, bias)
    whole = eqx.filter_jit(lambda m, tokens: m.hidden(tokens))(made, TOKENS)
    extend, parts = eqx.filter_jit(lambda m, *state: m.decoder().extend(*state)), []
    cache = made.decoder().empty_cache(4, 16)
    for first, last in ((0, 7), (7, 8), (8, 16)):
        cache, out = extend(made, cache, jnp.asarray(TOKENS[:, first:last]), jnp.full(4, first))
        parts.append(np.asarray(out))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=2e-5)
    in_tree = eqx.filter_jit(lambda m, *row: m.hidden_in_tree(*row))
    tree = in_tree(made, TOKENS[0], np.arange(16), np.tril(np.ones((16, 16), bool)))
    np.testing.assert_allclose(tree, whole[0], atol=2e-5)


def test_scores_do_not_depend_on_neighbours_even_where_training_drops_tokens() -> None:
    config = tiny_moe(experts=ExpertsConfig(8, 24, capacity_factor=0.5))
    scorer = Scorer(quick_model(config), 16, 64, 0)
    alone = [scorer.token_nll([row])[0] for row in TOKENS]
    for one, among in zip(alone, scorer.token_nll(list(TOKENS)), strict=True):
        np.testing.assert_allclose(one, among, atol=1e-5)


@pytest.mark.slow
def test_layers_scanned_by_periods_equal_layers_one_by_one() -> None:
    model = tiny_moe(
        num_layers=6, dense_layers=1, extras=replace(EVERYTHING, long_short=replace(EVERYTHING.long_short, every=2))
    )
    losses = []
    for how in (ComputeConfig(layers="scan"), ComputeConfig(layers="unrolled"), ComputeConfig(layers="scan", remat="full")):
        spec = tiny_spec(model=model, compute=how)
        made = quick_model(model)
        _, metrics = compiled_step(spec, made)(initial_step_state(spec, made), Batch(TOKENS), 5)
        losses.append((float(metrics.loss), float(metrics.grad_norm), np.asarray(metrics.router.loads).tolist()))
    for other in losses[1:]:
        assert other[2] == losses[0][2]
        np.testing.assert_allclose(other[:2], losses[0][:2], rtol=1e-5)


@pytest.mark.slow
def test_microbatches_add_loads_and_give_the_bias_of_the_whole_batch() -> None:
    router = RouterConfig(2, z_loss_weight=0.1, balance_loss_weight=0.1)
    runs = []
    for size in (None, 2, 1):
        spec = tiny_spec(model=tiny_moe(router=router), microbatch_size=size)
        made = quick_model(spec.model)
        state, metrics = compiled_step(spec, made)(initial_step_state(spec, made), Batch(TOKENS), 3)
        runs.append((state, metrics))
    (whole, first), *rest = runs
    assert int(first.router.loads.sum()) == 2 * 2 * TOKENS.size
    for state, metrics in rest:
        np.testing.assert_array_equal(metrics.router.loads, first.router.loads)
        np.testing.assert_array_equal(*(jax.tree.leaves(each.router)[0] for each in (state, whole)))
        np.testing.assert_allclose(metrics.grad_norm, first.grad_norm, rtol=1e-5)


STEPPED = tiny_spec(
    model=tiny_moe(num_layers=1, experts=ExpertsConfig(8, 24, capacity_factor=0.5)),
    skip_bad_steps=SkipBadStepsConfig(),
    ema=EmaConfig(),
)


@cache
def step_of_stepped() -> StepFunction:
    return compiled_step(STEPPED, quick_model(STEPPED.model))


def test_a_skipped_step_leaves_the_bias_and_neither_average_nor_decay_moves_it() -> None:
    state = initial_step_state(STEPPED, quick_model(STEPPED.model))
    state, _ = step_of_stepped()(state, Batch(TOKENS), 0)
    bias = np.asarray(jax.tree.leaves(state.router)[0])
    assert np.abs(bias).max() > 0
    assert not jax.tree.leaves(parted(state.ema)[1])
    broken = eqx.tree_at(lambda p: p.embedding.array, state.parameters, replace_fn=lambda e: e.at[0].set(np.inf))
    state, metrics = step_of_stepped()(state._replace(parameters=broken), Batch(np.zeros_like(TOKENS)), 1)
    assert bool(metrics.skipped)
    np.testing.assert_array_equal(jax.tree.leaves(state.router)[0], bias)


def test_dropped_assignments_are_counted() -> None:
    _, metrics = step_of_stepped()(initial_step_state(STEPPED, quick_model(STEPPED.model)), Batch(TOKENS), 0)
    capacity = capacity_of(TOKENS.size, 2, 8, 0.5)
    assert capacity == 8
    np.testing.assert_array_equal(
        metrics.router.dropped, np.maximum(np.asarray(metrics.router.loads) - capacity, 0).sum(axis=1)
    )
    assert (metrics.router.dropped > 0).all()


def test_counts_of_parameters_and_flops() -> None:
    config = tiny_moe(num_layers=3, dense_layers=1, extras=EVERYTHING)
    assert sum(leaf.size for leaf in jax.tree.leaves(parameters_of(model_shapes(config)))) == config.num_parameters
    one_expert = 3 * 32 * 24 * config.num_expert_layers
    assert config.num_parameters - config.active_parameters == 6 * one_expert
    counts = config.training_flops_per_token(16), config.total_flops_per_token(16), config.capacity_flops_per_token(16)
    assert counts[1] - counts[0] == 3 * 2 * 6 * one_expert and counts[2] == counts[0]
    full = replace(config, experts=replace(config.experts, capacity_factor=2.0))
    assert full.capacity_flops_per_token(16) - counts[0] == 3 * 2 * 2 * one_expert


def test_a_config_survives_its_record_and_a_bad_one_is_refused_by_name() -> None:
    config = tiny_moe(extras=EVERYTHING)
    assert from_jsonable(ModelConfig, to_jsonable(config)) == config  # type: ignore[arg-type]
    for change, message in (
        ({"router": RouterConfig(9)}, "model.router.per_token is 9; it must be at most model.experts.count, 8"),
        ({"dense_layers": 2}, "model.dense_layers is 2"),
        ({"extras": ExtrasConfig(rope_share=0.3)}, "model.extras.rope_share is 0.3"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny_moe(**change)
    with pytest.raises(ValueError, match="capacity_factor is 0"):
        ExpertsConfig(8, 24, capacity_factor=0)


@pytest.mark.parametrize(
    ("capability", "dtype", "widths", "engine", "note"),
    [
        ("9.0", "bfloat16", (768, 1088), "hopper", "experts hopper: auto requested"),
        ("8.0", "bfloat16", (768, 1088), "ragged", "hopper is out, it needs a Hopper GPU, here is gpu 8.0"),
        ("9.0", "float32", (768, 1088), "ragged", "it computes in bfloat16, compute.dtype is float32"),
        ("9.0", "bfloat16", (768, 1000), "ragged", "widths 768 and 1000, it takes multiples of 64"),
    ],
)
def test_a_gpu_takes_the_kernels_of_hopper_where_they_fit(
    capability: str, dtype: str, widths: tuple[int, int], engine: str, note: str
) -> None:
    work = Work(1024, 64, experts=widths)
    chosen = resolve(ComputeConfig(dtype=dtype), "gpu", work, capability)  # pyrefly: ignore
    assert chosen.experts == engine and note in chosen.record()["notes"]
    asked = ComputeConfig(dtype=dtype, experts="hopper", strict=True)  # pyrefly: ignore
    if engine == "ragged":
        with pytest.raises(ValueError, match="'hopper' is unavailable"):
            resolve(asked, "gpu", work, capability)


def test_a_cpu_names_its_engine_and_a_strict_run_refuses_another() -> None:
    made = quick_model(tiny_moe())
    resolved = made.resolved(ComputeConfig(), 16, segmented=False)
    assert resolved.experts == "tiled" and resolved.record()["experts"] == "tiled"
    with pytest.raises(ValueError, match="multiplies every row by every expert"):
        made.resolved(ComputeConfig(experts="ragged", strict=True), 16, segmented=False)
