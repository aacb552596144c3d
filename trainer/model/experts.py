"""Mixtures of experts: the layer that replaces an MLP.

Shapes: B batch, S sequence, N = B S rows, D hidden.
"""

from dataclasses import field

import equinox as eqx
import haliax as hax
import jax
from haliax import Axis, NamedArray
from jaxtyping import PRNGKeyArray

from trainer.model.expert_parallel import spread_output
from trainer.model.expert_products import ExpertWeights, activate, experts_output
from trainer.model.layers import Axes, dot
from trainer.model.products import swiglu
from trainer.model.router import Router, Routing
from trainer.spec.compute import FIRST_ENGINE, Compute
from trainer.spec.mesh import is_spread
from trainer.spec.moe import MoeConfig
from trainer.spec.roles import EXPERT, MATRIX


class SharedExpert(eqx.Module):
    """The expert that every token meets, or the MLP of a dense layer: an MLP with the experts' activation."""

    w_gate: NamedArray = field(metadata=MATRIX)
    w_up: NamedArray = field(metadata=MATRIX)
    w_down: NamedArray = field(metadata=MATRIX)
    activation: str = eqx.field(static=True)

    @staticmethod
    def init(config: MoeConfig, dim: int, *, key: PRNGKeyArray, out_std: float) -> "SharedExpert":
        embed, mlp, std = Axes.of(config).embed, Axis("mlp", dim), config.initializer_range
        k_g, k_u, k_d = jax.random.split(key, 3)
        return SharedExpert(
            w_gate=hax.random.normal(k_g, (embed, mlp)) * std,
            w_up=hax.random.normal(k_u, (embed, mlp)) * std,
            w_down=hax.random.normal(k_d, (mlp, embed)) * out_std,
            activation=config.experts.activation,
        )

    def __call__(self, x: NamedArray, compute: Compute | None = None) -> NamedArray:
        if compute is not None and compute.by_rows and not is_spread() and self.activation == "swiglu":
            rows, weights = x.array.reshape(-1, x.axes[-1].size), (self.w_gate, self.w_up, self.w_down)
            return hax.named(swiglu(rows, *(weight.array for weight in weights)).reshape(x.array.shape), x.axes)
        gate, up = (dot(x, weight, "embed") for weight in (self.w_gate, self.w_up))
        inner = hax.named(activate(gate.array, up.rearrange(gate.axes).array, self.activation), gate.axes)
        return dot(inner, self.w_down, "mlp")


class Experts(eqx.Module):
    """A router, its experts, and the shared one."""

    router: Router
    w_gate: NamedArray = field(metadata=EXPERT)
    w_up: NamedArray = field(metadata=EXPERT)
    w_down: NamedArray = field(metadata=EXPERT)
    shared: SharedExpert | None
    activation: str = eqx.field(static=True)
    capacity_factor: float | None = eqx.field(static=True)

    @staticmethod
    def init(config: MoeConfig, *, key: PRNGKeyArray, out_std: float) -> "Experts":
        embed, std, experts = Axes.of(config).embed, config.initializer_range, config.experts
        expert, mlp = Axis("expert", experts.count), Axis("expert_mlp", experts.dim)
        k_r, k_g, k_u, k_d, k_s = jax.random.split(key, 5)
        shared = SharedExpert.init(config, experts.shared_dim, key=k_s, out_std=out_std) if experts.shared_dim else None
        return Experts(
            router=Router.init(embed, experts.count, config.router, std, key=k_r),
            w_gate=hax.random.normal(k_g, (expert, embed, mlp)) * std,
            w_up=hax.random.normal(k_u, (expert, embed, mlp)) * std,
            w_down=hax.random.normal(k_d, (expert, mlp, embed)) * out_std,
            shared=shared,
            activation=experts.activation,
            capacity_factor=experts.capacity_factor,
        )

    def __call__(self, x: NamedArray, compute: Compute | None = None) -> tuple[NamedArray, Routing | None]:
        """The experts' output. In training (`compute.training`) a capacity holds, and what the router did is returned.

        Decoding and scoring drop nothing: what one text gets must not depend on its neighbours.
        """
        rest = tuple(axis for axis in x.axes if axis.name != "embed")
        order = (*rest, x.resolve_axis("embed"))
        rows = x.rearrange(order).array.reshape(-1, order[-1].size)
        training = compute is not None and compute.training
        choice, routing = self.router(rows, watched=training)
        weights = ExpertWeights(self.w_gate.array, self.w_up.array, self.w_down.array)
        if compute is None or compute.experts is None:
            engine = FIRST_ENGINE.get(jax.default_backend(), "tiled")
            out = experts_output(rows, *choice, weights, engine, self.activation)
        else:
            factor = self.capacity_factor if training else None
            out, dropped = spread_output(rows, choice, weights, compute, self.activation, factor)
            routing = None if routing is None else routing._replace(dropped=dropped)
        named = hax.named(out.reshape([axis.size for axis in order]), order)
        if self.shared is not None:
            named = named + self.shared(x.rearrange(order), compute)
        return named.rearrange(x.axes), routing
