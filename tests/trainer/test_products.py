"""Matrix products with hand-written gradients against plain formulas in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import differences

from trainer.model.products import TILE_ROWS, products, swiglu

RANDOM = np.random.default_rng(0)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RANDOM.normal(size=shape).astype(np.float32) for shape in shapes]


def plain_swiglu(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    opened = x @ gate
    return (opened / (1 + np.exp(-opened)) * (x @ up)) @ down


@pytest.mark.parametrize("outputs", [(7, 3), (2,), (4, 4, 9)], ids=["both", "narrow", "wide"])
def test_products_are_plain_products(outputs: tuple[int, ...]) -> None:
    x, *weights = arrays((6, 4), *((4, size) for size in outputs))
    toward = arrays(*((6, size) for size in outputs))
    for actual, weight in zip(jax.jit(products)(x, tuple(weights)), weights, strict=True):
        np.testing.assert_allclose(actual, x.astype(np.float64) @ weight, rtol=1e-5, atol=1e-5)

    def objective(x, *weights):
        return sum((x @ w * t).sum() for w, t in zip(weights, toward, strict=True))

    def ours(x, *weights):
        return sum((made * t).sum() for made, t in zip(products(x, weights), toward, strict=True))

    gradients = jax.jit(jax.grad(ours, argnums=tuple(range(1 + len(weights)))))(x, *weights)
    for actual, wanted in zip(gradients, differences(objective, [x, *weights]), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


# Of the tiles' 768 values one is .002, left of terms up to 10 that cancel: their rounding is 1e-6 at most.
@pytest.mark.parametrize(("rows", "rounding"), [(5, 0.0), (TILE_ROWS // 8 * 3, 1e-6)], ids=["whole", "tiles"])
def test_swiglu_is_its_formula(rows: int, rounding: float) -> None:
    values = arrays((rows, 4), (4, 6), (4, 6), (6, 4))
    toward = arrays((rows, 4))[0]
    wanted = plain_swiglu(*(value.astype(np.float64) for value in values))
    np.testing.assert_allclose(jax.jit(swiglu)(*values), wanted, rtol=1e-4, atol=rounding)
    gradients = jax.jit(jax.grad(lambda *v: (swiglu(*v) * toward).sum(), argnums=(0, 1, 2, 3)))(*values)
    slowly = differences(lambda *v: (plain_swiglu(*v) * toward).sum(), values)
    for gradient, want in zip(gradients, slowly, strict=True):
        np.testing.assert_allclose(gradient, want, rtol=1e-4, atol=1e-4)


def test_gradients_over_hundreds_of_tiles_lose_none_in_bfloat16() -> None:
    tile, many = (jnp.ones((count * TILE_ROWS, 2), jnp.bfloat16) for count in (1, 300))
    weights = tuple(jnp.full((2, 2), size, jnp.bfloat16) for size in (0.5, 0.25, 1.0))
    gradients = jax.grad(lambda x, *weights: swiglu(x, *weights).astype(jnp.float32).sum(), argnums=(1, 2, 3))
    for of_many, of_one in zip(gradients(many, *weights), gradients(tile, *weights), strict=True):
        np.testing.assert_allclose(of_many.astype(np.float32), 300 * of_one.astype(np.float32), rtol=2**-7)
