"""Root-mean-square norm whose gradient keeps only its input and one number a row.

Without this rule JAX keeps five arrays of the size of `x` for the gradient of one norm: `x` twice, its scaled copy, and
the rows' scales and the weights, both broadcast. A scan over layers writes and reads all of them: 250 MB and a
twentieth of a training step at d 256, 6 layers, 4,096 tokens (2026-11-22: benchmarks/notes/2026-11-22-training.md).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: Float[Array, "*rows D"], weight: Float[Array, " D"], eps: float) -> Float[Array, "*rows D"]:
    """`x / sqrt(mean(x ** 2) + eps) * weight` over the last axis, in float32, returned in the type of `x` (Zhang and
    Sennrich 2019, arXiv 1910.07467)."""
    return _forward(x, weight, eps)[0]


def _forward(x: Array, weight: Array, eps: float) -> tuple[Array, tuple[Array, Array, Array]]:
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + eps)
    return (wide * scale * weight).astype(x.dtype), (x, weight, scale)


def _backward(eps: float, residuals: tuple[Array, Array, Array], grad: Array) -> tuple[Array, Array]:
    """With n = x * scale and g = grad * weight: for x scale * (g - n * mean(g * n)), for the weight grad * n over all
    rows.

    Both sums are written as products of one array, `grad * x`, with a vector: for sums, XLA's CPU back-end broadcasts
    weights and scales before it adds (3 times slower, 2026-11-22).
    """
    x, weight, scale = residuals
    wide, rows = grad.astype(jnp.float32), x.astype(jnp.float32)
    both = wide * rows
    mean = jnp.matmul(both, weight.astype(jnp.float32)[:, None], precision=jax.lax.Precision.HIGHEST) / x.shape[-1]
    grad_x = wide * weight * scale - rows * (mean * scale**3)
    grad_weight = jnp.matmul(scale.reshape(1, -1), both.reshape(-1, x.shape[-1]), precision=jax.lax.Precision.HIGHEST)[0]
    return grad_x.astype(x.dtype), grad_weight.astype(weight.dtype)


rms_norm.defvjp(_forward, _backward)
