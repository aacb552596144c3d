"""Norms of every weight in every layer, computed inside the step and read only when they are logged.

Every step computes them. A second compiled step that alone computed norms could round differently, and the parameters of a run
would depend on how often its norms are logged.
"""

import jax
import jax.numpy as jnp
from haliax import NamedArray
from jaxtyping import Array, Float, PyTree

from trainer.model.parts import parameters_of
from trainer.optimizers.groups import STACKED


def norm_names(parameters: PyTree) -> tuple[str, ...]:
    """Names of the results of `norms`, in order: `embedding`, `blocks/0/attention/w_q`, ..."""
    names: list[str] = []
    for path, leaf in _named(parameters):
        words = [word for word in jax.tree_util.keystr(path, simple=True, separator="/").split("/") if word != "weight"]
        layers = [axis.size for axis in leaf.axes if axis.name == STACKED]
        if not layers:
            names.append("/".join(words))
            continue
        at = words.index("stacked")
        names += ["/".join([*words[:at], str(layer), *words[at + 1 :]]) for layer in range(layers[0])]
    return tuple(names)


def norms(tree: PyTree) -> Float[Array, " weights"]:
    """The Frobenius norm of every weight; one for each layer of stacked weights, with all its experts together."""
    results = []
    for _, leaf in _named(tree):
        dims = tuple(dim for dim, axis in enumerate(leaf.axes) if axis.name != STACKED)
        squares = jnp.sum(jnp.square(leaf.array.astype(jnp.float32)), axis=dims)
        results.append(jnp.sqrt(squares).reshape(-1))
    return jnp.concatenate(results)


def _named(tree: PyTree) -> list[tuple[tuple, NamedArray]]:
    leaves = jax.tree_util.tree_leaves_with_path(parameters_of(tree), is_leaf=_is_named)
    return [(path, leaf) for path, leaf in leaves if _is_named(leaf) and leaf.array is not None]


def _is_named(leaf: object) -> bool:
    return isinstance(leaf, NamedArray)
