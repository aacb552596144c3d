"""Parameters by role, and what a rule must know of their axes: which are stacked, which are a matrix's inputs.

A parameter tree is the model's, with named arrays whose values may be masked out (`optax.MaskedNode`).
"""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import haliax as hax
import jax
import optax
from haliax import NamedArray
from jaxtyping import Array, Float, PyTree

from trainer.optimizers.config import Group

STACKED = "layers"
RESIDUAL = "embed"
"""The axis that every matrix of a block reads from or writes to."""


def group_of(name: str) -> Group:
    """The group of a parameter by its path in the model, as `jax.tree_util.keystr` writes it.

    >>> [group_of(n) for n in (".embedding[0]", ".blocks.stacked.mlp.w_up[0]", ".norm.weight[0]", ".head[0]")]
    ['embedding', 'matrix', 'norm', 'head']
    """
    if "norm" in name:
        return "norm"
    if name.startswith(".embedding"):
        return "embedding"
    return "head" if name.startswith(".head") else "matrix"


def groups(model: PyTree) -> PyTree:
    """The group of every trainable parameter, as a tree of strings."""
    parameters = eqx.filter(model, eqx.is_inexact_array)
    return jax.tree_util.tree_map_with_path(lambda path, _: group_of(jax.tree_util.keystr(path)), parameters)


def decay_mask(model: PyTree, decay_groups: Sequence[Group]) -> PyTree:
    """True where weight decay applies."""
    return jax.tree.map(lambda group: group in decay_groups, groups(model))


def map_named(function: Callable[..., NamedArray], first: PyTree, *rest: PyTree) -> PyTree:
    """`jax.tree.map` whose leaves are named arrays; masked ones stay as they are."""

    def unless_masked(named: NamedArray, *others: NamedArray) -> NamedArray:
        return named if isinstance(named.array, optax.MaskedNode) else function(named, *others)

    return jax.tree.map(unless_masked, first, *rest, is_leaf=lambda leaf: isinstance(leaf, NamedArray))


def own_dims(named: NamedArray) -> tuple[int, ...]:
    """Dimensions of one parameter, without the stack of layers it is stored in."""
    return tuple(dim for dim, axis in enumerate(named.axes) if axis.name != STACKED)


def as_matrices(named: NamedArray) -> Float[Array, "layers inputs outputs"]:
    """A weight as a stack of matrices, inputs before outputs; one for a weight that is not stacked.

    Raises: ValueError for a weight that neither begins nor ends with the residual stream, whose inputs nobody has named.
    """
    axes = [axis for axis in named.axes if axis.name != STACKED]
    if len(axes) < 2 or RESIDUAL not in (axes[0].name, axes[-1].name):
        names = ", ".join(axis.name for axis in named.axes)
        raise ValueError(f"a weight over ({names}) is no matrix from or to {RESIDUAL!r}; give it another group than 'matrix'")
    inputs = axes[:1] if axes[0].name == RESIDUAL else axes[:-1]
    num_inputs = math.prod(axis.size for axis in inputs)
    return named.array.reshape(-1, num_inputs, math.prod(axis.size for axis in axes) // num_inputs)


def like(named: NamedArray, values: Array) -> NamedArray:
    """Values, whatever their shape, with the axes of a parameter."""
    return hax.named(values.reshape(named.array.shape), named.axes)
