"""Products of sorted rows with the matrices of their experts, by several engines behind one function.

`jax.lax.ragged_dot` multiplies every row by every expert on a CPU (10 to 115 times the dense product, 2026-11-23). The engine
`tiled` sorts rows by expert, pads each expert's rows to whole tiles, and multiplies a tile by its expert's matrices; its
gradient keeps the two products inside the MLP and gathers where a plain gradient would scatter. On GPUs and TPUs sorted rows go
through `ragged_dot`, on Hopper GPUs through `trainer.model.grouped_hopper`.

Shapes: N rows, D hidden, F width of an expert, E experts, k experts a token, A = N k assignments, T tiles of R rows.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from trainer.model.grouped_hopper import hopper_product
from trainer.model.products import across
from trainer.spec.compute import ExpertEngine

type GroupedProduct = Callable[[Float[Array, "A K"], Float[Array, "E K N"], Int[Array, " E"]], Float[Array, "A N"]]
"""(rows sorted by group, a matrix for each group, rows of each group) to (products); rows past the last group are zeros."""

TILE_ROWS = 128
"""Most rows of a tile; fewer where experts have few rows."""


class ExpertWeights(NamedTuple):
    """The matrices of the experts of one layer."""

    gate: Float[Array, "E D F"]
    up: Float[Array, "E D F"]
    down: Float[Array, "E F D"]


def experts_output(
    x: Float[Array, "N D"],
    ids: Int[Array, "N k"],
    shares: Float[Array, "N k"],
    weights: ExpertWeights,
    engine: ExpertEngine,
    activation: str,
    capacity: int | None = None,
) -> Float[Array, "N D"]:
    """sum over a row's experts of share * down(act(gate x) * up x). An id of E or more, or above capacity, adds nothing.

    `capacity` is the number of assignments that an expert takes at most, in the order of rows; None: all.
    """
    if capacity is not None:
        ids = jnp.where(ranks(ids, weights.gate.shape[0]) < capacity, ids, weights.gate.shape[0])
    match engine:
        case "reference":
            return _by_masks(x, ids, shares, _converted(weights, x), activation)
        case "tiled":
            return _tiled(x, ids, shares, _converted(weights, x), activation)
        case "ragged":
            return _grouped(x, ids, shares, weights, activation, jax.lax.ragged_dot)
        case "hopper":
            return _grouped(x, ids, shares, weights, activation, hopper_product)


def _converted(weights: ExpertWeights, x: Array) -> ExpertWeights:
    return ExpertWeights(*(each.astype(x.dtype) for each in weights))


def ranks(ids: Int[Array, "N k"], count: int) -> Int[Array, "N k"]:
    """How many earlier assignments chose the same expert."""
    flat = ids.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    starts = _starts(jnp.bincount(flat, length=count + 1))
    sorted_ids = flat[order]
    rank = jnp.arange(flat.size) - starts[jnp.minimum(sorted_ids, count)]
    return jnp.zeros_like(flat).at[order].set(rank, unique_indices=True).reshape(ids.shape)


def _starts(sizes: Int[Array, " E"]) -> Int[Array, " E"]:
    return jnp.cumsum(sizes) - sizes


def activate(opened: Array, carried: Array, activation: str) -> Array:
    """The product inside an expert's MLP."""
    return carried * (jax.nn.silu(opened) if activation == "swiglu" else opened)


def _by_masks(x: Array, ids: Array, shares: Array, weights: ExpertWeights, activation: str) -> Array:
    """Every row through every expert, in one product each; for tests and small shapes."""
    count = weights.gate.shape[0]
    share = jnp.einsum("nk,nke->ne", shares, jax.nn.one_hot(ids, count, dtype=shares.dtype))
    opened, carried = (jnp.einsum("nd,edf->nef", x, each) for each in weights[:2])
    outs = jnp.einsum("nef,efd->ned", activate(opened, carried, activation), weights.down)
    return jnp.einsum("ne,ned->nd", share.astype(x.dtype), outs)


