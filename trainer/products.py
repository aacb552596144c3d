"""Products of activations with weights whose gradients turn no large array around: for XLA on a CPU.

The gradient of a weight is x^T dy over all rows. XLA transposes the side that it likes, once a product, fused with whatever
made it: a column at a time out of several arrays, which took an eighth of a training step (d 256, 2026-11-22:
benchmarks/notes/2026-11-22-training.md). Here x^T is made once, as a copy of its own, for all weights that x meets; of two
sides the narrower one is turned. The values are those of the plain products up to the order of sums.

Shapes: N rows, D inputs, F outputs.
"""

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float


@jax.custom_vjp
def products(x: Float[Array, "N D"], weights: tuple[Array, ...]) -> tuple[Array, ...]:
    """`x @ weight` for each weight [D, F]."""
    return tuple(x @ weight for weight in weights)


def _products(x: Array, weights: tuple[Array, ...]):
    return products(x, weights), (x, weights)


def _products_gradient(residuals: tuple[Array, tuple[Array, ...]], grads: tuple[Array, ...]):
    x, weights = residuals
    grad_x = sum(grad @ across(weight) for grad, weight in zip(grads, weights, strict=True))
    if all(grad.shape[1] < x.shape[1] for grad in grads):
        return grad_x, tuple((across(grad) @ x).T for grad in grads)
    turned = across(x)
    return grad_x, tuple(turned @ grad for grad in grads)


products.defvjp(_products, _products_gradient)


@jax.custom_vjp
def swiglu(x: Float[Array, "N D"], gate: Float[Array, "D F"], up: Float[Array, "D F"], down: Float[Array, "F D"]) -> Array:
    """`(silu(x @ gate) * (x @ up)) @ down`. Backward keeps the two products and makes the rest of them again."""
    return _swiglu(x, gate, up, down)[0]


def _swiglu(x: Array, gate: Array, up: Array, down: Array):
    opened, carried = (checkpoint_name(x @ weight, "mlp") for weight in (gate, up))
    return (jax.nn.silu(opened) * carried) @ down, (x, gate, up, down, opened, carried)


def _swiglu_gradient(residuals: tuple[Array, ...], grad: Array):
    x, gate, up, down, opened, carried = residuals
    opened = jax.lax.optimization_barrier(opened)  # else XLA shares the way there's sigmoid, and keeps it: a third array
    share = jax.nn.sigmoid(opened)
    grad_wide = grad @ across(down)
    grad_opened = grad_wide * carried * share * (1 + opened * (1 - share))
    grad_carried = grad_wide * opened * share
    grad_down = (across(grad) @ (opened * share * carried)).T
    turned = across(x)
    grad_x = grad_opened @ across(gate) + grad_carried @ across(up)
    return grad_x, turned @ grad_opened, turned @ grad_carried, grad_down


swiglu.defvjp(_swiglu, _swiglu_gradient)


def across(matrix: Float[Array, "A B"]) -> Float[Array, "B A"]:
    """The transpose as an array of its own: without the barrier XLA folds it into the product that reads it."""
    return jax.lax.optimization_barrier(matrix.T)
