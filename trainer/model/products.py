"""Products of activations with weights, with gradients that transpose no large array: for XLA on a CPU.

The gradient of a weight is x^T dy over all rows. XLA transposes one side for each product, fused with its producer,
which reads several arrays a column at a time; that took an eighth of a training step (d 256, 2026-11-22:
benchmarks/notes/2026-11-22-training.md). Here x^T is computed once, as a copy, for all weights that x meets, and the
narrower of two sides is transposed. The values equal those of the plain products up to the order of sums.

An MLP runs over tiles of rows, forward and backward: between its products are six arrays of width F, and those of a
tile stay in the cache (a tenth of the MLP's time, same note).

Shapes: N rows, D inputs, F outputs, T tiles of R rows.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

TILE_ROWS = 512
"""Rows of a tile: 512 x 768 float32 are 1.5 MB. 256 and 1,024 are as fast (2 cores with 1 MB of cache each, 32 MB shared)."""


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
    """`(silu(x @ gate) * (x @ up)) @ down`, tile by tile. The backward pass keeps the two products and recomputes the rest."""
    (tiles,) = _tiles(x)
    return _joined(jax.lax.map(lambda rows: (jax.nn.silu(rows @ gate) * (rows @ up)) @ down, tiles))


def _swiglu(x: Array, gate: Array, up: Array, down: Array):
    def of_tile(rows: Array) -> tuple[Array, Array, Array]:
        opened, carried = rows @ gate, rows @ up
        return (jax.nn.silu(opened) * carried) @ down, opened, carried

    out, opened, carried = map(_joined, jax.lax.map(of_tile, *_tiles(x)))
    return out, (x, gate, up, down, checkpoint_name(opened, "mlp"), checkpoint_name(carried, "mlp"))


def _swiglu_gradient(residuals: tuple[Array, ...], grad: Array):
    x, gate, up, down, opened, carried = residuals
    gate_across, up_across, down_across = across(gate), across(up), across(down)

    def of_tile(sums: tuple[Array, Array, Array], tile: tuple[Array, ...]):
        rows, grad_out, opened, carried = tile
        share = jax.nn.sigmoid(opened)
        grad_wide = grad_out @ down_across
        grad_opened = grad_wide * carried * share * (1 + opened * (1 - share))
        grad_carried = grad_wide * opened * share
        turned = across(rows)
        pairs = (turned, grad_opened), (turned, grad_carried), (across(grad_out), opened * share * carried)
        parts = tuple(jnp.matmul(*pair, preferred_element_type=sums[0].dtype) for pair in pairs)
        return jax.tree.map(jnp.add, sums, parts), grad_opened @ gate_across + grad_carried @ up_across

    # at least float32: a sum of hundreds of tiles in bfloat16 would lose the later ones
    wide = jnp.promote_types(gate.dtype, jnp.float32)
    start = jnp.zeros(gate.shape, wide), jnp.zeros(up.shape, wide), jnp.zeros(down_across.shape, wide)
    sums, grad_x = jax.lax.scan(of_tile, start, _tiles(x, grad, opened, carried))
    grad_gate, grad_up, grad_down = (each.astype(gate.dtype) for each in sums)
    return _joined(grad_x), grad_gate, grad_up, grad_down.T


swiglu.defvjp(_swiglu, _swiglu_gradient)


def _tiles(*arrays: Float[Array, "N ..."]) -> tuple[Float[Array, "T R ..."], ...]:
    """Split rows into tiles of `TILE_ROWS`, or of half, a quarter or an eighth if that divides them; else one tile."""
    rows = arrays[0].shape[0]
    size = next((size for size in (TILE_ROWS >> halved for halved in range(4)) if rows % size == 0), rows)
    return tuple(array.reshape(-1, size, *array.shape[1:]) for array in arrays)


def _joined(tiles: Float[Array, "T R F"]) -> Float[Array, "N F"]:
    return tiles.reshape(-1, tiles.shape[-1])


def across(matrix: Float[Array, "A B"]) -> Float[Array, "B A"]:
    """The transpose as an array of its own: without the barrier XLA folds it into the product."""
    return jax.lax.optimization_barrier(matrix.T)
