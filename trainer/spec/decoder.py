"""Fields that all dense decoder families share, and the numbers that follow from them. Imports no JAX."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainer.spec.checks import require, require_multiple

MOST_LAYERS = 10_000
"""A published config with more is hostile: every layer takes a name, an array and a line of a plan."""


@dataclass(frozen=True)
class Llama3RopeScaling:
    """Stretch the slow rotary frequencies for contexts beyond `original_max_seq_len`
    (`trainer.model.rotary.rope_frequencies`)."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_seq_len: int = 8192

    def __post_init__(self) -> None:
        require(self.factor >= 1, "model.rope_scaling.factor", self.factor, "at least 1")
        require(self.low_freq_factor > 0, "model.rope_scaling.low_freq_factor", self.low_freq_factor, "positive")
        above = self.high_freq_factor > self.low_freq_factor
        require(
            above, "model.rope_scaling.high_freq_factor", self.high_freq_factor, f"above {self.low_freq_factor}, the low one"
        )
        require(self.original_max_seq_len > 0, "model.rope_scaling.original_max_seq_len", self.original_max_seq_len, "positive")


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder with RMS norms, rotary embeddings, grouped-query attention and a SwiGLU MLP."""

    vocab_size: int
    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    max_seq_len: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    initializer_range: float = 0.02

    NO_ARRAY_FIELDS: ClassVar[tuple[str, ...]] = ("rope_theta", "norm_eps")
    """Fields that change what a model computes and that the shapes of its arrays do not show."""
    AXIS_FIELDS: ClassVar[Mapping[str, str]] = {
        "embed": "hidden_dim",
        "mlp": "intermediate_dim",
        "kv_heads": "num_kv_heads",
    }
    """Named axes that a mesh may split, with the field that says their size."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "max_seq_len"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "positive")
        require(self.num_layers <= MOST_LAYERS, "model.num_layers", self.num_layers, f"at most {MOST_LAYERS:,}")
        if self.head_width is None:
            require_multiple("model.hidden_dim", self.hidden_dim, self.num_heads)
        require_multiple("model.num_heads", self.num_heads, self.num_kv_heads)
        even = self.head_size > 0 and self.head_size % 2 == 0
        source = "model.hidden_dim / num_heads" if self.head_width is None else "model.head_dim"
        require(even, source, self.head_size, "positive and even, for rotary embeddings")

    @property
    def head_width(self) -> int | None:
        """The declared size of a head; None: hidden_dim / num_heads."""
        return None

    @property
    def window(self) -> int | None:
        """Keys that a query sees at most, its own included; None: all before it."""
        return None

    @property
    def layer_norm_parameters(self) -> int:
        """Parameters of all norms of one layer."""
        return 2 * self.hidden_dim

    @property
    def head_size(self) -> int:
        return self.hidden_dim // self.num_heads if self.head_width is None else self.head_width

    @property
    def attention_parameters(self) -> int:
        """Parameters of a layer's four attention projections."""
        return 2 * self.hidden_dim * (self.num_heads + self.num_kv_heads) * self.head_size

    @property
    def num_parameters(self) -> int:
        """Trainable parameters; a tied embedding counts once."""
        d = self.hidden_dim
        layer = self.attention_parameters + 3 * d * self.intermediate_dim + self.layer_norm_parameters
        embeddings = self.vocab_size * d * (1 if self.tie_embeddings else 2)
        return self.num_layers * layer + embeddings + d

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets."""
        return self.num_parameters

    def training_flops_per_token(self, seq_len: int, *, causal: bool = False) -> float:
        """FLOPs of one token, forward and backward, as Levanter counts them.

        Attention runs over the full span (over the window where there is one), the output head counts, the embedding does not.
        With `causal`, attention runs over the mean number of keys that a query sees.
        """
        d = self.hidden_dim
        widest = seq_len if self.window is None else min(seq_len, self.window)
        span = widest * (seq_len - (widest - 1) / 2) / seq_len if causal else widest
        scores = (4 * self.head_size + 3) * span * self.num_heads
        layer = 2 * 3 * d * self.intermediate_dim + 2 * self.attention_parameters + scores
        return 3.0 * (self.num_layers * layer + 2 * d * self.vocab_size)
