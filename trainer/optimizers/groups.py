"""Parameters by role, and what a rule must know of their axes: which are stacked, which are a matrix's inputs.

A parameter tree has the structure of the model: named arrays, whose values may be masked out (`optax.MaskedNode`).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import haliax as hax
import jax
import optax
from haliax import NamedArray
from jax.tree_util import GetAttrKey, SequenceKey
from jaxtyping import Array, Float, PyTree

from trainer.spec.roles import KEY, Role

STACKED = "layers"
RESIDUAL = "embed"
"""The axis that every matrix of a block reads from or writes to."""


def role_of(model: PyTree, path: tuple) -> Role:
    """The role that the field of a parameter declares (`trainer.spec.roles`); `path` is the parameter's path in the model.

    Raises: TypeError naming a parameter whose field declares no role.
    """
    node, role = model, None
    for key in path:
        if isinstance(node, NamedArray):
            break
        if isinstance(key, GetAttrKey) and dataclasses.is_dataclass(node):
            declared = {field.name: field.metadata.get(KEY) for field in dataclasses.fields(node)}
            role = declared[key.name] or role
            node = getattr(node, key.name)
        elif isinstance(key, SequenceKey):
            node = node[key.idx]
    if role is None:
        name = jax.tree_util.keystr(path)
        raise TypeError(f"parameter {name} declares no role; give its field metadata=MATRIX or another of trainer.spec.roles")
    return role


def groups(model: PyTree) -> PyTree:
    """The role of every trainable parameter, as a tree of strings."""
    parameters = eqx.filter(model, eqx.is_inexact_array)
    return jax.tree_util.tree_map_with_path(lambda path, _: role_of(parameters, path), parameters)


def decay_mask(model: PyTree, decay_groups: Sequence[Role]) -> PyTree:
    """True where weight decay applies."""
    return jax.tree.map(lambda role: role in decay_groups, groups(model))


def map_named(function: Callable[..., NamedArray], first: PyTree, *rest: PyTree) -> PyTree:
    """`jax.tree.map` whose leaves are named arrays; masked ones stay as they are."""

    def unless_masked(named: NamedArray, *others: NamedArray) -> NamedArray:
        return named if isinstance(named.array, optax.MaskedNode) else function(named, *others)

    return jax.tree.map(unless_masked, first, *rest, is_leaf=lambda leaf: isinstance(leaf, NamedArray))


def own_dims(named: NamedArray) -> tuple[int, ...]:
    """Dimensions of one parameter, without the stack of layers it is stored in."""
    return tuple(dim for dim, axis in enumerate(named.axes) if axis.name != STACKED)


def as_matrices(named: NamedArray) -> Float[Array, "layers inputs outputs"]:
    """A weight as a stack of matrices, inputs before outputs; one matrix for a weight that is not stacked.

    Raises: ValueError for a weight that neither begins nor ends with the residual stream: its inputs are unknown.
    """
    axes = [axis for axis in named.axes if axis.name != STACKED]
    if len(axes) < 2 or RESIDUAL not in (axes[0].name, axes[-1].name):
        names = ", ".join(axis.name for axis in named.axes)
        raise ValueError(f"a weight over ({names}) is no matrix from or to {RESIDUAL!r}; give it another role than 'matrix'")
    inputs = axes[:1] if axes[0].name == RESIDUAL else axes[:-1]
    num_inputs = math.prod(axis.size for axis in inputs)
    return named.array.reshape(-1, num_inputs, math.prod(axis.size for axis in axes) // num_inputs)


def like(named: NamedArray, values: Array) -> NamedArray:
    """Values of any shape, with the axes of a parameter."""
    return hax.named(values.reshape(named.array.shape), named.axes)
