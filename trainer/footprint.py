"""Estimate what a run needs, from shapes alone: nothing is allocated, so a laptop can plan for any number of chips.

The state is the trainer's own (`initial_step_state` under `jax.eval_shape`), laid over the trainer's own mesh
(`Layout.shardings` on an abstract one). Activations are what the traced backward pass keeps of its forward pass. FLOPs are
three times those of the traced forward pass over the full span of attention, as Levanter counts them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from haliax import NamedArray
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Var
from jax.sharding import AbstractMesh, AxisType, Mesh
from jaxtyping import PyTree

from trainer.model.build import model_shapes
from trainer.model.parts import parameters_of
from trainer.model.protocol import LanguageModel
from trainer.objectives import next_token_loss
from trainer.optimizers.groups import STACKED
from trainer.spec.compute import ACCELERATOR_BLOCK, Backend, Compute, Remat, loss_rows
from trainer.spec.config import RunSpec
from trainer.spec.mesh import PARAMETERS, Layout, MeshShape
from trainer.spec.moe import MoeConfig
from trainer.step import StepState, initial_step_state

MESH_AXES = ("slice", "data", "expert", "tensor")


@dataclass(frozen=True)
class Footprint:
    """Bytes and FLOPs of one training step. Fields `device_*` are per device, the others for the whole run."""

    parameters: int
    active_parameters: int
    flops_per_step: float
    state_bytes: int
    """Size of a checkpoint: parameters, optimizer state, average, guards."""
    device_state_bytes: int
    device_gradient_bytes: int
    """Gradients of the parameters; twice if a step sums over several microbatches."""
    device_activation_bytes: int
    """What the backward pass of one microbatch keeps, with the declared `remat`: activations, weights in another precision."""
    device_working_bytes: int
    """An estimate: the weights in the precision of products, two gathered layers, the gradient of one, the head, its gradient,
    one tile of logits, and the gradients of one layer's activations. With `remat` also what is computed again for one layer."""
    replicated_arrays: int
    """Arrays of a checkpoint that every device holds whole; one host writes each."""

    @property
    def device_bytes(self) -> int:
        return self.device_state_bytes + self.device_gradient_bytes + self.device_activation_bytes + self.device_working_bytes


def footprint(spec: RunSpec, shape: MeshShape, devices: int, platform: str = "tpu") -> Footprint:
    """Of a step with the first phase's batch on `platform`, whose tiles of logits it counts.

    Raises: ValueError for an array or batch that the mesh cannot divide."""
    model, state = _shapes(spec)
    sizes = shape.sizes(devices)
    layout = Layout(cast(Mesh, AbstractMesh(sizes, MESH_AXES)))  # only shapes are placed on it
    batch = spec.batches.size(0)
    microbatch = spec.microbatch_size or batch
    if microbatch % layout.batch_shards:
        raise ValueError(f"a microbatch of {microbatch} sequences does not divide over {layout.batch_shards} devices")
    parameters, part = parameters_of(model), _tensor_part(model, sizes[3])
    gradients = _device_bytes(layout, parameters) * (1 if microbatch == batch else 2)
    device_rows = microbatch // layout.batch_shards
    kept = kept_bytes(spec, part, device_rows, sizes[2])
    tile_rows = min(loss_rows(spec.model.vocab_size, platform), device_rows * spec.seq_len)
    return Footprint(
        parameters=spec.model.num_parameters,
        active_parameters=spec.model.active_parameters,
        flops_per_step=3.0 * forward_flops(spec, model) * batch,
        state_bytes=_bytes(state),
        device_state_bytes=_device_bytes(layout, state),
        device_gradient_bytes=gradients,
        device_activation_bytes=kept.activations + kept.weights // sizes[1],
        device_working_bytes=_working_bytes(spec, model, layout, sizes, device_rows, tile_rows),
        replicated_arrays=sum(not any(sharding.spec) for sharding in jax.tree.leaves(layout.shardings(state))),
    )


def state_bytes(spec: RunSpec) -> int:
    """Bytes of parameters, optimizer state, average and guards together."""
    return _bytes(_shapes(spec)[1])


def _shapes(spec: RunSpec) -> tuple[LanguageModel, StepState]:
    """The model and the state of its first step, as shapes."""
    model = model_shapes(spec.model)
    return model, eqx.filter_eval_shape(lambda m: initial_step_state(spec, m), model)


