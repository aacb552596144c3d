"""The mesh of devices, and the placement of a run's arrays on it by their named axes.

`slice` replicates across slices: only gradients cross the slow network between them. `data` shards the batch and, by the
residual axis, parameters and optimizer state (FSDP, ZeRO-3: weights are gathered a layer at a time, because activations are
pinned to the batch). `tensor` splits heads and MLP. `expert` splits the experts of a mixture of experts, and the batch once
more (`trainer.model.expert_parallel`). A mesh decides where numbers are and in which order they are added,
not what a run is: it is in the checkpoint's record and in no identity.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import haliax as hax
import jax
import numpy as np
from haliax import NamedArray
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from trainer.spec.checks import require
from trainer.spec.config import RunSpec

BATCH_AXES = ("slice", "data", "expert")
PARAMETERS = {"embed": "data", "mlp": "tensor", "kv_heads": "tensor", "expert": "expert", "expert_mlp": "tensor"}
"""Mesh axis by named axis, for parameters and all trees of the same shape: gradients, moments, averages."""
ACTIVATIONS = {"batch": BATCH_AXES, "mlp": "tensor", "kv_heads": "tensor"}


@dataclass(frozen=True)
class MeshShape:
    """Devices along every axis; `data` None: all that the other axes leave."""

    slice: int = 1
    data: int | None = None
    expert: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        for name in ("slice", "expert", "tensor"):
            require(getattr(self, name) > 0, f"mesh.{name}", getattr(self, name), "positive")
        require(self.data is None or self.data > 0, "mesh.data", self.data, "positive, or left out for the rest")

    @staticmethod
    def parse(text: str) -> "MeshShape":
        """Parse `MARIN_MESH`, like `data=4,tensor=2`; empty: all devices along `data`. Raises: ValueError naming a bad part.

        >>> MeshShape.parse("slice=2, tensor=4"), MeshShape.parse("")
        (MeshShape(slice=2, data=None, expert=1, tensor=4), MeshShape(slice=1, data=None, expert=1, tensor=1))
        """
        sizes: dict[str, int] = {}
        known = [field.name for field in fields(MeshShape)]
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, size = (word.strip() for word in part.partition("="))
            if name not in known or name in sizes or not size.isdecimal():
                raise ValueError(
                    f"MARIN_MESH is {text!r}; it must be like 'data=4,tensor=2', each of {', '.join(known)} at most once"
                )
            sizes[name] = int(size)
        try:
            return MeshShape(**sizes)
        except ValueError as error:
            raise ValueError(f"MARIN_MESH: {error}") from error

    def sizes(self, devices: int) -> tuple[int, int, int, int]:
        """(slice, data, expert, tensor) for a number of devices. Raises: ValueError if their product is not `devices`."""
        others = self.slice * self.expert * self.tensor
        data = devices // others if self.data is None else self.data
        if data * others != devices:
            raise ValueError(
                f"mesh slice={self.slice}, data={self.data or 'rest'}, expert={self.expert}, tensor={self.tensor} "
                f"does not cover {devices} devices; choose sizes (MARIN_MESH) whose product is {devices}"
            )
        return self.slice, data, self.expert, self.tensor


@dataclass(frozen=True)
class Layout:
    """A mesh, and the placement of a run's arrays on it."""

    mesh: Mesh

    @staticmethod
    def of(shape: MeshShape, devices: Sequence[jax.Device] | None = None) -> "Layout":
        """Place a shape on devices (default: those of all processes), neighbours along the last axes; slices stay whole."""
        chosen = list(jax.devices()) if devices is None else list(devices)
        slices, *inside = shape.sizes(len(chosen))
        if slices > 1 and len({getattr(device, "slice_index", 0) for device in chosen}) == slices:
            grid = mesh_utils.create_hybrid_device_mesh((1, *inside), (slices, 1, 1, 1), devices=chosen)
        elif chosen[0].platform == "tpu":
            grid = mesh_utils.create_device_mesh((slices, *inside), devices=chosen)
        else:  # devices are ordered by process, so the outer axes split processes first
            grid = np.array(chosen).reshape(slices, *inside)
        return Layout(Mesh(grid, tuple(field.name for field in fields(MeshShape))))

    @property
    def size(self) -> int:
        return self.mesh.size

    @property
    def batch_shards(self) -> int:
        return math.prod(self.mesh.shape[name] for name in BATCH_AXES)

    def to_record(self) -> dict[str, int]:
        """The mesh as a checkpoint records it."""
        return {"processes": jax.process_count(), **{name: int(size) for name, size in self.mesh.shape.items()}}

    def check(self, spec: RunSpec) -> None:
        """Raises: ValueError naming the field of the run that this mesh cannot divide."""
        experts = self.mesh.shape["expert"]
        if experts > 1 and "expert" not in spec.model.AXIS_FIELDS:
            raise ValueError(f"mesh.expert is {experts}; it must be 1, because the run's model has no experts")
        for phase in spec.batches.phases:
            for name, size in (("batch_size", phase.batch_size), ("microbatch_size", spec.microbatch_size)):
                if size is not None and size % self.batch_shards:
                    raise ValueError(
                        f"run.{name} is {size}; it must be a multiple of {self.batch_shards}, the mesh's slice x data "
                        f"({self.describe()}); change it or set MARIN_MESH, for example tensor=2"
                    )
        for axis, name in spec.model.AXIS_FIELDS.items():
            along = PARAMETERS[axis]
            size, ways = getattr(spec.model, name), self.mesh.shape[along]
            if size % ways:
                raise ValueError(
                    f"model.{name} is {size}; it must be a multiple of {ways}, the mesh's {along} "
                    f"({self.describe()}); change it or set MARIN_MESH"
                )

    def describe(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.mesh.shape.items())

    def shardings(self, tree: PyTree) -> PyTree:
        """A sharding for every array of a state (or its shape): by its named axes; without them, replicated."""

        def of(node: object) -> object:
            if isinstance(node, NamedArray):
                names = PartitionSpec(*(PARAMETERS.get(name) for name in node.axis_names))
                return jax.tree.map(lambda _: NamedSharding(self.mesh, names), node)
            return NamedSharding(self.mesh, PartitionSpec())

        return jax.tree.map(of, tree, is_leaf=lambda node: isinstance(node, NamedArray))

    def rows(self, count: int, read: Callable[[int, int], np.ndarray]) -> jax.Array:
        """Rows [count, sequence] split over the batch axes; `read(first, number)` is called once per range of this process."""
        width: int | None = None
        ranges: dict[tuple[int, int], np.ndarray] = {}
        sharding = NamedSharding(self.mesh, PartitionSpec(BATCH_AXES, None))
        for index in sharding.addressable_devices_indices_map((count, 1)).values():
            assert index is not None
            first, last, _ = index[0].indices(count)
            if (first, last) not in ranges:
                ranges[first, last] = read(first, last - first)
                width = ranges[first, last].shape[1]
        assert width is not None

        def share(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            first, last, _ = index[0].indices(count)
            return ranges[first, last]

        return jax.make_array_from_callback((count, width), sharding, share)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Context that pins activations of a traced model to this mesh (`hax.auto_sharded`); no effect on one device."""
        if self.size == 1:
            yield
            return
        with jax.set_mesh(self.mesh), hax.axis_mapping(ACTIVATIONS):
            yield


def batch_axes() -> tuple[str, ...]:
    """Mesh axes that rows are split over at this point of the trace; none outside `Layout.pinned`."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple(name for name in BATCH_AXES if not mesh.empty and mesh.shape.get(name, 1) > 1)


def is_spread() -> bool:
    """Whether arrays are split over devices at this point of the trace."""
    mesh = jax.sharding.get_abstract_mesh()
    return not mesh.empty and mesh.size > 1
