"""The parts of a model: parameters, which have gradients; state, which training changes without one; and the rest."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from haliax import NamedArray
from jax.tree_util import GetAttrKey, SequenceKey
from jaxtyping import PyTree

from trainer.spec.roles import KEY, STATE


def parted(model: PyTree) -> tuple[PyTree, PyTree, PyTree]:
    """(parameters, state, rest), each shaped as the model with None for what is elsewhere. Of arrays or of shapes."""
    numbers, rest = eqx.partition(model, _is_number)
    kinds = jax.tree_util.tree_map_with_path(lambda path, _: declared_role(model, path) == STATE[KEY], numbers)
    state, parameters = eqx.partition(numbers, kinds)
    return parameters, state, rest


def joined(parameters: PyTree, state: PyTree | None, rest: PyTree) -> PyTree:
    """The model of its parts; `state` may be None for a model without any."""
    return eqx.combine(*(part for part in (parameters, state, rest) if part is not None))


def parameters_of(model: PyTree) -> PyTree:
    """Return the model's parameters; other leaves are None."""
    return parted(model)[0]


def declared_role(model: PyTree, path: tuple) -> str | None:
    """The role that the field of an array declares, or that of a field around it; None if there is none.

    All of a field that is declared as state is state.
    """
    node, role = model, None
    for key in path:
        if isinstance(node, NamedArray) or role == STATE[KEY]:
            break
        if isinstance(key, GetAttrKey) and dataclasses.is_dataclass(node):
            declared = {field.name: field.metadata.get(KEY) for field in dataclasses.fields(node)}
            role = declared[key.name] or role
            node = getattr(node, key.name)
        elif isinstance(key, SequenceKey):
            node = node[key.idx]
    return role


def _is_number(leaf: object) -> bool:
    shaped = eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
    return shaped and jnp.issubdtype(getattr(leaf, "dtype"), jnp.inexact)  # noqa: B009
