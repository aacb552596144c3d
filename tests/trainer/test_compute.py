"""Compute settings on a machine: the choice and the refusal are explained, and the model stays the same."""

import logging
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import tiny_model
from tiny_models import quick_model

from lineage.config import to_jsonable
from recipes.smoke import smoke_spec
from trainer.footprint import product_flops
from trainer.model.transformer import Transformer
from trainer.objectives import next_token_loss
from trainer.spec.compute import ComputeConfig, Work, resolve

WORK = Work(seq_len=256, head_dim=64)
MODEL = tiny_model()
TOKENS = np.random.default_rng(0).integers(0, 64, (4, 16)).astype(np.int32)


@pytest.mark.parametrize(
    ("platform", "config", "work", "backend", "note"),
    [
        ("cpu", ComputeConfig(), WORK, "blocked", "the choice for cpu"),
        ("tpu", ComputeConfig(dtype="bfloat16"), WORK, "splash", "the choice for tpu"),
        ("tpu", ComputeConfig(), Work(100, 64), "blocked", "splash is out, rows of 100 tokens"),
        ("gpu", ComputeConfig(dtype="bfloat16"), WORK, "cudnn", "the choice for gpu"),
        ("gpu", ComputeConfig(), WORK, "blocked", "compute.dtype is float32"),
        ("gpu", ComputeConfig(dtype="bfloat16"), Work(256, 64, segmented=True), "blocked", "segment ids"),
        ("gpu", ComputeConfig(dtype="bfloat16"), Work(256, 160), "blocked", "heads of 160"),
        ("cpu", ComputeConfig(attention="xla"), WORK, "xla", "as requested"),
    ],
)
def test_the_choice_is_said(platform: str, config: ComputeConfig, work: Work, backend: str, note: str) -> None:
    chosen = resolve(config, platform, work)
    assert chosen.attention == backend
    assert note in chosen.record()["notes"]


