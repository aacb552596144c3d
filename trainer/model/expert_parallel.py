"""Experts split over the devices of the mesh axis `expert`: how tokens of one device meet the experts of another.

`ring` gathers the tokens of all devices of a group, multiplies those of the device's own experts, and scatters the sums: every
device moves all tokens, nothing is dropped. `all_to_all` sends each assignment to the device of its expert, in buffers of fixed
size; a group's assignments above capacity are cut *before* the exchange, and results return in the order they were sent in
(Levanter's kernel cut after it, and a run went to loss 8.89: github.com/marin-community/marin/issues/4359).

A group is the devices that share a place on the other axes. A capacity counts within a group's tokens.
Shapes: n rows of a device, N of a group, W devices of a group, D hidden, E experts, k experts a token.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

from trainer.model.expert_products import ExpertWeights, experts_output, ranks
from trainer.model.router import Choice
from trainer.spec.compute import Compute
from trainer.spec.mesh import BATCH_AXES, is_spread


def capacity_of(rows: int, per_token: int, count: int, factor: float | None) -> int | None:
    """Assignments that an expert takes of `rows` rows; None: all."""
    return None if factor is None else min(rows, math.ceil(factor * rows * per_token / count))


def spread_output(
    x: Float[Array, "N D"],
    choice: Choice,
    weights: ExpertWeights,
    compute: Compute,
    activation: str,
    factor: float | None,
) -> tuple[Float[Array, "N D"], Int[Array, ""]]:
    """(the experts' output, dropped assignments), on one device or over the mesh of this point of the trace."""
    engine = compute.experts
    assert engine is not None
    count = weights.gate.shape[0]
    if not is_spread():
        capacity = capacity_of(x.shape[0], choice.ids.shape[1], count, factor)
        return experts_output(x, *choice, weights, engine, activation, capacity), _above(choice.ids, count, capacity)
    of_device = {"ring": _ring, "all_to_all": _all_to_all}[compute.exchange or "ring"]
    rows = PartitionSpec(BATCH_AXES)
    inner = PartitionSpec("expert", None, "tensor")
    split = jax.shard_map(
        partial(of_device, engine=engine, activation=activation, factor=factor, count=count),
        in_specs=(rows, rows, rows, (inner, inner, PartitionSpec("expert", "tensor", None))),
        out_specs=(rows, PartitionSpec()),
        check_vma=False,
    )
    return split(x, *choice, tuple(weights))


def _above(ids: Array, count: int, capacity: int | None) -> Int[Array, ""]:
    if capacity is None:
        return jnp.int32(0)
    loads = jax.nn.one_hot(ids, count, dtype=jnp.int32).sum(axis=(0, 1))
    return jnp.maximum(loads - capacity, 0).sum()


def _ring(x: Array, ids: Array, shares: Array, matrices: tuple[Array, Array, Array], *, engine, activation, factor, count):
    """Gather, product, scatter. The mesh axis `tensor` splits experts' widths, so its devices hold parts of sums."""
    weights = ExpertWeights(*matrices)
    everyone, *chosen = (jax.lax.all_gather(each, "expert", tiled=True) for each in (x, ids, shares))
    capacity = capacity_of(everyone.shape[0], ids.shape[1], count, factor)
    dropped = _above(chosen[0], count, capacity)
    own, taken = weights.gate.shape[0], chosen[0]
    if capacity is not None:
        taken = jnp.where(ranks(taken, count) < capacity, taken, count)
    local = taken - jax.lax.axis_index("expert") * own
    local = jnp.where((local >= 0) & (local < own), local, own)
    out = experts_output(everyone, local, chosen[1], weights, engine, activation)
    local_rows = jax.lax.psum_scatter(out, "expert", scatter_dimension=0, tiled=True)
    return jax.lax.psum(local_rows, "tensor"), jax.lax.psum(dropped, ("slice", "data"))


def _all_to_all(
    x: Array, ids: Array, shares: Array, matrices: tuple[Array, Array, Array], *, engine, activation, factor, count
):
    """Send assignments to their experts' devices and their results back. A device's buffer for another holds `room` rows."""
    weights = ExpertWeights(*matrices)
    ways, own, per_token = jax.lax.axis_size("expert"), weights.gate.shape[0], ids.shape[1]
    capacity = capacity_of(x.shape[0], per_token, count, factor)  # of this device's tokens, so that cutting needs no exchange
    dropped = _above(ids, count, capacity)
    kept = ids if capacity is None else jnp.where(ranks(ids, count) < capacity, ids, count)
    flat = kept.reshape(-1)
    room = flat.size if capacity is None else min(flat.size, own * capacity)
    device = jnp.where(flat < count, flat // own, ways)
    place = device * room + ranks(device[:, None], ways).reshape(-1)
    place = jnp.where(device < ways, place, ways * room)
    source = jnp.full(ways * room, flat.size, jnp.int32).at[place].set(jnp.arange(flat.size, dtype=jnp.int32), mode="drop")
    rows = x.at[source // per_token].get(mode="fill", fill_value=0)
    wanted = jnp.where(source < flat.size, flat.at[source].get(mode="fill", fill_value=0) % own, own)
    exchange = partial(jax.lax.all_to_all, axis_name="expert", split_axis=0, concat_axis=0, tiled=True)
    got, experts = exchange(rows), exchange(wanted)
    ones = jnp.ones((got.shape[0], 1), shares.dtype)
    back = exchange(experts_output(got, experts[:, None], ones, weights, engine, activation))
    each = back.at[place].get(mode="fill", fill_value=0).reshape(*ids.shape, -1)
    out = jnp.einsum("nk,nkd->nd", shares.astype(x.dtype), each)
    return jax.lax.psum(out, "tensor"), jax.lax.psum(dropped, BATCH_AXES)
