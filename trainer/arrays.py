"""Move trees of arrays between devices and files: copy the arrays of this process to the host, read arrays onto any mesh."""

import json
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree
from safetensors.numpy import save_file

from trainer.array_files import SHAPES, ArrayFiles, Index
from trainer.new_rows import MoreRows
from trainer.upcycling import MlpsAsExperts


@dataclass(frozen=True)
class HostArrays:
    """The part of a tree that one process holds, in host memory: whole arrays, or pieces with the whole shapes."""

    arrays: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int, ...]] | None = None
    """Shapes of the whole arrays; None if `arrays` holds whole arrays."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def save(self, folder: Path, name: str) -> None:
        """Write `name.safetensors`, or this process's part of it."""
        if self.shapes is None:
            save_file(dict(self.arrays), folder / f"{name}.safetensors")
            return
        part = f"{name}.{jax.process_index():05d}-of-{jax.process_count():05d}.safetensors"
        save_file(dict(self.arrays), folder / part, {SHAPES: json.dumps({k: list(v) for k, v in self.shapes.items()})})


def copied_to_host(tree: PyTree) -> HostArrays:
    """Copy the arrays of a tree to the host, because the next step may overwrite them on the device. Waits for their values."""
    leaves = {
        jax.tree_util.keystr(path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    }  # fmt: skip
    for leaf in leaves.values():  # all transfers run at once; np.array below waits for its own
        if isinstance(leaf, jax.Array):
            leaf.copy_to_host_async()
    if jax.process_count() == 1:
        return HostArrays({name: np.array(leaf) for name, leaf in leaves.items()})
    pieces: dict[str, np.ndarray] = {}
    for name, leaf in leaves.items():
        for shard in leaf.addressable_shards:
            if shard.replica_id == 0:
                pieces[_piece(name, shard.index)] = np.array(shard.data)
    return HostArrays(pieces, {name: tuple(leaf.shape) for name, leaf in leaves.items()})


def _piece(name: str, index: Index) -> str:
    return f"{name}@{','.join(str(axis.start or 0) for axis in index)}"


def filled(
    like: PyTree,
    files: ArrayFiles | MlpsAsExperts | MoreRows,
    may_keep: Callable[[str], bool] = lambda name: False,
    unread: Set[str] = frozenset(),
) -> PyTree:
    """`like` with its arrays (or shapes) replaced by those of the files; each process reads only the slices of its devices.

    An array stays as it is if it is in `unread`, or if the files lack it and `may_keep(name)` is true.

    Raises: ValueError naming the first other array that differs.
    """
    wanted = shapes_of(like)
    unchanged = {name for name in wanted.keys() - files.shapes.keys() if may_keep(name)} | unread
    odd = sorted(n for n in (wanted.keys() | files.shapes.keys()) - unchanged if wanted.get(n) != files.shapes.get(n))
    if odd:
        there, here = files.shapes.get(odd[0]), wanted.get(odd[0])
        raise ValueError(f"{files.where}: array {odd[0]} is {there} in the checkpoint, the run spec needs {here}")

    def fill(path: tuple, leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        sharding = getattr(leaf, "sharding", None)
        if name in unchanged:
            return leaf
        if sharding is None or len(sharding.device_set) == 1:
            return jax.numpy.asarray(files.read(name))
        read = cache(partial(files.read, name))  # one read for all devices that hold the same slice
        return jax.make_array_from_callback(tuple(leaf.shape), sharding, read)

    dynamic, static = eqx.partition(like, is_array_or_shape)
    return eqx.combine(jax.tree_util.tree_map_with_path(fill, dynamic), static)


def shapes_of(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every array, by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array_or_shape))
    return {jax.tree_util.keystr(path): (tuple(leaf.shape), str(leaf.dtype)) for path, leaf in leaves}


def is_array_or_shape(leaf: object) -> bool:
    """Whether a leaf can be filled: an array or a shape (of `eqx.filter_eval_shape`)."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def words_of(name: str) -> set[str]:
    """The field names in the path of an array."""
    return set(re.findall(r"\w+", name))