def test_a_few_layers_are_unrolled_where_a_cpu_trains_them() -> None:
    cases = [("cpu", "auto", 8), ("cpu", "auto", 9), ("gpu", "auto", 2), ("cpu", "scan", 2), ("gpu", "unrolled", 99)]
    chosen = [resolve(ComputeConfig(layers=layers), where, replace(WORK, num_layers=n)).unrolled for where, layers, n in cases]
    assert chosen == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("settings", "note"),
    [({"attention": "cudnn"}, "compute.attention 'cudnn' is unavailable (it needs a GPU, here is cpu)"),
     ({"attention": "splash"}, "it needs a TPU, here is cpu"), ({"remat": "offload"}, "a CPU has no second memory")],
)  # fmt: skip
def test_a_miss_is_loud_and_an_error_under_strict(settings: dict, note: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chosen = resolve(ComputeConfig(**settings), "cpu", WORK)
    assert note in caplog.text
    assert "unavailable" in chosen.record()["notes"]
    with pytest.raises(ValueError, match=r"compute\.strict=True forbids") as error:
        resolve(ComputeConfig(**settings, strict=True), "cpu", WORK)
    assert note in str(error.value)


@pytest.mark.parametrize("change", [{"dtype": "float16"}, {"attention": "flash"}, {"remat": "some"}, {"layers": "fold"}])
def test_a_bad_field_is_named(change: dict) -> None:
    with pytest.raises(ValueError, match=rf"compute\.{next(iter(change))} is '{next(iter(change.values()))}'; it must be"):
        ComputeConfig(**change)


def test_a_run_that_says_nothing_keeps_its_identity() -> None:
    assert "compute" not in to_jsonable(smoke_spec(8192))


@cache
def model_of_tests() -> Transformer:
    return quick_model(MODEL, 1)


def objective_and_gradient(config: ComputeConfig, **otherwise: object) -> tuple[float, list[np.ndarray]]:
    """`otherwise`: what is not as it was resolved."""
    model = model_of_tests()
    dynamic, static = eqx.partition(model, eqx.is_inexact_array)
    compute = replace(model.resolved(config, 16, segmented=False), **otherwise)  # type: ignore[arg-type]
    gradient = jax.jit(
        jax.value_and_grad(
            lambda p: next_token_loss(eqx.combine(p, static), jnp.asarray(TOKENS), 1e-4, compute=compute), has_aux=True
        )
    )
    (value, _), gradients = gradient(dynamic)
    return float(value), [np.asarray(leaf) for leaf in jax.tree.leaves(gradients)]


@pytest.fixture(scope="module")
def plain() -> tuple[float, list[np.ndarray]]:
    """As one writes it: all scores at once, products of named arrays, gradients by JAX."""
    return objective_and_gradient(ComputeConfig(attention="reference"), by_rows=False)


@pytest.mark.parametrize(
    "config",
    [
        ComputeConfig(),
        ComputeConfig(remat="full", layers="unrolled"),
        ComputeConfig(remat="named", attention="xla"),
    ],
    ids=lambda config: f"{config.attention}-{config.remat}-{config.layers}",
)
def test_no_choice_changes_the_model(config: ComputeConfig, plain: tuple[float, list[np.ndarray]]) -> None:
    value, gradients = objective_and_gradient(config)
    assert value == pytest.approx(plain[0], rel=1e-6)
    for gradient, wanted in zip(gradients, plain[1], strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_offload_computes_the_same_where_nothing_is_moved(plain: tuple[float, list[np.ndarray]]) -> None:
    """A CPU runs its program without the moves (`resolve` would take `full` and report it). test_attention checks that
    accelerators move a layer's input to the host and back.
    """
    value, gradients = objective_and_gradient(ComputeConfig(), remat="offload")
    assert value == pytest.approx(plain[0], rel=1e-6)
    for gradient, wanted in zip(gradients, plain[1], strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_bfloat16_moves_float32_parameters(plain: tuple[float, list[np.ndarray]]) -> None:
    """Gradients are float32, near those of float32, and not the same: the products were narrow."""
    value, gradients = objective_and_gradient(ComputeConfig(dtype="bfloat16"))
    assert value == pytest.approx(plain[0], rel=2e-3)
    for gradient, wanted in zip(gradients, plain[1], strict=True):
        assert gradient.dtype == np.float32
        assert np.linalg.norm(gradient - wanted) < 0.05 * np.linalg.norm(wanted)
    assert any((gradient != wanted).any() for gradient, wanted in zip(gradients, plain[1], strict=True))


def test_recomputing_keeps_less() -> None:
    """Bytes that XLA says the backward pass needs: a layer's input alone, that with the named products, everything."""

    def held(remat: str) -> int:
        model = model_of_tests()
        dynamic, static = eqx.partition(model, eqx.is_inexact_array)
        compute = model.resolved(ComputeConfig(remat=remat), 16, segmented=False)
        _, pull = jax.eval_shape(
            lambda p: jax.vjp(
                lambda p: next_token_loss(eqx.combine(p, static), jnp.asarray(TOKENS), 0.0, compute=compute)[0], p
            ),
            dynamic,
        )
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pull))

    assert held("full") < held("named") < held("none")


@pytest.mark.parametrize("by_rows", [True, False], ids=["rows", "named products"])
@pytest.mark.parametrize("attention", ["blocked", "reference", "xla"])
def test_named_makes_the_projections_of_attention_again_and_no_other_product(attention: str, by_rows: bool) -> None:
    """FLOPs of the traced gradient. Scores are made again where the back-end keeps no denominators; the kernels of
    accelerators are counted in test_attention."""
    model = model_of_tests()
    dynamic, static = eqx.partition(model, eqx.is_inexact_array)

    def flops(remat: str) -> float:
        config = ComputeConfig(attention=attention, remat=remat)  # type: ignore[arg-type]
        compute = replace(model.resolved(config, 16, segmented=False), by_rows=by_rows)
        objective = lambda p: next_token_loss(eqx.combine(p, static), jnp.asarray(TOKENS), 0.0, compute=compute)[0]  # noqa: E731
        return product_flops(jax.make_jaxpr(jax.grad(objective))(dynamic))

    rows, d, heads, kv, size = TOKENS.size, 32, 4, 2, 8
    projections = 2 * rows * d * (2 * heads + 2 * kv) * size
    scores = 0 if attention == "blocked" else 2 * rows * 16 * heads * size
    assert flops("named") - flops("none") == MODEL.num_layers * (projections + scores)
    assert flops("full") > flops("named")
