"""Attention by several back-ends behind one function, with the same mask for all.

A query sees the keys at or before it, within its window if there is one, and of its own segment if ids are given.
Shapes: B batch, S sequence, K key/value heads, G queries a key/value head, H head size.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from trainer.model.attention_blocked import blocked_attention
from trainer.spec.compute import Compute
from trainer.spec.mesh import BATCH_AXES, batch_axes, is_spread

MASKED = -1e9


def attention(
    q: Float[Array, "B S K G H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    segment_ids: Int[Array, "B S"] | None,
    window: int | None,
    compute: Compute,
) -> Float[Array, "B S K G H"]:
    """softmax(q k^T / sqrt(H)) v over what each query sees, softmax in float32, by the resolved back-end."""
    match compute.attention:
        case "reference":
            return reference_attention(q, k, v, segment_ids, window)
        case "blocked":
            return _blocked(q, k, v, segment_ids, window, compute)
        case "xla":
            return _dot_product(q, k, v, segment_ids, window, "xla")
        case "cudnn":
            return on_each_device(lambda q, k, v, ids: _dot_product(q, k, v, ids, window, "cudnn"), q, k, v, segment_ids)
        case "splash":
            return splash_attention(q, k, v, segment_ids, window)


def visible(length: int, window: int | None, segment_ids: Int[Array, "B S"] | None) -> Bool[Array, "B1 S S"]:
    """The mask [1 or B, query, key]: true where a query sees a key. The plain form, for the reference back-end."""
    query, key = jnp.arange(length)[:, None], jnp.arange(length)[None, :]
    mask = query >= key
    if window is not None:
        mask = mask & (query - key < window)
    mask = mask[None]
    return mask if segment_ids is None else mask & (segment_ids[:, :, None] == segment_ids[:, None, :])


def reference_attention(
    q: Float[Array, "B S K G H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K H"],
    segment_ids: Int[Array, "B S"] | None,
    window: int | None,
) -> Float[Array, "B S K G H"]:
    """All scores at once, as in the formula; for tests and small shapes."""
    scores = jnp.einsum("bskgh,btkh->bkgst", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    mask = visible(q.shape[1], window, segment_ids)[:, None, None]
    weights = jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1)
    return checkpoint_name(jnp.einsum("bkgst,btkh->bskgh", weights.astype(v.dtype), v), "attention")


def on_each_device(
    kernel: Callable[[Array, Array, Array, Array | None], Array], q: Array, k: Array, v: Array, segment_ids: Array | None
) -> Array:
    """Run a kernel that XLA cannot split on each device, for the rows and key/value heads of that device.

    jax refuses Splash's Mosaic call on several devices. cuDNN's call has a partitioning rule that raises if XLA placed queries,
    keys and values differently (jax 0.11.2, `_check_qkv_bias_mask_spec`).
    """
    if not is_spread():
        return kernel(q, k, v, segment_ids)
    rows, heads = PartitionSpec(BATCH_AXES), PartitionSpec(BATCH_AXES, None, "tensor")
    split = jax.shard_map(kernel, in_specs=(heads, heads, heads, rows), out_specs=heads, check_vma=False)
    return split(q, k, v, segment_ids)


def _blocked(q: Array, k: Array, v: Array, segment_ids: Array | None, window: int | None, compute: Compute) -> Array:
    """`blocked_attention` in this module's axis order.

    All rows at once if the batch is split over a mesh: in a loop over a split array every device computes all rows, and
    with the loop in `shard_map` the gradient crashed the process on two virtual devices (jax 0.11.2; cause not
    isolated).
    """
    queries, keys, values = (q * q.shape[-1] ** -0.5).transpose(0, 2, 3, 1, 4), k.swapaxes(1, 2), v.swapaxes(1, 2)
    at_once = 1 if compute.one_by_one and not batch_axes() else q.shape[0]
    out = blocked_attention(queries, keys, values, segment_ids, window, compute.block, at_once)
    return out.transpose(0, 3, 1, 2, 4)


def _dot_product(
    q: Array, k: Array, v: Array, segment_ids: Array | None, window: int | None, implementation: Literal["xla", "cudnn"]
) -> Array:
    """`jax.nn.dot_product_attention`; its heads are in the order of our key/value heads and their groups."""
    batch, length, kv_heads, group, size = q.shape
    mask = None
    if segment_ids is not None:
        mask = (segment_ids[:, :, None] == segment_ids[:, None, :])[:, None]
    out = jax.nn.dot_product_attention(
        q.reshape(batch, length, kv_heads * group, size),
        k,
        v,
        mask=mask,
        is_causal=True,
        local_window_size=None if window is None else (window - 1, 0),
        implementation=implementation,
    )
    return (out if implementation == "cudnn" else checkpoint_name(out, "attention")).reshape(q.shape)


def splash_attention(
    q: Array, k: Array, v: Array, segment_ids: Array | None, window: int | None, interpret: bool = False
) -> Float[Array, "B S K G H"]:
    """JAX's TPU kernel, which skips blocks that the mask leaves empty. `interpret` runs it anywhere, for tests."""
    # imports that take a second and that only TPUs need
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    group, length = q.shape[3], q.shape[1]
    if window is None:
        mask = splash_attention_mask.CausalMask((length, length))
    else:
        mask = splash_attention_mask.LocalMask((length, length), (window - 1, 0), 0)

    def of_sequence(queries: Array, keys: Array, values: Array, segments: Array | None) -> Array:
        kernel = splash_attention_kernel.make_splash_mqa_single_device(
            splash_attention_mask.MultiHeadMask([mask] * group), interpret=interpret, residual_checkpoint_name="attention"
        )
        ids = None if segments is None else splash_attention_kernel.SegmentIds(segments, segments)
        read = jax.vmap(kernel, in_axes=(0, 0, 0, None))(queries, keys, values, ids)
        assert isinstance(read, jax.Array)  # no residuals without save_residuals
        return read

    def of_rows(q: Array, k: Array, v: Array, segments: Array | None) -> Array:
        queries = (q * q.shape[-1] ** -0.5).transpose(0, 2, 3, 1, 4)
        out = jax.vmap(of_sequence)(queries, k.swapaxes(1, 2), v.swapaxes(1, 2), segments)
        return out.transpose(0, 3, 1, 2, 4)

    return on_each_device(of_rows, q, k, v, segment_ids)
