"""Parameters by role, and what a rule must know of their axes: which are stacked, which are a matrix's inputs.

A parameter tree has the structure of the model: named arrays, whose values may be masked out (`optax.MaskedNode`).
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import haliax as hax
import jax
import optax
from haliax import NamedArray
from jaxtyping import Array, Float, PyTree

from trainer.model.parts import declared_role, parameters_of
from trainer.spec.roles import Role

STACKED = "layers"
STACKS = (STACKED, "expert")
"""Axes along which a weight is a stack of weights, each with a norm of its own."""
RESIDUAL = "embed"
"""The axis that every matrix of a block reads from or writes to."""


def role_of(model: PyTree, path: tuple) -> Role:
    """The role that the field of a parameter declares (`trainer.spec.roles`); `path` is the parameter's path in the model.

    Raises: TypeError naming a parameter whose field declares no role.
    """
    role = declared_role(model, path)
    if role is None:
        name = jax.tree_util.keystr(path)
        raise TypeError(f"parameter {name} declares no role; give its field metadata=MATRIX or another of trainer.spec.roles")
    return cast(Role, role)


def groups(model: PyTree) -> PyTree:
    """The role of every trainable parameter, as a tree of strings."""
    parameters = parameters_of(model)
    return jax.tree_util.tree_map_with_path(lambda path, _: role_of(parameters, path), parameters)


def decay_mask(model: PyTree, decay_groups: Sequence[Role]) -> PyTree:
    """True where weight decay applies; experts are matrices."""
    decayed = {*decay_groups, *(["expert"] if "matrix" in decay_groups else [])}
    return jax.tree.map(lambda role: role in decayed, groups(model))


def map_named(function: Callable[..., NamedArray], first: PyTree, *rest: PyTree) -> PyTree:
    """`jax.tree.map` whose leaves are named arrays; masked ones, and state in a tree of parameters, stay as they are."""

    def unless_masked(named: NamedArray, *others: NamedArray) -> NamedArray:
        return named if named.array is None or isinstance(named.array, optax.MaskedNode) else function(named, *others)

    return jax.tree.map(unless_masked, first, *rest, is_leaf=lambda leaf: isinstance(leaf, NamedArray))


def own_dims(named: NamedArray) -> tuple[int, ...]:
    """Dimensions of one parameter, without the stacks of layers and experts it is stored in."""
    return tuple(dim for dim, axis in enumerate(named.axes) if axis.name not in STACKS)


def as_matrices(named: NamedArray) -> Float[Array, "stack inputs outputs"]:
    """A weight as a stack of matrices, inputs before outputs; one matrix for a weight that is not stacked.

    Raises: ValueError for a weight that neither begins nor ends with the residual stream: its inputs are unknown.
    """
    axes = [axis for axis in named.axes if axis.name not in STACKS]
    if len(axes) < 2 or RESIDUAL not in (axes[0].name, axes[-1].name):
        names = ", ".join(axis.name for axis in named.axes)
        raise ValueError(f"a weight over ({names}) is no matrix from or to {RESIDUAL!r}; give it another role than 'matrix'")
    inputs = axes[:1] if axes[0].name == RESIDUAL else axes[:-1]
    num_inputs = math.prod(axis.size for axis in inputs)
    return named.array.reshape(-1, num_inputs, math.prod(axis.size for axis in axes) // num_inputs)


def like(named: NamedArray, values: Array) -> NamedArray:
    """Values of any shape, with the axes of a parameter."""
    return hax.named(values.reshape(named.array.shape), named.axes)
