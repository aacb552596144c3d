"""Run specs, format `run/1`: everything that decides the numbers of a run, and nothing else.

Hardware, paths and launchers are not here, so the same spec on another machine is the same run.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

from lineage.batches import BatchSchedule, BatchSize
from trainer.checks import require, require_multiple
from trainer.compute import ComputeConfig
from trainer.optimizers.config import ClipUpdateNormConfig, EmaConfig, OptimizerConfig, SkipBadStepsConfig
from trainer.schedules import Schedule


@dataclass(frozen=True)
class Llama3RopeScaling:
    """Stretch the slow rotary frequencies for contexts beyond `original_max_seq_len` (`trainer.rotary.rope_frequencies`)."""

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
class LlamaConfig:
    """A Llama: RMSNorm, rotary embeddings, grouped queries, SwiGLU, tied embeddings unless told; with `qk_norm` a Qwen3."""

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
    qk_norm: bool = field(default=False, metadata={"added_later": True})
    """Normalize queries and keys by head before they are rotated (Qwen3, arXiv 2505.09388)."""
    rope_scaling: Llama3RopeScaling | None = field(default=None, metadata={"added_later": True})
    sliding_window: int | None = field(default=None, metadata={"added_later": True})
    """A position attends to itself and the `sliding_window - 1` before it; None: to all before it."""
    head_dim: int | None = field(default=None, metadata={"added_later": True})
    """Of a head's queries, keys and values; None: hidden_dim / num_heads. All Qwen3s have 128, the 0.6B over a hidden 1,024."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads", "max_seq_len"):
            require(getattr(self, name) > 0, f"model.{name}", getattr(self, name), "positive")
        if self.head_dim is None:
            require_multiple("model.hidden_dim", self.hidden_dim, self.num_heads)
        require_multiple("model.num_heads", self.num_heads, self.num_kv_heads)
        even = self.head_size > 0 and self.head_size % 2 == 0
        said = "model.hidden_dim / num_heads" if self.head_dim is None else "model.head_dim"
        require(even, said, self.head_size, "positive and even, for rotary embeddings")
        window = self.sliding_window
        require(window is None or window > 0, "model.sliding_window", window, "positive, or None")

    @property
    def head_size(self) -> int:
        return self.hidden_dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def _attention_parameters(self) -> int:
        """Of a layer's four projections."""
        return 2 * self.hidden_dim * (self.num_heads + self.num_kv_heads) * self.head_size

    @property
    def num_parameters(self) -> int:
        """Trainable parameters, the embedding counted once when it is tied."""
        d = self.hidden_dim
        norms = 2 * d + (2 * self.head_size if self.qk_norm else 0)
        layer = self._attention_parameters + 3 * d * self.intermediate_dim + norms
        embeddings = self.vocab_size * d * (1 if self.tie_embeddings else 2)
        return self.num_layers * layer + embeddings + d

    def training_flops_per_token(self, seq_len: int, *, causal: bool = False) -> float:
        """Forward and backward, Levanter's definition: attention over the full span (a sliding window's where
        there is one), output head counted, embedding not. With `causal`, over the mean number of keys that a query sees."""
        d = self.hidden_dim
        widest = seq_len if self.sliding_window is None else min(seq_len, self.sliding_window)
        span = widest * (seq_len - (widest - 1) / 2) / seq_len if causal else widest
        scores = (4 * self.head_size + 3) * span * self.num_heads
        layer = 2 * 3 * d * self.intermediate_dim + 2 * self._attention_parameters + scores
        return 3.0 * (self.num_layers * layer + 2 * d * self.vocab_size)


SHAPELESS_FIELDS = ("rope_theta", "rope_scaling", "norm_eps", "sliding_window")
"""Fields that change what a model computes and that none of its arrays shows."""
TOKENIZER = "tokenizer"
"""Likewise, of what its ids mean."""


@dataclass(frozen=True)
class WarmStart:
    """Begin with the parameters of another run's checkpoint, the job's input `start`.

    Steps and schedule begin at 0, and so does the data order unless `data` is `continued`. What was trained before stays in the
    lineage, and the audit follows it (`lineage.history`). Give the schedule a warm-up: fresh moments know nothing of the scale
    of gradients.
    """

    optimizer: Literal["fresh", "carried"] = "fresh"
    """`carried` takes the moments (and their step count, for bias correction) along; the rule must be the same."""
    new_parameters: tuple[str, ...] = ()
    """Parameters that the checkpoint lacks, by their field's name, such as `q_norm` and `k_norm` (Llama to Qwen3): they begin
    as a fresh model's, their moments at nought. Any other difference between the two models is an error."""
    changed_fields: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """Fields of the model that differ on purpose and that no array shows, such as `rope_theta` for a longer context; and
    `tokenizer`, where its bytes differ and its ids do not."""
    guards: Literal["fresh", "rebuilt"] = field(default="fresh", metadata={"added_later": True})
    """`rebuilt` gives `clip_update_norm` and `skip_bad_steps` the history of the run before (`trainer.necromancy`), so that
    they protect the first step already; `fresh` lets them begin with none, whatever becomes of the moments."""
    data: Literal["restarted", "continued"] = field(default="restarted", metadata={"added_later": True})
    """`continued`: step 0 reads on where the checkpoint's steps ended in the data order, so that on the same mixture two runs
    read what one would have read. On another mixture it is the same place of that one's order."""
    average: Literal["fresh", "carried"] = field(default="fresh", metadata={"added_later": True})
    """Of a run with `ema`: `fresh` begins at the parameters that are taken, `carried` goes on with the checkpoint's average, as
    a run cut in two needs. The two runs' `beta` may differ."""

    def __post_init__(self) -> None:
        bad = [name for name in self.new_parameters if not re.fullmatch(r"[a-z_][a-z0-9_]*", name)]
        require(not bad, "run.start.new_parameters", self.new_parameters, "names of fields, such as q_norm")
        known = (*SHAPELESS_FIELDS, TOKENIZER)
        fits = set(self.changed_fields) <= set(known)
        require(fits, "run.start.changed_fields", self.changed_fields, f"among {', '.join(known)}")


