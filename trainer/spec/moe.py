"""The config of a mixture of experts: which experts, how a router chooses among them, and what Grug adds to attention.

Sources: Grug MoE (docs/references.md#marin-moe); DeepSeek-V3 (arXiv 2412.19437) for choice by score plus bias; OLMoE (arXiv
2409.02060) and Qwen3 (arXiv 2505.09388) for softmax routers. Imports no JAX.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from trainer.spec.checks import require
from trainer.spec.decoder import DecoderConfig


@dataclass(frozen=True)
class ExpertsConfig:
    """The experts of one layer. Each is an MLP of width `dim`; `shared_dim` is the width of one that every token meets."""

    count: int
    dim: int
    shared_dim: int = 0
    """0: no shared expert."""
    activation: Literal["swiglu", "bilinear"] = "swiglu"
    """silu(gate x) * (up x), or (gate x) * (up x) (Shazeer 2020, arXiv 2002.05202); of the shared expert too."""
    capacity_factor: float | None = None
    """None: no token is dropped. Else an expert takes at most this many times its fair share of a microbatch's tokens, those of
    earlier rows first. A dropped token keeps its residual stream, its shared expert and its other experts."""

    def __post_init__(self) -> None:
        for name in ("count", "dim"):
            require(getattr(self, name) > 0, f"model.experts.{name}", getattr(self, name), "positive")
        require(self.shared_dim >= 0, "model.experts.shared_dim", self.shared_dim, "at least 0")
        known = ("swiglu", "bilinear")
        require(self.activation in known, "model.experts.activation", self.activation, " or ".join(known))
        factor = self.capacity_factor
        require(factor is None or factor > 0, "model.experts.capacity_factor", factor, "positive, or None to drop nothing")


@dataclass(frozen=True)
class RouterConfig:
    """How a token's experts are chosen, and how their outputs are weighted. Logits are float32 whatever the activations are."""

    per_token: int
    score: Literal["sigmoid", "softmax"] = "sigmoid"
    """What makes scores of logits. The weight of a chosen expert is its score without the bias."""
    bias_on: Literal["logits", "scores"] = "logits"
    """What the balancing bias is added to before the choice. On `scores` the model has a published class (GLM-4-MoE)."""
    renormalize: bool = False
    """Divide the weights of a token's experts by their sum."""
    scale: float = 1.0
    """Factor of the weights; Grug's later recipe renormalizes to a sum of 2.5."""
    balance: Literal["quantile", "none"] = "quantile"
    """How the bias moves after a step (`trainer.model.balance`); `none` leaves it as it is, which is 0 in a fresh model."""
    z_loss_weight: float = 0.0
    """Weight of the mean squared log partition function of the logits, over layers (ST-MoE, arXiv 2202.08906)."""
    balance_loss_weight: float = 0.0
    """Weight of E * sum(load share * mean score) over the global batch (Switch, arXiv 2101.03961; the global batch after arXiv
    2501.11873). With microbatches, a step reads the batch twice, because loads must be known before gradients."""

    def __post_init__(self) -> None:
        require(self.per_token > 0, "model.router.per_token", self.per_token, "positive")
        for name, known in (
            ("score", ("sigmoid", "softmax")),
            ("bias_on", ("logits", "scores")),
            ("balance", ("quantile", "none")),
        ):
            require(getattr(self, name) in known, f"model.router.{name}", getattr(self, name), " or ".join(known))
        require(self.scale > 0, "model.router.scale", self.scale, "positive")
        for name in ("z_loss_weight", "balance_loss_weight"):
            require(getattr(self, name) >= 0, f"model.router.{name}", getattr(self, name), "at least 0")


@dataclass(frozen=True)
class LongShortConfig:
    """Layers `i` with i % every == every - 1, and the last, attend to everything without rotary embeddings; the others attend
    to the `window` positions that end with their own."""

    every: int
    window: int

    def __post_init__(self) -> None:
        require(self.every > 1, "model.extras.long_short.every", self.every, "at least 2")
        require(self.window > 0, "model.extras.long_short.window", self.window, "positive")


@dataclass(frozen=True)
class ExtrasConfig:
    """What Grug adds to a plain decoder. Everything is off by default."""

    gated_norm_rank: int = 0
    """Rank of the gate of `trainer.model.gated_norm`; it is in layers, after the embedding and before the head. 0: plain
    norms."""
    exclude_self: bool = False
    """XSA: a head's output loses its component along the position's own value vector."""
    head_gate: bool = False
    """A head's output is multiplied by 2 sigmoid of a product with the layer's input."""
    rope_share: float = 1.0
    """Share of a head's dimensions that are rotated, the first ones."""
    long_short: LongShortConfig | None = None

    def __post_init__(self) -> None:
        require(self.gated_norm_rank >= 0, "model.extras.gated_norm_rank", self.gated_norm_rank, "at least 0")
        require(0 < self.rope_share <= 1, "model.extras.rope_share", self.rope_share, "above 0, at most 1")