def _grouped(x: Array, ids: Array, shares: Array, weights: ExpertWeights, activation: str, product: GroupedProduct) -> Array:
    """Rows sorted by expert, through a product that knows how many rows each expert has."""
    count, per_token = weights.gate.shape[0], ids.shape[1]
    flat = ids.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    places = jnp.zeros_like(order).at[order].set(jnp.arange(order.size), unique_indices=True).reshape(ids.shape)
    sizes = jnp.bincount(flat, length=count).astype(jnp.int32)
    rows = _spread(x, order // per_token, places)
    opened, carried = (checkpoint_name(_converting(product, rows, each, sizes), "mlp") for each in weights[:2])
    out = _closing(product, activation, opened, carried, weights.down, sizes)
    return _combined(out, places, jnp.where(ids < count, shares, 0.0), order)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _converting(product: GroupedProduct, rows: Array, matrices: Array, sizes: Array) -> Array:
    """The product with the matrices in the precision of the rows.

    The backward pass converts again. A kept copy would hold, for each layer, the experts that a device gathered.
    """
    return product(rows, matrices.astype(rows.dtype), sizes)


def _converting_backward(product: GroupedProduct, residuals: tuple[Array, Array, Array], grad: Array):
    rows, matrices, sizes = residuals
    pull = jax.vjp(lambda left, right: product(left, right, sizes), rows, matrices.astype(rows.dtype))[1]
    grad_rows, grad_matrices = pull(grad)
    return grad_rows, grad_matrices.astype(matrices.dtype), None


_converting.defvjp(
    lambda product, rows, matrices, sizes: (_converting(product, rows, matrices, sizes), (rows, matrices, sizes)),
    _converting_backward,
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _closing(product: GroupedProduct, activation: str, opened: Array, carried: Array, down: Array, sizes: Array) -> Array:
    """The last product of the experts' MLP. The backward pass keeps the two products before it and activates them again."""
    return _converting(product, activate(opened, carried, activation), down, sizes)


def _closing_backward(product: GroupedProduct, activation: str, residuals: tuple[Array, ...], grad: Array):
    opened, carried, down, sizes = residuals
    inner, pull = jax.vjp(lambda left, right: activate(left, right, activation), opened, carried)
    grad_inner, grad_down, _ = _converting_backward(product, (inner, down, sizes), grad)
    return *pull(grad_inner), grad_down, None


_closing.defvjp(lambda product, activation, *arrays: (_closing(product, activation, *arrays), arrays), _closing_backward)


@jax.custom_vjp
def _spread(x: Float[Array, "N D"], sources: Int[Array, " A"], places: Int[Array, "N k"]) -> Float[Array, "A D"]:
    """The rows of `sources`. The gradient gathers at `places`, where each row went: a scatter would add in no fixed order."""
    return x[sources]


def _spread_backward(places: Array, grad: Array) -> tuple[Array, None, None]:
    wide = jnp.promote_types(grad.dtype, jnp.float32)
    total = grad[places[:, 0]].astype(wide)
    for k in range(1, places.shape[1]):
        total = total + grad[places[:, k]].astype(wide)
    return total.astype(grad.dtype), None, None


_spread.defvjp(lambda x, sources, places: (x[sources], places), _spread_backward)


@jax.custom_vjp
def _combined(
    out: Float[Array, "A D"], places: Int[Array, "N k"], shares: Float[Array, "N k"], order: Int[Array, " A"]
) -> Float[Array, "N D"]:
    """sum over a row's assignments of share * result; `order` says which assignment a sorted row is."""
    return _summed(out, places, shares)


def _combined_backward(residuals: tuple[Array, ...], grad: Array) -> tuple[Array, None, Array, None]:
    out, places, shares, order = residuals
    wide = jnp.promote_types(grad.dtype, jnp.float32)
    grad_out = shares.reshape(-1)[order, None].astype(grad.dtype) * grad[order // places.shape[1]]
    # One of a row's experts at a time: TPUs pad an array [N, k, D] of two experts a row to eight.
    grad_shares = [jnp.sum(out[each].astype(wide) * grad.astype(wide), axis=1) for each in places.T]
    return grad_out, None, jnp.stack(grad_shares, axis=1).astype(shares.dtype), None


_combined.defvjp(lambda *arrays: (_summed(*arrays[:3]), arrays), _combined_backward)


class _Tiles(NamedTuple):
    """Where assignments lie in the padded rows."""

    place: Int[Array, "N k"]
    """Padded row of an assignment; T * R for one that adds nothing."""
    source: Int[Array, " TR"]
    """Row of x that a padded row copies; N for padding."""
    slot: Int[Array, " TR"]
    """Assignment of a padded row; A for padding."""
    expert: Int[Array, " T"]
    """Expert of a tile; E for a tile without rows."""


def tile_rows(assignments: int, count: int) -> int:
    """Rows of a tile: a power of two near half an expert's fair share, between 8 and `TILE_ROWS`."""
    size = 8
    while size < TILE_ROWS and size * 4 <= assignments // count:
        size *= 2
    return size


def _layout(ids: Int[Array, "N k"], count: int, size: int) -> _Tiles:
    number, per_token = ids.shape
    flat = ids.reshape(-1)
    tiles = -(-flat.size // size) + count
    sizes = jnp.bincount(flat, length=count + 1)[:count]
    tiles_of = -(-sizes // size)
    ends = jnp.cumsum(tiles_of)
    first_row = jnp.append((ends - tiles_of) * size, 0)
    kept = flat < count
    place = jnp.where(kept, first_row[jnp.minimum(flat, count)] + ranks(ids, count).reshape(-1), tiles * size)
    slot = jnp.full(tiles * size, flat.size, jnp.int32)
    slot = slot.at[place].set(jnp.arange(flat.size, dtype=jnp.int32), mode="drop", unique_indices=True)
    source = jnp.where(slot < flat.size, slot // per_token, number)
    expert = jnp.searchsorted(ends, jnp.arange(tiles), side="right")
    return _Tiles(place.reshape(ids.shape), source, slot, expert)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _tiled(x: Array, ids: Array, shares: Array, weights: ExpertWeights, activation: str) -> Array:
    return _tiled_forward(x, ids, shares, weights, activation)[0]


def _tiled_forward(x: Array, ids: Array, shares: Array, weights: ExpertWeights, activation: str):
    count, size = weights.gate.shape[0], tile_rows(ids.size, weights.gate.shape[0])
    tiles = _layout(ids, count, size)

    def of_tile(tile: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        sources, expert = tile
        gate, up, down = (each[expert] for each in weights)
        rows = x.at[sources].get(mode="fill", fill_value=0)
        opened, carried = rows @ gate, rows @ up
        return activate(opened, carried, activation) @ down, opened, carried

    outs, opened, carried = jax.lax.map(of_tile, (tiles.source.reshape(-1, size), tiles.expert))
    flat = outs.reshape(-1, x.shape[1])
    out = _summed(flat, tiles.place, shares)
    kept = checkpoint_name(opened, "mlp"), checkpoint_name(carried, "mlp")
    return out, (x, shares, weights, tiles, *kept)


def _summed(padded: Array, places: Int[Array, "N k"], shares: Array) -> Array:
    """sum over a row's assignments of share * padded row."""
    out = _rows(padded, places[:, 0]) * shares[:, 0, None].astype(padded.dtype)
    for k in range(1, places.shape[1]):
        out = out + _rows(padded, places[:, k]) * shares[:, k, None].astype(padded.dtype)
    return out


def _rows(values: Array, places: Array) -> Array:
    return values.at[places].get(mode="fill", fill_value=0)


def _tiled_backward(activation: str, residuals: tuple, grad: Array):
    x, shares, weights, tiles, opened, carried = residuals
    size = opened.shape[1]
    wide = jnp.promote_types(x.dtype, jnp.float32)
    share_of = _rows(shares.reshape(-1), tiles.slot).reshape(-1, size)
    turned = ExpertWeights(*(jnp.swapaxes(jax.lax.optimization_barrier(each), 1, 2) for each in weights))
    turned = ExpertWeights(*(jax.lax.optimization_barrier(each) for each in turned))

    def of_tile(sums: ExpertWeights, tile: tuple[Array, ...]):
        sources, expert, share, gate_out, up_out = tile
        gate, up, down = (each[expert] for each in turned)
        rows, grad_rows = _rows(x, sources), _rows(grad, sources)
        inner = grad_rows @ down
        value, pull = jax.vjp(lambda a, b: activate(a, b, activation), gate_out, up_out)
        grad_share = jnp.sum((inner * value).astype(wide), axis=1)
        scale = share[:, None].astype(x.dtype)
        grad_gate, grad_up = pull(scale * inner)
        side = across(rows)
        parts = ExpertWeights(side @ grad_gate, side @ grad_up, (across(scale * value) @ grad_rows))
        sums = ExpertWeights(*(
            total.at[expert].add(part.astype(wide), mode="drop") for total, part in zip(sums, parts, strict=True)
        ))  # fmt: skip
        return sums, (grad_gate @ gate + grad_up @ up, grad_share)

    start = ExpertWeights(*(jnp.zeros(each.shape, wide) for each in weights))
    inputs = tiles.source.reshape(-1, size), tiles.expert, share_of, opened, carried
    sums, (grad_rows, grad_shares) = jax.lax.scan(of_tile, start, inputs)
    flat = grad_rows.reshape(-1, x.shape[1])
    grad_x = _summed(flat, tiles.place, jnp.ones_like(shares))
    of_shares = _rows(grad_shares.reshape(-1), tiles.place).astype(shares.dtype)
    return grad_x, None, of_shares, ExpertWeights(*(each.astype(x.dtype) for each in sums))


_tiled.defvjp(_tiled_forward, _tiled_backward)