def _is_trained(leaf: object) -> bool:
    """`eqx.is_inexact_array` for shapes."""
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def forward_flops(spec: RunSpec, model: LanguageModel) -> float:
    """FLOPs of the matrix products in the forward pass of one sequence, with attention over its full span."""
    compute = _on_accelerator(spec, "reference", spec.seq_len, "none", unrolled=False)
    parameters, static = eqx.partition(model, _is_trained)
    tokens = jax.ShapeDtypeStruct((1, spec.seq_len), jnp.int32)
    hidden = jax.make_jaxpr(lambda p, t: eqx.combine(p, static).hidden(t, None, compute))(parameters, tokens)
    head = 2.0 * spec.model.hidden_dim * spec.model.vocab_size * spec.seq_len
    return product_flops(hidden) + head


def _on_accelerator(spec: RunSpec, attention: Backend, block: int, remat: Remat, *, unrolled: bool) -> Compute:
    """How an accelerator computes: without the choices made for a CPU's cache."""
    return Compute(
        dtype=spec.compute.dtype,
        attention=attention,
        block=block,
        one_by_one=False,
        by_rows=False,
        remat=remat,
        unrolled=unrolled,
        notes=(),
        experts="ragged" if isinstance(spec.model, MoeConfig) else None,
        exchange=spec.compute.exchange if isinstance(spec.model, MoeConfig) else None,
    )


def product_flops(traced: ClosedJaxpr | Jaxpr) -> float:
    """FLOPs of the products in a traced function, 2 per multiply-add; a loop counts as often as it runs."""
    total = 0.0
    for equation in traced.eqns:
        name, inputs = equation.primitive.name, [_shaped(variable) for variable in equation.invars]
        if name == "dot_general":
            ((contracted, _), _) = equation.params["dimension_numbers"]
            depth = math.prod(inputs[0].shape[dim] for dim in contracted)
            total += 2.0 * depth * math.prod(_shaped(equation.outvars[0]).shape)
        elif name.startswith("ragged_dot"):
            total += 2.0 * math.prod(inputs[0].shape) * inputs[1].shape[-1]
        elif name == "while":
            raise ValueError("a loop of unknown length cannot be counted; trace with scan")
        else:
            times = equation.params.get("length", 1) if name == "scan" else 1
            total += times * sum(product_flops(inner) for inner in _inner(equation.params))
    return total


def _inner(params: dict) -> Iterator[ClosedJaxpr | Jaxpr]:
    """Traced functions among an equation's parameters; for a custom derivative only the function."""
    for name, value in params.items():
        if name in ("jaxpr", "call_jaxpr") and isinstance(value, ClosedJaxpr | Jaxpr):
            yield value


class Kept(NamedTuple):
    """Bytes that the backward pass keeps on a device."""

    activations: int
    weights: int
    """Copies of weights in the precision of products, before the mesh axis `data` splits them."""


