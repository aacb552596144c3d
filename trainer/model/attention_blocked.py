"""Causal attention over blocks of query rows, with its own gradient: scores of a whole sequence never exist at once.

A block of queries meets only the keys that it can see: all before it, or those in its sliding window. That halves the work of a
causal mask. The forward pass keeps one number a row, the log of the softmax denominator; the backward pass recomputes the
weights from it (FlashAttention, Dao et al. 2022, arXiv 2205.14135, without its tiles over keys: a block of 128 rows against
4,096 keys is 2 MB, which fits a CPU's cache and any accelerator's memory).

The backward pass works on transposed scores [keys, queries], so that the gradients of keys and values are plain products: XLA's
CPU product with a large transposed left side runs at a third of the speed of a plain one.

Shapes: B batch, S sequence, K key/value heads, G queries a key/value head, H head size.
"""

import functools

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

MASKED = -1e30
"""The score of a masked key. Finite, so that no row computes 0 x inf; every row sees at least itself."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def blocked_attention(
    q: Float[Array, "B K G S H"],
    k: Float[Array, "B K S H"],
    v: Float[Array, "B K S H"],
    segment_ids: Int[Array, "B S"] | None,
    window: int | None,
    block: int,
    rows_at_once: int,
) -> Float[Array, "B K G S H"]:
    """softmax(q k^T) v where a query sees keys at or before it, in its window and its segment. Queries are already scaled.

    `rows_at_once` sequences of the batch are processed together, and the groups one after another: 1 on a CPU, whose cache then
    holds a block, B on an accelerator. It must divide B.
    """
    return _forward(q, k, v, segment_ids, window, block, rows_at_once)[0]


def _forward(q: Array, k: Array, v: Array, segment_ids: Array | None, window: int | None, block: int, rows_at_once: int):
    def of_rows(rows: tuple[Array, Array, Array, Array | None]) -> tuple[Array, Array]:
        queries, keys, values, segments = rows
        outputs, denominators = [], []
        for start, stop, first in _blocks(queries.shape[-2], block, window):
            scores = _dot(_fold(queries[..., start:stop, :]), keys[..., first:stop, :], 3, 3)
            seen = _mask(start, stop, first, window, segments)[:, None, None]
            scores = _fold(jnp.where(seen, _unfold(scores, queries.shape[2]), MASKED))
            top = scores.max(axis=-1, keepdims=True)
            weights = jnp.exp(scores - top)
            total = weights.sum(axis=-1, keepdims=True)
            read = _dot(weights.astype(values.dtype), values[..., first:stop, :], 3, 2) / total
            outputs.append(_unfold(read.astype(queries.dtype), queries.shape[2]))
            denominators.append(_unfold(top + jnp.log(total), queries.shape[2]))
        return jnp.concatenate(outputs, axis=-2), jnp.concatenate(denominators, axis=-2)

    out, log_total = _by_rows(of_rows, (q, k, v, segment_ids), rows_at_once)
    out, log_total = checkpoint_name(out, "attention"), checkpoint_name(log_total, "attention")
    return out, (q, k, v, segment_ids, out, log_total)


def _backward(window: int | None, block: int, rows_at_once: int, residuals: tuple, grad_out: Array):
    def of_rows(rows: tuple) -> tuple[Array, Array, Array]:
        queries, keys, values, segments, out, log_total, grad = rows
        group, length = queries.shape[2], queries.shape[-2]
        # the softmax gradient subtracts sum over keys of weight x its gradient, equal to output x gradient of output
        drift = (out.astype(jnp.float32) * grad.astype(jnp.float32)).sum(axis=-1, keepdims=True)
        grad_queries, grad_keys, grad_values = [], _zeros(keys), _zeros(values)
        for start, stop, first in _blocks(length, block, window):
            of_block, of_grad = _fold(queries[..., start:stop, :]), _fold(grad[..., start:stop, :])
            lowered = log_total[..., start:stop, 0][:, :, None]
            shift = _fold(drift[..., start:stop, :])[..., 0][..., None, :]
            seen, read = keys[..., first:stop, :], values[..., first:stop, :]
            scores = _dot(seen, of_block, 3, 3)
            apart = scores.reshape(*scores.shape[:-1], group, -1)
            mask = _mask(start, stop, first, window, segments, across=True)[:, None, :, None]
            # heads and queries as separate axes: with a folded axis XLA's CPU loop is 12x slower (2026-11-22)
            weights = jnp.exp(jnp.where(mask, apart, MASKED) - lowered).reshape(scores.shape)
            grad_scores = (weights * (_dot(read, of_grad, 3, 3) - shift)).astype(queries.dtype)
            grad_values = _add(grad_values, first, stop, _dot(weights.astype(grad.dtype), of_grad, 3, 2))
            grad_keys = _add(grad_keys, first, stop, _dot(grad_scores, of_block, 3, 2))
            across = jax.lax.optimization_barrier(seen.swapaxes(-1, -2))  # else XLA folds the transpose back into the product
            grad_queries.append(_unfold(_dot(across, grad_scores, 3, 2).swapaxes(-1, -2), group))
        return jnp.concatenate(grad_queries, axis=-2), grad_keys, grad_values

    q, k, v, segment_ids, out, log_total = residuals
    rows = (q, k, v, segment_ids, out, log_total, grad_out)
    grad_q, grad_k, grad_v = _by_rows(of_rows, rows, rows_at_once)
    return grad_q.astype(q.dtype), grad_k.astype(k.dtype), grad_v.astype(v.dtype), None


blocked_attention.defvjp(_forward, _backward)


def _by_rows(of_rows, rows: tuple, rows_at_once: int):
    """Apply `of_rows` to a few sequences at a time, one group after another."""
    batch = rows[0].shape[0]
    if rows_at_once == batch:
        return of_rows(rows)
    grouped = jax.tree.map(lambda array: array.reshape(-1, rows_at_once, *array.shape[1:]), rows)
    return jax.tree.map(lambda array: array.reshape(batch, *array.shape[2:]), jax.lax.map(of_rows, grouped))


def _blocks(length: int, block: int, window: int | None) -> list[tuple[int, int, int]]:
    """(first query, end, first key) of each block; keys end where queries do."""
    starts = range(0, length, block)
    return [(start, min(start + block, length), 0 if window is None else max(0, start - window + 1)) for start in starts]


def _mask(start: int, stop: int, first: int, window: int | None, segments: Array | None, *, across: bool = False) -> Array:
    """[1 or B, queries, keys], or `across` [1 or B, keys, queries]: true where a query of the block sees a key.

    Built in the orientation in which it is used, and broadcast over a group: a mask that is transposed or tiled inside
    a loop is read a byte at a time.
    """
    one, other = (2, 1) if across else (1, 2)  # the axes of keys and of queries that are missing
    query = jnp.expand_dims(jnp.arange(start, stop), (0, other))
    key = jnp.expand_dims(jnp.arange(first, stop), (0, one))
    mask = query >= key
    if window is not None:
        mask = mask & (query - key < window)
    if segments is not None:
        of_query = jnp.expand_dims(segments[:, start:stop], other)
        mask = mask & (of_query == jnp.expand_dims(segments[:, first:stop], one))
    return mask


def _fold(queries: Array) -> Array:
    """[B, K, G, Q, H] as [B, K, G x Q, H]: the queries of a key's group are rows of one product."""
    return queries.reshape(*queries.shape[:2], -1, queries.shape[-1])


def _unfold(rows: Array, group: int) -> Array:
    return rows.reshape(*rows.shape[:2], group, -1, rows.shape[-1])


def _dot(left: Array, right: Array, left_axis: int, right_axis: int) -> Array:
    """Batched product over one axis of each side, summed in float32."""
    dimensions = (((left_axis,), (right_axis,)), ((0, 1), (0, 1)))
    return jax.lax.dot_general(left, right, dimensions, preferred_element_type=jnp.float32)


def _zeros(like: Array) -> Array:
    return jnp.zeros(like.shape, jnp.float32)


def _add(total: Array, first: int, stop: int, part: Array) -> Array:
    return total.at[..., first:stop, :].add(part)
