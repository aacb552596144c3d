"""Next-token loss in row tiles: the logits of all tokens never exist at once, and the forward pass computes the
gradient.

Full logits are [N, V]: 67 MB in float32 for the ferry's batch, gigabytes for a real one, written and read several
times. Here a tile of rows is multiplied with the head, reduced to its loss, and turned at once into its part of the
gradient, because the gradient of a weighted mean needs nothing from later rows: d logits = p (softmax x (1 + 2 w log Z)
- onehot) for the objective sum(p nll) + w sum(p log Z ** 2) with row weights p that sum to one (1 / N where nothing is
masked), z-loss as in PaLM (Chowdhery et al. 2022, arXiv 2204.02311, section 5). This takes three products of the head's
size instead of the four with recomputed logits; the price is memory for the gradients of head and inputs between the
passes.

Only exp(logits - max) of a tile is stored. Row sums, weights and the one-hot targets are applied to the results of the
products, which are V / D times smaller. The product for the head has the tile on its right, because a large transposed
left side halves the speed of XLA's CPU product: 1.2 times faster as a whole at D 128, V 8,192
(`benchmarks/cross_entropy.py`).

On a GPU exp(logits - logit of the target) needs no largest logit, so XLA computes it in the product's own kernel and float32
logits are never written: 63 ms instead of 78 for 131,072 rows at D 192, V 128,256 (H200, 2026-11-26). It overflows
for a row whose loss is above `SAFE` nats. If there is such a row, the whole pass is done again with the largest logits.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from trainer.spec.mesh import batch_axes

TILE_ROWS = 256
"""Rows of a tile on a CPU. 256 x 8,192 float32 logits are 8 MB, which stay in its last-level cache
(benchmarks/cross_entropy.py). Accelerators take larger ones (`trainer.spec.compute.loss_rows`)."""


SAFE = 70.0
"""Nats above the target's logit at which exp is cut. e**70 times a vocabulary of 10**6 is less than a hundredth of the largest
float32."""


def row_nll(
    x: Float[Array, "N D"], head: Float[Array, "V D"], targets: Int[Array, " N"], tile_rows: int = TILE_ROWS
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Nats of each row's target and the log partition function, tile by tile; without a gradient."""

    def of_tile(tile: tuple[Array, Array]) -> tuple[Array, Array]:
        log_z, gold, _ = _logits_of(tile[0], head, tile[1])
        return log_z - gold, log_z

    nll, log_z = jax.lax.map(of_tile, (_tiles(x, tile_rows), _tiles(targets, tile_rows)))
    return nll.reshape(-1)[: x.shape[0]], log_z.reshape(-1)[: x.shape[0]]


def row_log_probs(
    x: Float[Array, "N D"],
    head: Float[Array, "V D"],
    targets: Int[Array, " N"],
    temperature: float | Float[Array, ""] = 1.0,
    tile_rows: int = TILE_ROWS,
) -> Float[Array, " N"]:
    """Log-probability in nats of each row's target at a temperature, with a gradient for `x` and `head`.

    The backward pass computes the logits of a tile again, because the gradient of a row depends on what the caller makes of
    all rows. If rows are split over a mesh, each device computes its own.
    """

    def of_device(x: Array, head: Array, targets: Array, temperature: Array) -> Array:
        @jax.checkpoint
        def of_tile(tile: tuple[Array, Array]) -> Array:
            logits = _product(tile[0], head.T) / temperature
            gold = jnp.take_along_axis(logits, tile[1][:, None], axis=1)[:, 0]
            return gold - jax.nn.logsumexp(logits, axis=1)

        return jax.lax.map(of_tile, (_tiles(x, tile_rows), _tiles(targets, tile_rows))).reshape(-1)[: x.shape[0]]

    axes, heat = batch_axes(), jnp.float32(temperature)
    if not axes:
        return of_device(x, head, targets, heat)
    rows, replicated = PartitionSpec(axes), PartitionSpec()
    split = jax.shard_map(
        of_device,
        in_specs=(rows, replicated, rows, replicated),
        out_specs=rows,
        axis_names=set(axes),
        check_vma=False,
    )
    return split(x, head, targets, heat)