@dataclass(frozen=True)
class MoeConfig(DecoderConfig):
    """A pre-norm decoder whose MLPs are mixtures of experts. `intermediate_dim` is the width of the MLP of dense layers."""

    tie_embeddings: bool = False
    experts: ExpertsConfig = field(default_factory=lambda: ExpertsConfig(8, 128))
    router: RouterConfig = field(default_factory=lambda: RouterConfig(2))
    dense_layers: int = 0
    """The first layers, which have a plain MLP in place of experts."""
    qk_norm: Literal["none", "head", "all"] = "head"
    """Norms of queries and keys before rotation: of each head (Qwen3), or of all heads together (OLMoE)."""
    head_dim: int | None = None
    """Size of a head; None: hidden_dim / num_heads."""
    extras: ExtrasConfig = field(default_factory=ExtrasConfig)
    kind: Literal["moe"] = "moe"

    NO_ARRAY_FIELDS: ClassVar[tuple[str, ...]] = ("rope_theta", "norm_eps", "router", "activation", "extras")
    AXIS_FIELDS: ClassVar[Mapping[str, str]] = {
        "embed": "hidden_dim",
        "kv_heads": "num_kv_heads",
        "expert": "num_experts",
        "expert_mlp": "expert_dim",
        "mlp": "mlp_dim",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        count, per_token = self.experts.count, self.router.per_token
        require(per_token <= count, "model.router.per_token", per_token, f"at most model.experts.count, {count}")
        fits = 0 <= self.dense_layers < self.num_layers
        require(fits, "model.dense_layers", self.dense_layers, f"in 0..{self.num_layers - 1}: some layer must have experts")
        require(self.qk_norm in ("none", "head", "all"), "model.qk_norm", self.qk_norm, "none, head or all")
        rotated = self.rotated_dim
        divides = rotated == self.extras.rope_share * self.head_size and rotated % 2 == 0
        require(divides, "model.extras.rope_share", self.extras.rope_share, f"an even number of a head's {self.head_size}")

    @property
    def head_width(self) -> int | None:
        return self.head_dim

    @property
    def rotated_dim(self) -> int:
        """Dimensions of a head that are rotated."""
        return round(self.extras.rope_share * self.head_size)

    @property
    def num_experts(self) -> int:
        return self.experts.count

    @property
    def expert_dim(self) -> int:
        return self.experts.dim

    @property
    def activation(self) -> str:
        return self.experts.activation

    @property
    def mlp_dim(self) -> int:
        """Every width of an MLP outside the experts divides by what divides this one."""
        widths = [self.experts.shared_dim] if self.experts.shared_dim else []
        return math.gcd(*(widths + [self.intermediate_dim] * (self.dense_layers > 0))) or self.expert_dim

    @property
    def num_expert_layers(self) -> int:
        return self.num_layers - self.dense_layers

    def layer_window(self, layer: int) -> int | None:
        """Keys that a query of a layer sees at most; None: all before it."""
        pattern = self.extras.long_short
        return None if pattern is None or self.is_long(layer) else pattern.window

    def is_long(self, layer: int) -> bool:
        """Whether the pattern of windows makes a layer long."""
        pattern = self.extras.long_short
        return pattern is not None and (layer % pattern.every == pattern.every - 1 or layer == self.num_layers - 1)

    @property
    def layer_norm_parameters(self) -> int:
        heads = {"none": 0, "head": 2, "all": self.num_heads + self.num_kv_heads}[self.qk_norm]
        return 2 * self._norm_parameters + heads * self.head_size

    @property
    def _norm_parameters(self) -> int:
        return self.hidden_dim * (1 + 2 * self.extras.gated_norm_rank)

    @property
    def num_parameters(self) -> int:
        """Trainable parameters of all experts; the balancing bias is not trained and does not count."""
        return self._parameters(self.experts.count)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets."""
        return self._parameters(self.router.per_token)

    def _parameters(self, experts: int) -> int:
        d, e = self.hidden_dim, self.experts
        gate = d * self.num_heads if self.extras.head_gate else 0
        common = self.attention_parameters + self.layer_norm_parameters + gate
        mixed = 3 * d * (e.shared_dim + experts * e.dim) + d * e.count
        layers = self.num_layers * common + self.num_expert_layers * mixed + self.dense_layers * 3 * d * self.intermediate_dim
        outer = self._norm_parameters * (2 if self.extras.gated_norm_rank else 1)
        return layers + self.vocab_size * d * (1 if self.tie_embeddings else 2) + outer

    def training_flops_per_token(self, seq_len: int, *, causal: bool = False) -> float:
        """FLOPs of one token through its own experts, forward and backward, by the count of `DecoderConfig`."""
        return self._flops(seq_len, self.router.per_token, causal)

    def capacity_flops_per_token(self, seq_len: int, *, causal: bool = False) -> float:
        """The same with every expert full to its capacity, as hardware computes it; without a capacity, nothing is added."""
        return self._flops(seq_len, self.router.per_token * (self.experts.capacity_factor or 1.0), causal)

    def total_flops_per_token(self, seq_len: int, *, causal: bool = False) -> float:
        """The same with every expert for every token, as a product that masks instead of sorting computes it."""
        return self._flops(seq_len, self.experts.count, causal)

    def _flops(self, seq_len: int, experts: float, causal: bool) -> float:
        d, e, x = self.hidden_dim, self.experts, self.extras
        scores = sum(self._score_flops(seq_len, layer, causal) for layer in range(self.num_layers))
        gates = 2 * 2 * d * 2 * x.gated_norm_rank + (2 * d * self.num_heads if x.head_gate else 0)
        every = self.num_layers * (2 * self.attention_parameters + gates)
        mixed = self.num_expert_layers * (2 * 3 * d * (e.shared_dim + experts * e.dim) + 2 * d * e.count)
        dense = self.dense_layers * 2 * 3 * d * self.intermediate_dim
        outer = 2 * 2 * d * 2 * x.gated_norm_rank
        return 3.0 * (every + mixed + dense + scores + outer + 2 * d * self.vocab_size)

    def _score_flops(self, seq_len: int, layer: int, causal: bool) -> float:
        window = self.layer_window(layer)
        widest = seq_len if window is None else min(seq_len, window)
        span = widest * (seq_len - (widest - 1) / 2) / seq_len if causal else widest
        return (4 * self.head_size + 3) * span * self.num_heads
