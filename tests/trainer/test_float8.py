"""Products in float8 against numpy with ml_dtypes' rounding, in a model, and where they are refused."""

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from haliax import Axis
from tiny import tiny_model
from tiny_models import quick_model

from trainer.model.float8 import float8_dot
from trainer.objectives import next_token_loss
from trainer.spec.compute import ComputeConfig, Work, resolve

ROW, IN, OUT = Axis("row", 12), Axis("in", 16), Axis("out", 8)
WORK = Work(seq_len=256, head_dim=64)


def rounded(array: np.ndarray, dtype: type) -> np.ndarray:
    """The nearest numbers of a type after scaling by the largest element, in float64."""
    scale = np.float32(np.abs(array).max()) / np.float32(ml_dtypes.finfo(dtype).max)
    return (array.astype(np.float32) / scale).astype(dtype).astype(np.float64) * np.float64(scale)


def test_product_and_gradients_are_those_of_rounded_sides() -> None:
    random = np.random.default_rng(0)
    x, weight, toward = (
        random.normal(size=shape).astype(np.float32) * scale
        for shape, scale in (((12, 16), 3), ((16, 8), 0.02), ((12, 8), 1e-6))
    )

    def pulled(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = float8_dot(hax.named(x, (ROW, IN)), hax.named(weight, (IN, OUT)), ("in",)).array
        return jnp.sum(out * toward), out

    (_, out), grads = jax.jit(jax.value_and_grad(pulled, (0, 1), has_aux=True))(x, weight)
    narrow, narrow_weight = rounded(x, ml_dtypes.float8_e4m3fn), rounded(weight, ml_dtypes.float8_e4m3fn)
    narrow_toward = rounded(toward, ml_dtypes.float8_e5m2)
    wanted = narrow @ narrow_weight, narrow_toward @ narrow_weight.T, narrow.T @ narrow_toward
    for ours, theirs in zip((out, *grads), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())
    assert 0 < np.abs(out - x @ weight).max() < 0.1 * np.abs(x @ weight).max()


def test_zeros_have_a_product() -> None:
    out = float8_dot(hax.zeros((ROW, IN)), hax.ones((IN, OUT)), ("in",))
    np.testing.assert_array_equal(out.array, 0.0)


def test_a_model_has_nearly_the_loss_and_gradient_of_bfloat16() -> None:
    model = quick_model(tiny_model(), 1)
    tokens = np.random.default_rng(0).integers(0, 64, (4, 16)).astype(np.int32)

    def of(float8: bool) -> tuple[float, np.ndarray]:
        compute = model.resolved(ComputeConfig("bfloat16", float8=float8), 16, segmented=False)
        loss = eqx.filter_jit(eqx.filter_value_and_grad(lambda model: next_token_loss(model, tokens, 0.0, compute=compute)[0]))
        value, gradient = loss(model)
        return float(value), np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])

    (wide, wide_gradient), (narrow, narrow_gradient) = of(float8=False), of(float8=True)
    assert narrow != wide and narrow == pytest.approx(wide, rel=0.02)
    cosine = narrow_gradient @ wide_gradient / np.linalg.norm(narrow_gradient) / np.linalg.norm(wide_gradient)
    assert cosine > 0.97


def test_float8_is_refused_where_no_device_has_it() -> None:
    for platform, capability in (("gpu", "8.0"), ("gpu", None), ("tpu", None)):
        with pytest.raises(ValueError, match=r"compute\.float8 is unavailable \(it needs a GPU of compute capability 8\.9"):
            resolve(ComputeConfig("bfloat16", float8=True, strict=True), platform, WORK, capability)
    for capability in ("8.9", "9.0", "10.0"):
        assert resolve(ComputeConfig("bfloat16", float8=True, strict=True), "gpu", WORK, capability).record()["float8"] is True
    with pytest.raises(ValueError, match=r"compute\.float8 is True; it must be false with compute\.dtype float32"):
        ComputeConfig(float8=True)
