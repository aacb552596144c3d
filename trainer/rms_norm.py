"""Root-mean-square norm whose gradient keeps what it read and one number a row.

Left to itself, JAX keeps five arrays of the size of `x` for the gradient of one norm: `x` twice, its scaled copy, and both the
rows' scales and the weights spread over everything. A scan over layers writes and reads all of them, which was 250 MB and a
twentieth of a training step at d 256, 6 layers, 4,096 tokens (2026-11-22: benchmarks/notes/2026-11-22-training.md).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: Float[Array, "*rows D"], weight: Float[Array, " D"], eps: float) -> Float[Array, "*rows D"]:
    """`x / sqrt(mean(x ** 2) + eps) * weight` over the last axis, in float32, returned as `x` is (Zhang and Sennrich 2019)."""
    return _forward(x, weight, eps)[0]


def _forward(x: Array, weight: Array, eps: float) -> tuple[Array, tuple[Array, Array, Array]]:
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + eps)
    return (wide * scale * weight).astype(x.dtype), (x, weight, scale)


def _backward(eps: float, residuals: tuple[Array, Array, Array], grad: Array) -> tuple[Array, Array]:
    """With n = x * scale and g = grad * weight: for x scale * (g - n * mean(g * n)), for the weight grad * n over all rows."""
    x, weight, scale = residuals
    wide = grad.astype(jnp.float32)
    normed = x.astype(jnp.float32) * scale
    weighted = wide * weight
    grad_x = scale * (weighted - normed * (weighted * normed).mean(axis=-1, keepdims=True))
    grad_weight = (wide * normed).sum(axis=tuple(range(x.ndim - 1)))
    return grad_x.astype(x.dtype), grad_weight.astype(weight.dtype)


rms_norm.defvjp(_forward, _backward)
