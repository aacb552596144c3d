"""Send activations through a stack of layers: folded where layers are alike, by periods where a pattern of kinds repeats."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
from haliax import NamedArray
from haliax.nn.scan import ScanCheckpointPolicy, Stacked
from jax.extend.core import Primitive
from jaxtyping import PyTree

from trainer.spec.compute import Remat

SAVED_NAMES = ("attention", "mlp")
"""What `remat: named` keeps of a layer: the output of attention and the two products inside the MLP. Norms, rotations and the
four attention projections are computed again. Inside attention nothing is computed again if the back-end names its softmax
denominators (blocked, splash, cudnn); reference and xla compute their scores again."""


class LayerKind(NamedTuple):
    """What layers of one class may differ in."""

    window: int | None
    rotary: bool = True


type Layer = Callable[[NamedArray, Any, LayerKind], tuple[NamedArray, PyTree]]
"""(activations, block, kind) to (activations, what the layer reports)."""


def through_layers(
    layer: Layer, stack: Stacked, kinds: Sequence[LayerKind], x: NamedArray, remat: Remat, *, unrolled: bool
) -> tuple[NamedArray, PyTree]:
    """(activations behind the last layer, outputs of layers with a leading axis of layers)."""
    if len(set(kinds)) == 1:

        def of_kind(x: NamedArray, block: Any) -> tuple[NamedArray, PyTree]:
            return layer(x, block, kinds[0])

        return hax.scan(
            eqx.filter_checkpoint(of_kind, policy=is_kept, prevent_cse=False) if remat == "named" else of_kind,
            stack.Block,
            remat=REMATS[remat],
            unroll=stack.Block.size if unrolled else 1,
        )(x, stack.stacked)
    return _by_periods(layer, stack, kinds, x, remat, unrolled=unrolled)


def _by_periods(
    layer: Layer, stack: Stacked, kinds: Sequence[LayerKind], x: NamedArray, remat: Remat, *, unrolled: bool
) -> tuple[NamedArray, PyTree]:
    """A scan over whole periods, each a loop over its layers; layers behind the last whole period one by one."""
    period, times = (1, 0) if unrolled else repeated(kinds)
    outputs = []

    def at(x: NamedArray, block: Any, kind: LayerKind) -> tuple[NamedArray, PyTree]:
        if remat == "none":
            return layer(x, block, kind)
        policy = is_kept if remat == "named" else None
        return eqx.filter_checkpoint(lambda x, block: layer(x, block, kind), policy=policy, prevent_cse=times > 1)(x, block)

    def of_period(x: NamedArray, blocks: Any) -> tuple[NamedArray, PyTree]:
        outputs = []
        for number in range(period):
            x, tells = at(x, _layer(blocks, number), kinds[number])
            outputs.append(tells)
        return x, _stacked(outputs)

    folded = period * times
    if times:
        arrays, rest = eqx.partition(stack.stacked, eqx.is_array)
        grouped = jax.tree.map(lambda array: array[:folded].reshape(times, period, *array.shape[1:]), arrays)
        scanned = eqx.combine(jax.tree.map(lambda array: array[0], grouped), rest)
        structure = jax.tree.structure(scanned)
        x, tells = jax.lax.scan(
            lambda x, leaves: of_period(x, jax.tree.unflatten(structure, leaves)), x, jax.tree.leaves(grouped)
        )
        outputs.append(jax.tree.map(lambda array: array.reshape(folded, *array.shape[2:]), tells))
    rest = []
    for number in range(folded, len(kinds)):
        x, tells = at(x, _layer(stack.stacked, number), kinds[number])
        rest.append(tells)
    outputs += [_stacked(rest)] if rest else []
    return x, jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *outputs)


def repeated(kinds: Sequence[LayerKind]) -> tuple[int, int]:
    """(length of the shortest period that covers the most layers in whole repetitions, how often it is repeated).

    >>> a, b = LayerKind(8), LayerKind(None)
    >>> repeated([a, a, b, a, a, b, a, b]), repeated([a, b, b])
    ((3, 2), (1, 1))
    """
    best = (1, 1)
    for period in range(1, len(kinds)):
        times = 1
        while kinds[times * period : (times + 1) * period] == kinds[:period]:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = (period, times)
    return best


def _layer(stacked: Any, number: int) -> Any:
    """One layer of a stack whose arrays begin with the layers."""

    def of(named: NamedArray) -> NamedArray:
        return hax.named(named.array[number], tuple(axis for axis in named.axes if axis.name != "layers"))

    return jax.tree.map(of, stacked, is_leaf=lambda leaf: isinstance(leaf, NamedArray))


def _stacked(outputs: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *each: jnp.stack(each), *outputs)


REMATS: dict[Remat, ScanCheckpointPolicy] = {
    "none": ScanCheckpointPolicy(disable=True),
    "full": ScanCheckpointPolicy(simple=True),
    "named": ScanCheckpointPolicy(disable=True),  # a layer has a policy of its own, `is_kept`
    "offload": ScanCheckpointPolicy(save_carries="offload"),
}
"""What the backward pass computes again, in haliax's terms."""


def is_kept(primitive: Primitive, *values: object, **params: object) -> bool:
    """The policy of `remat: named`: keep `SAVED_NAMES` and both results of cuDNN's forward call.

    cuDNN's softmax denominators are an output of its call, and no name can be given to them from here.
    """
    of_name = jax.checkpoint_policies.save_only_these_names(*SAVED_NAMES)
    return primitive.name.startswith("dot_product_attention_fwd") or bool(of_name(primitive, *values, **params))