def weighted_objective(
    x: Float[Array, "N D"],
    head: Float[Array, "V D"],
    targets: Int[Array, " N"],
    shares: Float[Array, " N"],
    z_loss_weight: float,
    tile_rows: int = TILE_ROWS,
    *,
    by_gold: bool = False,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(loss + z_loss_weight x sum of shares x squared log Z, loss = sum of shares x nll); `shares` sum to one.

    A row of share zero gives no gradient. Only the first result has a gradient, and only with respect to `x` and
    `head`. If rows are split over a mesh, each device sums its own: in a scan over tiles of a split array every device
    would compute all tiles.
    """
    axes = batch_axes()
    if not axes:
        return _objective(x, head, targets, shares, z_loss_weight, tile_rows, by_gold)

    def of_device(*arrays: Array) -> tuple[Array, Array]:
        return jax.lax.psum(_objective(*arrays, z_loss_weight, tile_rows, by_gold), axes)

    rows, replicated = PartitionSpec(axes), PartitionSpec()
    split = jax.shard_map(
        of_device,
        in_specs=(rows, replicated, rows, rows),
        out_specs=(replicated, replicated),
        axis_names=set(axes),
        check_vma=False,
    )
    return split(x, head, targets, shares)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _objective(
    x: Float[Array, "N D"],
    head: Float[Array, "V D"],
    targets: Int[Array, " N"],
    shares: Float[Array, " N"],
    z_loss_weight: float,
    tile_rows: int,
    by_gold: bool,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    nll, log_z = row_nll(x, head, targets, tile_rows)
    loss = shares @ nll
    return loss + z_loss_weight * (shares @ jnp.square(log_z)), loss


def _forward(
    x: Array, head: Array, targets: Array, weights: Array, z_loss_weight: float, tile_rows: int, by_gold: bool
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The two sums, and the gradients of the first with respect to `x` and `head` as residuals."""

    def exact() -> _Passed:
        return _passed(x, head, targets, weights, z_loss_weight, tile_rows, by_gold=False)

    if not by_gold:
        done = exact()
    else:
        quick = _passed(x, head, targets, weights, z_loss_weight, tile_rows, by_gold=True)
        done = jax.lax.cond(quick.largest < SAFE, lambda: quick, exact)
    return (done.loss + z_loss_weight * done.squared, done.loss), (done.grad_x, done.grad_head)


class _Passed(NamedTuple):
    """What one pass over all tiles gives."""

    loss: Float[Array, ""]
    squared: Float[Array, ""]
    """Weighted sum of squared log Z."""
    largest: Float[Array, ""]
    """Largest loss of a row, in nats; computed by the target's logit only."""
    grad_x: Float[Array, "N D"]
    grad_head: Float[Array, "V D"]


def _passed(
    x: Array, head: Array, targets: Array, weights: Array, z_loss_weight: float, tile_rows: int, *, by_gold: bool
) -> _Passed:
    head_across = jax.lax.optimization_barrier(head.T)  # else XLA folds the transpose back into the product

    def of_tile(carry: tuple[Array, Array, Array, Array], tile: tuple[Array, Array, Array]):
        sum_nll, sum_z, largest, grad_across = carry
        rows, gold_ids, weight = tile
        powers, total, log_z, gold = _powers(rows, head, head_across, gold_ids, by_gold=by_gold)
        share = (weight * (1.0 + 2.0 * z_loss_weight * log_z) / total)[:, None]  # softmax and z-loss at once
        grad_rows = share * _product(powers, head)
        rows_across = jax.lax.optimization_barrier((share * rows).astype(rows.dtype).T)
        grad_across = grad_across + _product(rows_across, powers)
        nll = log_z - gold
        largest = jnp.maximum(largest, nll.max()) if by_gold else largest
        return (sum_nll + weight @ nll, sum_z + weight @ jnp.square(log_z), largest, grad_across), grad_rows

    start = (jnp.float32(0), jnp.float32(0), jnp.float32(0), jnp.zeros(head_across.shape, jnp.float32))
    tiles = (_tiles(x, tile_rows), _tiles(targets, tile_rows), _tiles(weights, tile_rows))
    (loss, squared, largest, grad_across), grad_rows = jax.lax.scan(of_tile, start, tiles)
    of_gold = weights[:, None]
    grad_x = grad_rows.reshape(-1, x.shape[1])[: x.shape[0]] - of_gold * head[targets]
    grad_head = grad_across.T.at[targets].add(-of_gold * x)
    return _Passed(loss, squared, largest, grad_x.astype(x.dtype), grad_head.astype(head.dtype))


def _powers(
    rows: Array, head: Array, head_across: Array, gold_ids: Array, *, by_gold: bool
) -> tuple[Array, Array, Array, Array]:
    """(exp(logits - shift) in the type of `rows`, their sums, log Z, logit of the target) of a tile."""
    logits = _product(rows, head_across)
    if by_gold:
        gold = jnp.sum(rows.astype(jnp.float32) * head[gold_ids].astype(jnp.float32), axis=1)
        powers = jnp.exp(jnp.minimum(logits - gold[:, None], SAFE)).astype(rows.dtype)
        total = powers.sum(axis=1, dtype=jnp.float32)
        return powers, total, gold + jnp.log(total), gold
    top = logits.max(axis=1)
    gold = jnp.take_along_axis(logits, gold_ids[:, None], axis=1)[:, 0]
    powers = jnp.exp(logits - top[:, None])
    total = powers.sum(axis=1)
    return powers.astype(rows.dtype), total, top + jnp.log(total), gold


def _backward(
    z_loss_weight: float, tile_rows: int, by_gold: bool, residuals: tuple[Array, Array], cotangents: tuple[Array, Array]
):
    grad_x, grad_head = residuals
    scale = cotangents[0]
    return scale.astype(grad_x.dtype) * grad_x, scale.astype(grad_head.dtype) * grad_head, None, None


_objective.defvjp(_forward, _backward)


def _logits_of(rows: Array, head: Array, gold_ids: Array) -> tuple[Array, Array, Array]:
    """(log Z, logit of the target, logits) of a tile, in float32."""
    logits = _product(rows, head.T)
    gold = jnp.take_along_axis(logits, gold_ids[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1), gold, logits


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, preferred_element_type=jnp.float32)


def _tiles(values: Array, tile_rows: int) -> Array:
    """Reshape [N, ...] to [tiles, rows, ...], padded with zeros. `rows` is `tile_rows`, or N if that is smaller."""
    rows = min(tile_rows, values.shape[0])
    padding = -values.shape[0] % rows
    padded = jnp.pad(values, ((0, padding), *((0, 0) for _ in values.shape[1:])))
    return padded.reshape(-1, rows, *values.shape[1:])