@dataclass(frozen=True)
class RunSpec:
    """One run. Step `t` (from 0) reads global sequences `[first(t), first(t) + size(t))` of its mixture (`batches`), counted
    from the end of the run before where `start.data` is `continued`."""

    name: str
    model: LlamaConfig
    optimizer: OptimizerConfig
    schedule: Schedule
    batch_size: BatchSize
    """Sequences a step: a number, or phases by step."""
    seq_len: int
    num_steps: int
    seed: int
    save_every_steps: int | None = None
    """Steps between checkpoints that are kept; None: the final one, and those of `keep_steps`."""
    z_loss_weight: float = 0.0
    microbatch_size: int | None = field(default=None, metadata={"added_later": True})
    """Sequences in one forward and backward pass; None: the whole batch. Rounding depends on it, so it is identity."""
    clip_update_norm: ClipUpdateNormConfig | None = field(default=None, metadata={"added_later": True})
    skip_bad_steps: SkipBadStepsConfig | None = field(default=None, metadata={"added_later": True})
    ema: EmaConfig | None = field(default=None, metadata={"added_later": True})
    start: WarmStart | None = field(default=None, metadata={"added_later": True})
    """None: fresh parameters, a function of the seed."""
    keep_steps: tuple[int, ...] = field(default=(), metadata={"added_later": True})
    """Further steps whose checkpoints are kept. Rolling ones in between are no part of a run (`trainer.saving`)."""
    cross_document_attention: bool = field(default=True, metadata={"added_later": True})
    """Whether a token attends to documents before its own in its row. Where not, the first token of a document counts for
    nothing in the loss: what is before it says nothing about it."""
    compute: ComputeConfig = field(default=ComputeConfig(), metadata={"added_later": True})
    """Precision, attention back-end, what backward makes again; how a machine means it is in the run's record."""

    def __post_init__(self) -> None:
        require(self.num_steps > 0, "run.num_steps", self.num_steps, "positive")
        every = self.save_every_steps
        require(every is None or every > 0, "run.save_every_steps", every, "positive, or None")
        ascending = list(self.keep_steps) == sorted({step for step in self.keep_steps if 0 < step <= self.num_steps})
        require(ascending, "run.keep_steps", self.keep_steps, f"ascending, in 1..{self.num_steps}")
        require(1 < self.seq_len <= self.model.max_seq_len, "run.seq_len", self.seq_len, f"in 2..{self.model.max_seq_len}")
        for phase in self.batches.phases:
            self._check_microbatch(phase.batch_size)
        guarded = self.clip_update_norm is not None or self.skip_bad_steps is not None
        rebuilt = self.start is not None and self.start.guards == "rebuilt"
        require(guarded or not rebuilt, "run.start.guards", "rebuilt", "fresh where the run has neither guard")
        averaged = self.start is not None and self.start.average == "carried"
        require(self.ema is not None or not averaged, "run.start.average", "carried", "fresh where the run sets no ema")
        self.schedule.check_length(self.num_steps)
        require(self.z_loss_weight >= 0, "run.z_loss_weight", self.z_loss_weight, "at least 0")

    def _check_microbatch(self, batch_size: int) -> None:
        size = self.microbatch_size
        if size is not None:
            fits = size > 0 and batch_size % size == 0
            require(fits, "run.microbatch_size", size, f"a positive divisor of batch_size {batch_size}, or None")

    def saved_steps(self, last: int | None = None) -> tuple[int, ...]:
        """Steps whose checkpoints are kept, up to a last one that always is (the run's, unless told)."""
        final = self.num_steps if last is None else last
        every = () if self.save_every_steps is None else range(self.save_every_steps, final + 1, self.save_every_steps)
        return tuple(sorted({*every, *(step for step in self.keep_steps if step <= final), final}))

    @property
    def batches(self) -> BatchSchedule:
        return BatchSchedule.of(self.batch_size)

    def tokens_before(self, step: int) -> int:
        """Tokens that the steps before a step read."""
        return self.batches.first(step) * self.seq_len

    def step_tokens(self, step: int) -> int:
        return self.batches.size(step) * self.seq_len
