"""Trees of arrays between devices and files: copied to the host as a process has them, read back wherever a mesh wants them."""

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


@dataclass(frozen=True)
class HostArrays:
    """What one process keeps of a tree, copied to its own memory: whole arrays, or pieces with the whole shapes."""

    arrays: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int, ...]] | None = None
    """Of the whole arrays; None where `arrays` holds them."""

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
    """A copy of a tree's arrays, which the next step may overwrite on the device; waits for those who compute them."""
    leaves = {
        jax.tree_util.keystr(path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    }  # fmt: skip
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
    like: PyTree, files: ArrayFiles, kept: Callable[[str], bool] = lambda name: False, unread: Set[str] = frozenset()
) -> PyTree:
    """`like` with its arrays (or their shapes) replaced by name, each read only where its sharding has it here.

    An array that the files lack and that is `kept` stays, and so does one that is `unread`, whatever the files have of it.
    Raises: ValueError naming the first other that differs.
    """
    wanted = shapes_of(like)
    staying = {name for name in wanted.keys() - files.shapes.keys() if kept(name)} | unread
    odd = sorted(n for n in (wanted.keys() | files.shapes.keys()) - staying if wanted.get(n) != files.shapes.get(n))
    if odd:
        there, here = files.shapes.get(odd[0]), wanted.get(odd[0])
        raise ValueError(f"{files.where}: array {odd[0]} is {there} in the checkpoint, the run spec needs {here}")

    def fill(path: tuple, leaf: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        sharding = getattr(leaf, "sharding", None)
        if name in staying:
            return leaf
        if sharding is None or len(sharding.device_set) == 1:
            return jax.numpy.asarray(files.read(name))
        read = cache(partial(files.read, name))  # once where several devices hold the same
        return jax.make_array_from_callback(tuple(leaf.shape), sharding, read)

    dynamic, static = eqx.partition(like, is_array_or_shape)
    return eqx.combine(jax.tree_util.tree_map_with_path(fill, dynamic), static)


def shapes_of(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every array, by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array_or_shape))
    return {jax.tree_util.keystr(path): (tuple(leaf.shape), str(leaf.dtype)) for path, leaf in leaves}


def is_array_or_shape(leaf: object) -> bool:
    """What a tree that is to be filled may hold: arrays, or only their shapes (`eqx.filter_eval_shape` makes no array)."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def words_of(name: str) -> set[str]:
    """The fields' names in the path of an array."""
    return set(re.findall(r"\w+", name))