def kept_bytes(spec: RunSpec, model: LanguageModel, rows: int, ways: int = 1) -> Kept:
    """What the forward pass hands to the backward pass on a device that holds `rows` sequences, without parameters.

    Traced for one row and for two: what does not grow with the rows is weights in another precision. Attention is `blocked`,
    which keeps what flash attention keeps. `ways`: devices that experts are split over; each holds the rows of all of them
    between its exchanges.
    """
    with jax.sharding.use_abstract_mesh(AbstractMesh((1, 1, ways, 1), MESH_AXES, (AxisType.Auto,) * 4)):
        one, two = (_handed_back(spec, model, count * ways) for count in (1, 2))
    narrow = [each for each in one if each.dtype == spec.compute.dtype]
    fixed = 0
    if jnp.dtype(spec.compute.dtype).itemsize < 4:
        fixed = 2 * sum(map(_aval_bytes, narrow)) - sum(_aval_bytes(each) for each in two if each.dtype == spec.compute.dtype)
    return Kept((sum(map(_aval_bytes, two)) - sum(map(_aval_bytes, one))) * rows // ways, fixed)


def _handed_back(spec: RunSpec, model: LanguageModel, rows: int) -> list[ShapedArray]:
    """The arrays that the traced backward pass of so many sequences takes from its forward pass."""
    block = min(ACCELERATOR_BLOCK, spec.seq_len)
    compute = _on_accelerator(spec, "blocked", block, spec.compute.remat, unrolled=spec.compute.layers == "unrolled")
    parameters, static = eqx.partition(model, _is_trained)
    tokens = jax.ShapeDtypeStruct((rows, spec.seq_len), jnp.int32)

    def backward(p: PyTree, t: jax.Array) -> PyTree:
        def objective(q: PyTree) -> jax.Array:
            return next_token_loss(eqx.combine(q, static), t, spec.z_loss_weight, compute=compute)[0]

        return jax.vjp(objective, p)[1]

    traced = jax.make_jaxpr(backward)(parameters, tokens).jaxpr
    given = set(traced.invars)
    kept = {variable for variable in traced.outvars if isinstance(variable, Var) and variable not in given}
    return [_shaped(variable) for variable in kept]


def _tensor_part(model: LanguageModel, ways: int) -> LanguageModel:
    """The shapes of a model's heads and MLPs that one device of the mesh axis `tensor` has; the residual stream stays whole."""

    def part(leaf: object) -> object:
        if not isinstance(leaf, NamedArray):
            return leaf
        split = [axis.size // ways if PARAMETERS.get(axis.name) == "tensor" else axis.size for axis in leaf.axes]
        return NamedArray(jax.ShapeDtypeStruct(tuple(split), leaf.dtype), leaf.axis_names)  # type: ignore[arg-type]

    return jax.tree.map(part, model, is_leaf=lambda leaf: isinstance(leaf, NamedArray))


def _working_bytes(
    spec: RunSpec, model: LanguageModel, layout: Layout, sizes: tuple[int, ...], device_rows: int, tile_rows: int
) -> int:
    """`device_rows`: sequences of a device's microbatch. `tile_rows`: of a tile of logits.

    A gathered layer is still split over `expert` and `tensor`."""
    wide = jnp.dtype(spec.compute.dtype).itemsize
    layer = _stacked_elements(model) // spec.model.num_layers // (sizes[2] * sizes[3])
    head = spec.model.vocab_size * spec.model.hidden_dim
    loss = head * (wide + 4) + tile_rows * spec.model.vocab_size * (4 + wide)
    # XLA moves the conversion of all layers before the loop over layers (read in compiled steps for v5p, libtpu 0.0.48.1)
    converted = _device_bytes(layout, parameters_of(model)) // 4 * wide if wide < 4 else 0
    whole = replace(spec, compute=replace(spec.compute, remat="none"))
    of_layer = kept_bytes(whole, _tensor_part(model, sizes[3]), device_rows, sizes[2]).activations // spec.model.num_layers
    times = (2 if isinstance(spec.model, MoeConfig) else 1) + (spec.compute.remat != "none")
    return converted + max(loss, 2 * layer * wide + layer * 4 + times * of_layer)


def _stacked_elements(model: PyTree) -> int:
    """Elements of all arrays that hold every layer."""
    leaves = jax.tree.leaves(model, is_leaf=lambda leaf: isinstance(leaf, NamedArray))
    stacked = [leaf for leaf in leaves if isinstance(leaf, NamedArray) and STACKED in (axis.name for axis in leaf.axes)]
    return sum(math.prod(axis.size for axis in leaf.axes) for leaf in stacked)


def _bytes(tree: PyTree) -> int:
    return sum(_aval_bytes(leaf) for leaf in jax.tree.leaves(tree))


def _device_bytes(layout: Layout, tree: PyTree) -> int:
    """Bytes of a tree on one device. Raises: ValueError naming a shape that the mesh cannot divide."""
    leaves, shardings = jax.tree.leaves(tree), jax.tree.leaves(layout.shardings(tree))
    shapes = (sharding.shard_shape(leaf.shape) for leaf, sharding in zip(leaves, shardings, strict=True))
    return sum(math.prod(shape) * leaf.dtype.itemsize for leaf, shape in zip(leaves, shapes, strict=True))


def _shaped(variable: object) -> ShapedArray:
    """Shape and dtype of a traced value, which must be an array (not a token or a reference)."""
    aval = getattr(variable, "aval", None)
    assert isinstance(aval, ShapedArray), f"{variable} is no array"
    return aval


def _aval_bytes(aval: jax.ShapeDtypeStruct | ShapedArray) -> int:
    return math.prod(aval.shape) * aval.dtype.itemsize
