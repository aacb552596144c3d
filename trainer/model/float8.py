"""Products of activations with weights in float8, a scale for each array (Micikevicius et al. 2022, arXiv 2209.05433).

Activations and weights are rounded to e4m3, gradients to e5m2, which has a wider range. An array is scaled so that its largest
element is the largest number of its type, at this step ("current scaling"). Sums are float32, and the result has the type of
the activations. Parameters, the head, norms, routers, experts and attention keep their types. A product of 8,192^3 runs at 887
TFLOP/s with scaling on an H200, in bfloat16 at 651 (benchmarks/notes/2026-11-26-h200.md). A step was not timed.
"""

from functools import partial

import haliax as hax
import jax
import jax.numpy as jnp
from haliax import NamedArray
from jaxtyping import Array, Float

FORWARD, BACKWARD = jnp.float8_e4m3fn, jnp.float8_e5m2


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def float8_dot(x: NamedArray, weight: NamedArray, names: tuple[str, ...]) -> NamedArray:
    """`hax.dot` over the axes of these names."""
    return _forward(x, weight, names)[0]


def _forward(x: NamedArray, weight: NamedArray, names: tuple[str, ...]):
    narrow, scale = scaled(x, FORWARD)
    narrow_weight, weight_scale = scaled(weight, FORWARD)
    kept = narrow, scale, narrow_weight, weight_scale, jnp.zeros((), x.dtype), jnp.zeros((), weight.dtype)
    return _product(narrow, narrow_weight, names, scale * weight_scale, x.dtype), kept


def _backward(names: tuple[str, ...], residuals: tuple, grad: NamedArray) -> tuple[NamedArray, NamedArray]:
    narrow, scale, narrow_weight, weight_scale, of_x, of_weight = residuals
    narrow_grad, grad_scale = scaled(grad, BACKWARD)
    outer = tuple(axis.name for axis in narrow_weight.axes if axis.name not in names)
    rest = tuple(axis.name for axis in narrow.axes if axis.name not in names)
    grad_x = _product(narrow_grad, narrow_weight, outer, grad_scale * weight_scale, of_x.dtype)
    grad_weight = _product(narrow, narrow_grad, rest, scale * grad_scale, of_weight.dtype)
    return grad_x.rearrange(narrow.axes), grad_weight.rearrange(narrow_weight.axes)


float8_dot.defvjp(_forward, _backward)


def scaled(array: NamedArray, dtype: jnp.dtype) -> tuple[NamedArray, Float[Array, ""]]:
    """(array / scale in `dtype`, scale); the scale of an array of zeros is 1."""
    largest = jnp.max(jnp.abs(array.array)).astype(jnp.float32)
    scale = jnp.where(largest > 0, largest / float(jnp.finfo(dtype).max), 1.0)
    return hax.named((array.array.astype(jnp.float32) / scale).astype(dtype), array.axes), scale


def _product(left: NamedArray, right: NamedArray, names: tuple[str, ...], scale: Array, dtype: jnp.dtype) -> NamedArray:
    wide = hax.dot(left, right, axis=names, preferred_element_type=jnp.float32)
    return (wide * scale).astype(dtype)
