"""The config of a Llama; with `qk_norm` a Qwen3, with `sliding_window` alone a Mistral. Imports no JAX."""

from dataclasses import dataclass, field
from typing import ClassVar

from trainer.spec.checks import require
from trainer.spec.decoder import DecoderConfig, Llama3RopeScaling


@dataclass(frozen=True)
class LlamaConfig(DecoderConfig):
    """Pre-norm decoder. It was the only family at first, so its recorded config has no `kind`."""

    qk_norm: bool = field(default=False, metadata={"added_later": True})
    """Normalize the queries and keys of each head before rotation (Qwen3, arXiv 2505.09388)."""
    rope_scaling: Llama3RopeScaling | None = field(default=None, metadata={"added_later": True})
    sliding_window: int | None = field(default=None, metadata={"added_later": True})
    """A position attends to itself and the `sliding_window - 1` positions before it; None: to all before it."""
    head_dim: int | None = field(default=None, metadata={"added_later": True})
    """Size of a head's queries, keys and values; None: hidden_dim / num_heads. All Qwen3 models have 128, even the 0.6B with
    hidden_dim 1,024."""

    NO_ARRAY_FIELDS: ClassVar[tuple[str, ...]] = ("rope_theta", "rope_scaling", "norm_eps", "sliding_window")

    def __post_init__(self) -> None:
        super().__post_init__()
        window = self.sliding_window
        require(window is None or window > 0, "model.sliding_window", window, "positive, or None")

    @property
    def head_width(self) -> int | None:
        return self.head_dim

    @property
    def window(self) -> int | None:
        return self.sliding_window

    @property
    def layer_norm_parameters(self) -> int:
        return 2 * self.hidden_dim + (2 * self.head_size if self.qk_norm else 0)
