"""Run specs, format `run/1`: everything that decides the numbers of a run, and nothing else.

Hardware, paths and launchers are not here, so the same spec on another machine is the same run.
"""

from dataclasses import dataclass


def _require(condition: bool, field: str, value: object, allowed: str) -> None:
    if not condition:
        raise ValueError(f"{field} is {value!r}; it must be {allowed}")


def _require_multiple(field: str, value: int, of: int) -> None:
    _require(value % of == 0, field, value, f"a multiple of {of}")


@dataclass(frozen=True)
class LlamaConfig:
    """A Llama: RMSNorm, rotary embeddings, grouped queries, SwiGLU, tied embeddings unless told."""

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

    def __post_init__(self) -> None:
        for field in ("vocab_size", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "max_seq_len"):
            _require(getattr(self, field) > 0, f"model.{field}", getattr(self, field), "positive")
        _require_multiple("model.hidden_dim", self.hidden_dim, self.num_heads)
        _require_multiple("model.num_heads", self.num_heads, self.num_kv_heads)
        _require(self.head_dim % 2 == 0, "model head_dim", self.head_dim, "even, for rotary embeddings")

    @property
    def head_dim(self) -> int:
        return self.hidden_dim // self.num_heads

    @property
    def num_parameters(self) -> int:
        """Trainable parameters, the embedding counted once when it is tied."""
        d, kv = self.hidden_dim, self.num_kv_heads * self.head_dim
        attention = 2 * d * d + 2 * d * kv
        layer = attention + 3 * d * self.intermediate_dim + 2 * d
        embeddings = self.vocab_size * d * (1 if self.tie_embeddings else 2)
        return self.num_layers * layer + embeddings + d

    def training_flops_per_token(self, seq_len: int) -> float:
        """Forward and backward, Levanter's definition: attention over the full span, output head counted, embedding not."""
        d, kv = self.hidden_dim, self.num_kv_heads * self.head_dim
        layer = (
            2 * 3 * d * self.intermediate_dim + 2 * (2 * d * d + 2 * d * kv) + 4 * seq_len * d + 3 * seq_len * self.num_heads
        )
        return 3.0 * (self.num_layers * layer + 2 * d * self.vocab_size)


@dataclass(frozen=True)
class AdamWConfig:
    """AdamW after clipping by global norm; no decay on norms and embeddings."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        _require(0 <= self.beta1 < 1, "optimizer.beta1", self.beta1, "in [0, 1)")
        _require(0 <= self.beta2 < 1, "optimizer.beta2", self.beta2, "in [0, 1)")
        _require(self.eps > 0, "optimizer.eps", self.eps, "positive")
        _require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "at least 0")
        _require(self.max_grad_norm > 0, "optimizer.max_grad_norm", self.max_grad_norm, "positive")


@dataclass(frozen=True)
class WarmupStableDecay:
    """Linear warm-up, a plateau, then a linear decay over the last `decay_frac` of the steps to `min_lr_ratio` of the peak."""

    peak_learning_rate: float
    warmup_steps: int
    decay_frac: float
    min_lr_ratio: float = 0.1

    def __post_init__(self) -> None:
        _require(self.peak_learning_rate > 0, "schedule.peak_learning_rate", self.peak_learning_rate, "positive")
        _require(self.warmup_steps >= 0, "schedule.warmup_steps", self.warmup_steps, "at least 0")
        _require(0 <= self.decay_frac <= 1, "schedule.decay_frac", self.decay_frac, "in [0, 1]")
        _require(0 <= self.min_lr_ratio <= 1, "schedule.min_lr_ratio", self.min_lr_ratio, "in [0, 1]")


@dataclass(frozen=True)
class RunSpec:
    """One run. Step `t` (from 0) reads global sequences `[t * batch_size, (t + 1) * batch_size)` of its mixture."""

    name: str
    model: LlamaConfig
    optimizer: AdamWConfig
    schedule: WarmupStableDecay
    batch_size: int
    seq_len: int
    num_steps: int
    seed: int
    save_every_steps: int
    z_loss_weight: float = 0.0

    def __post_init__(self) -> None:
        for field in ("batch_size", "num_steps", "save_every_steps"):
            _require(getattr(self, field) > 0, f"run.{field}", getattr(self, field), "positive")
        _require(1 < self.seq_len <= self.model.max_seq_len, "run.seq_len", self.seq_len, f"in 2..{self.model.max_seq_len}")
        _require(
            self.schedule.warmup_steps <= self.num_steps,
            "schedule.warmup_steps",
            self.schedule.warmup_steps,
            f"<= num_steps {self.num_steps}",
        )
        _require(self.z_loss_weight >= 0, "run.z_loss_weight", self.z_loss_weight, "at least 0")

    @property
    def batch_tokens(self) -> int:
        return self.batch_size * self.seq_len
