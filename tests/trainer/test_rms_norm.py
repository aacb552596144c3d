"""RMS norm with a hand-written gradient: its float64 formula and its saved residuals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import differences

from trainer.model.rms_norm import rms_norm

EPS = 1e-5


def plain(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPS) * weight


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 4), (2, 2, 1, 2, 6)], ids=["rows", "positions", "heads"])
def test_values_and_gradients_are_those_of_the_formula(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    values = [random.normal(size=shape).astype(np.float32), random.normal(size=shape[-1:]).astype(np.float32)]
    toward = random.normal(size=shape).astype(np.float32)
    actual = jax.jit(lambda *v: rms_norm(*v, EPS))(*values)
    np.testing.assert_allclose(actual, plain(*(v.astype(np.float64) for v in values)), rtol=1e-5, atol=1e-6)
    gradients = jax.jit(jax.grad(lambda *v: (rms_norm(*v, EPS) * toward).sum(), argnums=(0, 1)))(*values)
    for gradient, wanted in zip(gradients, differences(lambda *v: (plain(*v) * toward).sum(), values), strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_a_half_precision_row_is_normed_in_float32() -> None:
    x = jnp.full((1, 4096), 300.0, jnp.bfloat16).at[0, 0].set(1.0)
    normed = rms_norm(x, jnp.ones(4096), EPS)
    assert normed.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(normed[0, 1:], np.float32), 1.0, rtol=2**-8)  # a sum of bfloat16 would be half of it


def test_the_way_back_keeps_the_input_once() -> None:
    x, weight = jnp.ones((64, 32)), jnp.ones(32)
    _, backward = jax.vjp(lambda x, weight: rms_norm(x, weight, EPS), x, weight)
    kept = sorted(leaf.size for leaf in jax.tree.leaves(backward) if isinstance(leaf, jax.Array))
    assert kept == [32, 64, 64 * 32]
