"""Layers that families are built from, with named axes inside (haliax).

Parameters are float32. A weight is cast to the precision of what it is multiplied with, so activations decide the precision
of products. Norms, rotations and softmax are float32.
"""

import math
from collections.abc import Callable
from dataclasses import field

import equinox as eqx
import haliax as hax
import jax
from haliax import Axis, NamedArray
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, PRNGKeyArray

from trainer.model.adapted_weight import DroppedWeight, bare
from trainer.model.attention import attention
from trainer.model.float8 import float8_dot
from trainer.model.products import products, swiglu
from trainer.model.rms_norm import rms_norm
from trainer.model.rotary import rotate
from trainer.spec.compute import Compute
from trainer.spec.decoder import DecoderConfig, Llama3RopeScaling
from trainer.spec.mesh import is_spread
from trainer.spec.roles import GATE, MATRIX, NORM


class Axes(eqx.Module):
    """The named axes of a config."""

    embed: Axis = eqx.field(static=True)
    mlp: Axis = eqx.field(static=True)
    kv_heads: Axis = eqx.field(static=True)
    group: Axis = eqx.field(static=True)
    head_dim: Axis = eqx.field(static=True)
    vocab: Axis = eqx.field(static=True)
    layers: Axis = eqx.field(static=True)

    @staticmethod
    def of(config: DecoderConfig) -> "Axes":
        return Axes(
            embed=Axis("embed", config.hidden_dim),
            mlp=Axis("mlp", config.intermediate_dim),
            kv_heads=Axis("kv_heads", config.num_kv_heads),
            group=Axis("q_group", config.num_heads // config.num_kv_heads),
            head_dim=Axis("head_dim", config.head_size),
            vocab=Axis("vocab", config.vocab_size),
            layers=Axis("layers", config.num_layers),
        )


class RmsNorm(eqx.Module):
    """Root-mean-square norm with a learned scale, over all axes of its weight together."""

    weight: NamedArray = field(metadata=NORM)
    eps: float = eqx.field(static=True)

    @staticmethod
    def init(axes: Axis | tuple[Axis, ...], eps: float) -> "RmsNorm":
        return RmsNorm(hax.ones(axes), eps)

    def __call__(self, x: NamedArray) -> NamedArray:
        own = self.weight.axes
        rows = x.rearrange((*(axis for axis in x.axes if axis not in own), *own))
        if len(own) == 1:
            return hax.named(rms_norm(rows.array, self.weight.array, self.eps), rows.axes).rearrange(x.axes)
        flat = rows.array.reshape(*rows.array.shape[: -len(own)], -1)
        normed = rms_norm(flat, self.weight.array.reshape(-1), self.eps)
        return hax.named(normed.reshape(rows.array.shape), rows.axes).rearrange(x.axes)


class Attention(eqx.Module):
    """Grouped-query attention with rotary embeddings, over the keys that the mask allows."""

    w_q: NamedArray = field(metadata=MATRIX)
    w_k: NamedArray = field(metadata=MATRIX)
    w_v: NamedArray = field(metadata=MATRIX)
    w_o: NamedArray = field(metadata=MATRIX)
    q_norm: RmsNorm | None
    k_norm: RmsNorm | None
    rope_theta: float = eqx.field(static=True)
    rope_scaling: Llama3RopeScaling | None = eqx.field(static=True)
    head_gate: NamedArray | None = field(default=None, metadata=GATE)
    """Makes a factor 2 sigmoid for the output of each head."""
    exclude_self: bool = eqx.field(default=False, static=True)
    """Take from a head's output its component along the position's own value vector."""
    rotated_dim: int | None = eqx.field(default=None, static=True)
    """First dimensions of a head that are rotated; None: all."""

    @staticmethod
    def init(
        config: DecoderConfig,
        *,
        key: PRNGKeyArray,
        out_std: float,
        q_norm: RmsNorm | None,
        k_norm: RmsNorm | None,
        rope_scaling: Llama3RopeScaling | None = None,
        head_gate: NamedArray | None = None,
        exclude_self: bool = False,
        rotated_dim: int | None = None,
    ) -> "Attention":
        """Normal weights of deviation `initializer_range`, and of `out_std` for what writes to the residual stream."""
        a = Axes.of(config)
        k_q, k_k, k_v, k_o = jax.random.split(key, 4)
        std = config.initializer_range
        return Attention(
            w_q=hax.random.normal(k_q, (a.embed, a.kv_heads, a.group, a.head_dim)) * std,
            w_k=hax.random.normal(k_k, (a.embed, a.kv_heads, a.head_dim)) * std,
            w_v=hax.random.normal(k_v, (a.embed, a.kv_heads, a.head_dim)) * std,
            w_o=hax.random.normal(k_o, (a.kv_heads, a.group, a.head_dim, a.embed)) * out_std,
            q_norm=q_norm,
            k_norm=k_norm,
            rope_theta=config.rope_theta,
            rope_scaling=rope_scaling,
            head_gate=head_gate,
            exclude_self=exclude_self,
            rotated_dim=rotated_dim,
        )

    def __call__(
        self, x: NamedArray, segment_ids: Array | None, window: int | None, compute: Compute, *, rotary: bool = True
    ) -> NamedArray:
        positions = hax.arange(x.resolve_axis("position")) if rotary else None
        q, k, v = dots(x, (self.w_q, self.w_k, self.w_v), "embed", compute)
        q, k = self._rotated(q, self.q_norm, positions), self._rotated(k, self.k_norm, positions)
        order = ("batch", "position", "kv_heads", "q_group", "head_dim")
        k, v = (each.rearrange(("batch", "position", "kv_heads", "head_dim")).array for each in (k, v))
        read = hax.named(attention(q.rearrange(order).array, k, v, segment_ids, window, compute), order)
        own = hax.named(v, ("batch", "position", "kv_heads", "head_dim"))
        return dots(self._adjusted(read, x, own), (self.w_o,), ("kv_heads", "q_group", "head_dim"), compute)[0]

    def keys_values(self, x: NamedArray, positions: NamedArray | None) -> tuple[NamedArray, NamedArray]:
        """Rotated keys, and values, of every position, over `key_position`: all that later positions need of these."""
        k, v = self._rotated(dot(x, self.w_k, "embed"), self.k_norm, positions), dot(x, self.w_v, "embed")
        return k.rename({"position": "key_position"}), v.rename({"position": "key_position"})

    def attend(self, x: NamedArray, k: NamedArray, v: NamedArray, positions: NamedArray | None, mask: NamedArray) -> NamedArray:
        """The output for the queries of `x` over given keys and values where `mask` is true. For decoding: few queries."""
        q = self._rotated(dot(x, self.w_q, "embed"), self.q_norm, positions)
        scale = q.resolve_axis("head_dim").size ** -0.5
        scores = hax.dot(q * scale, k, axis="head_dim")
        weights = hax.nn.softmax(hax.where(mask, scores, -1e9), axis="key_position")
        read = hax.dot(weights, v, axis="key_position")
        own = dot(x, self.w_v, "embed") if self.exclude_self else None
        return hax.dot(self._adjusted(read, x, own), self.w_o, axis=("kv_heads", "q_group", "head_dim"))

    def _adjusted(self, read: NamedArray, x: NamedArray, own: NamedArray | None) -> NamedArray:
        """What heads read, without their own values' part and times their gates, where declared.

        Source: docs/references.md#marin-moe; y - (y . v / |v|^2) v. A value of zero takes nothing away.
        """
        if self.exclude_self and own is not None:
            length = hax.dot(own, own, axis="head_dim")
            along = hax.dot(read, own, axis="head_dim") / hax.where(length > 0, length, 1.0)
            read = read - along.broadcast_axis(own.resolve_axis("head_dim")) * own
        if self.head_gate is not None:
            read = read * (2 * hax.nn.sigmoid(dot(x, self.head_gate, "embed")))
        return read

    def _rotated(self, x: NamedArray, norm: RmsNorm | None, positions: NamedArray | None) -> NamedArray:
        """Queries or keys, normalized if the family does so, rotated by their positions if there are any."""
        x = x if norm is None else norm(x)
        if positions is None:
            return x
        if self.rotated_dim is None:
            return rotate(x, self.rope_theta, positions, self.rope_scaling)
        turned = rotate(x["head_dim", : self.rotated_dim], self.rope_theta, positions, self.rope_scaling)
        return hax.concatenate("head_dim", [turned, x["head_dim", self.rotated_dim :]])


type Read = Callable[[Attention, NamedArray], NamedArray]
"""How a block's attention reads its input: over the whole batch, through a cache, or in a tree of shared prefixes."""


class Mlp(eqx.Module):
    """SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

    w_gate: NamedArray = field(metadata=MATRIX)
    w_up: NamedArray = field(metadata=MATRIX)
    w_down: NamedArray = field(metadata=MATRIX)

    @staticmethod
    def init(config: DecoderConfig, *, key: PRNGKeyArray, out_std: float) -> "Mlp":
        a = Axes.of(config)
        k_g, k_u, k_d = jax.random.split(key, 3)
        std = config.initializer_range
        return Mlp(
            w_gate=hax.random.normal(k_g, (a.embed, a.mlp)) * std,
            w_up=hax.random.normal(k_u, (a.embed, a.mlp)) * std,
            w_down=hax.random.normal(k_d, (a.mlp, a.embed)) * out_std,
        )

    def __call__(self, x: NamedArray, compute: Compute | None = None) -> NamedArray:
        weights = (self.w_gate, self.w_up, self.w_down)
        adapted = any(isinstance(weight, DroppedWeight) for weight in weights)
        if compute is not None and compute.by_rows and not is_spread() and not adapted:
            rest = x.axes[:-1]
            rows = x.array.reshape(-1, x.axes[-1].size)
            return hax.named(swiglu(rows, *(weight.array for weight in weights)).reshape(x.array.shape), (*rest, x.axes[-1]))
        gate, up = (dot(x, weight, "embed", compute) for weight in (self.w_gate, self.w_up))
        gate, up = (hax.named(checkpoint_name(each.array, "mlp"), each.axes) for each in (gate, up))
        return dot(hax.nn.silu(gate) * up, self.w_down, "mlp", compute)


def depth_scaled_std(config: DecoderConfig) -> float:
    """GPT-2's deviation of weights that write to the residual stream: its variance stays flat with depth."""
    return config.initializer_range / (2 * config.num_layers) ** 0.5


def dot(x: NamedArray, weight: NamedArray, axis: str | tuple[str, ...], compute: Compute | None = None) -> NamedArray:
    """Product in the precision of `x`, or in float8 where `compute` says so."""
    if isinstance(weight, DroppedWeight):
        return dot(x, weight.base, axis, compute) + weight.addition(x, axis)
    if compute is not None and compute.float8:
        return float8_dot(x, weight.astype(x.dtype), (axis,) if isinstance(axis, str) else axis)
    return hax.dot(x, weight.astype(x.dtype), axis=axis)


def dots(
    x: NamedArray, weights: tuple[NamedArray, ...], axis: str | tuple[str, ...], compute: Compute
) -> tuple[NamedArray, ...]:
    """Products with several weights; with `compute.by_rows`, of rows with matrices (`trainer.model.products`)."""
    names = (axis,) if isinstance(axis, str) else axis
    if not compute.by_rows or is_spread():
        return tuple(dot(x, weight, axis, compute) for weight in weights)
    if any(isinstance(weight, DroppedWeight) for weight in weights):
        base_products = zip(weights, dots(x, tuple(map(bare, weights)), axis, compute), strict=True)
        return tuple(y + weight.addition(x, axis) if isinstance(weight, DroppedWeight) else y for weight, y in base_products)
    inner = [x.resolve_axis(name) for name in names]
    rest = [each for each in x.axes if each not in inner]
    size = math.prod(each.size for each in inner)
    outer = [[each for each in weight.axes if each.name not in names] for weight in weights]
    matrices = tuple(w.rearrange((*inner, *out)).array.reshape(size, -1) for w, out in zip(weights, outer, strict=True))
    results = products(x.rearrange((*rest, *inner)).array.reshape(-1, size), matrices)
    return tuple(
        hax.named(each.reshape([a.size for a in (*rest, *out)]), (*rest, *out))
        for each, out in zip(results, outer, strict=True)
    )
