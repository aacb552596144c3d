"""Grouped products on Hopper GPUs, by JAX's Mosaic kernels, with their gradient.

XLA's `ragged_dot` reaches 55 to 85 TFLOP/s on an H200 where a dense product reaches 320 to 390; these kernels reach 270 to 390
(8 groups of unequal sizes, bfloat16, `benchmarks/notes/2026-11-26-h200.md`). They take bfloat16, widths that are multiples of
`STEP`, and at least `BLOCK` rows.

Shapes: A rows sorted by group, K and N widths, E groups.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCK, STEP = 128, 64
"""Rows and columns of a block of results; the width that a block multiplies at once."""


def check_shapes(rows: Array, matrices: Array) -> None:
    """Raises: ValueError for a product that the kernels do not take."""
    count, depth, width = matrices.shape
    odd = [str(each) for each in (depth, width) if each % STEP]
    if odd or rows.shape[0] < BLOCK or rows.dtype != jnp.bfloat16:
        raise ValueError(
            f"compute.experts 'hopper' cannot multiply {rows.dtype}{list(rows.shape)} with {count} matrices "
            f"of {depth} x {width}; "
            f"it takes bfloat16, widths that are multiples of {STEP} and at least {BLOCK} rows. Use compute.experts='ragged'"
        )


@jax.custom_vjp
def hopper_product(rows: Float[Array, "A K"], matrices: Float[Array, "E K N"], sizes: Int[Array, " E"]) -> Float[Array, "A N"]:
    """Each row times the matrix of its group. Rows past the last group are zeros. Raises: ValueError (`check_shapes`)."""
    return _product(rows, matrices, sizes, turned=False)


def _product(rows: Array, matrices: Array, sizes: Array, *, turned: bool) -> Array:
    from jax.experimental.pallas.ops.gpu.ragged_dot_mgpu import ragged_dot  # takes a second, and only GPUs need it

    check_shapes(rows, matrices)
    width = matrices.shape[1 if turned else 2]
    out = ragged_dot(
        rows,
        matrices,
        group_sizes=sizes,
        block_m=BLOCK,
        block_n=_block_of(width),
        block_k=STEP,
        max_concurrent_steps=6,
        grid_block_n=8,
        transpose_rhs=turned,
    )
    kept = jnp.arange(rows.shape[0])[:, None] < sizes.sum()
    return jnp.where(kept, out, 0)  # the kernel leaves the other rows as the memory was


def _forward(rows: Array, matrices: Array, sizes: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    return _product(rows, matrices, sizes, turned=False), (rows, matrices, sizes)


def _backward(residuals: tuple[Array, Array, Array], grad: Array) -> tuple[Array, Array, None]:
    from jax.experimental.pallas.ops.gpu.transposed_ragged_dot_mgpu import transposed_ragged_dot

    rows, matrices, sizes = residuals
    grad_matrices = transposed_ragged_dot(
        rows,
        grad,
        group_sizes=sizes,
        block_m=_block_of(rows.shape[1]),
        block_n=_block_of(grad.shape[1]),
        block_k=STEP,
        max_concurrent_steps=4,
        grid_block_n=1,
    )
    return _product(grad, matrices, sizes, turned=True), grad_matrices, None


hopper_product.defvjp(_forward, _backward)


def _block_of(width: int) -> int:
    """The larger block that divides a width.

    >>> _block_of(2048), _block_of(1088)
    (128, 64)
    """
    return BLOCK if width % BLOCK == 0 else STEP
