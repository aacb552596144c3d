"""Run specs, format `run/1`: everything that decides the numbers of a run, and nothing else.

Hardware, paths and launchers are not part of it, so the same spec on another machine is the same run.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

from lineage.order.batches import BatchSchedule, BatchSize
from trainer.spec.checks import require
from trainer.spec.compute import ComputeConfig
from trainer.spec.lora import LoraConfig
from trainer.spec.models import ModelConfig, no_array_fields
from trainer.spec.moe import MoeConfig
from trainer.spec.objectives import Dpo, NextToken, Objective
from trainer.spec.optimizers import (
    AdamHConfig,
    ClipUpdateNormConfig,
    EmaConfig,
    MuonConfig,
    MuonHConfig,
    OptimizerConfig,
    SkipBadStepsConfig,
)
from trainer.spec.schedules import Schedule

TOKENIZER = "tokenizer"
"""Name in `WarmStart.changed_fields` for a tokenizer whose bytes differ and whose ids do not."""


@dataclass(frozen=True)
class WarmStart:
    """Start from the parameters of another run's checkpoint, the job's input `start`.

    Steps and schedule begin at 0, and so does the data order unless `data` is `continued`. The earlier training stays in the
    lineage, and the audit follows it (`lineage.order.history`). Give the schedule a warm-up, because fresh moments do not know
    the scale of gradients.
    """

    optimizer: Literal["fresh", "carried"] = "fresh"
    """`carried` keeps the moments and their step count, which bias correction needs; the rule must be the same."""
    new_parameters: tuple[str, ...] = ()
    """Parameters that the checkpoint lacks, by field name, such as `q_norm` and `k_norm` (Llama to Qwen3). They are
    initialized as in a fresh model, with zero moments. Any other difference between the two models is an error."""
    changed_fields: tuple[str, ...] = field(default=(), metadata={"added_later": True})
    """Fields of the model that differ on purpose and that no array shows, such as `rope_theta` for a longer context; and
    `tokenizer`, if its bytes differ and its ids do not."""
    guards: Literal["fresh", "rebuilt"] = field(default="fresh", metadata={"added_later": True})
    """`rebuilt` gives `clip_update_norm` and `skip_bad_steps` the history of the earlier run (`trainer.guard_history`), so that
    they protect even the first step; `fresh` starts them without history, with either choice of `optimizer`."""
    data: Literal["restarted", "continued"] = field(default="restarted", metadata={"added_later": True})
    """`continued`: step 0 reads the data order from where the checkpoint's steps ended, so that on the same mixture two runs
    read what one run would have read. On another mixture it is the same position in that order."""
    average: Literal["fresh", "carried"] = field(default="fresh", metadata={"added_later": True})
    """For a run with `ema`: `fresh` starts the average at the loaded parameters, `carried` continues the checkpoint's
    average, as a run split in two needs. The `beta` of the two runs may differ."""

    experts: Literal["same", "from_mlp"] = field(default="same", metadata={"added_later": True})
    """`from_mlp`: the run has experts and the checkpoint is dense; every expert starts as its layer's MLP
    (`trainer.upcycling`). Give `router` among the new parameters."""
    new_rows: Literal["none", "mean"] = field(default="none", metadata={"added_later": True})
    """`mean`: the run's vocabulary is larger than the checkpoint's, whose tokenizer it extends. Rows of embedding and head for
    the new tokens begin as the mean of the old rows (`trainer.new_rows`)."""

    def __post_init__(self) -> None:
        require(self.new_rows in ("none", "mean"), "run.start.new_rows", self.new_rows, "none or mean")
        kept = (self.optimizer, self.average, self.experts)
        begins = self.new_rows == "none" or kept == ("fresh", "fresh", "same")
        require(begins, "run.start.optimizer, average and experts", kept, "fresh, fresh and same with new_rows")
        require(self.experts in ("same", "from_mlp"), "run.start.experts", self.experts, "same or from_mlp")
        fresh = self.optimizer == "fresh" and self.average == "fresh"
        require(fresh or self.experts == "same", "run.start.optimizer and average", (self.optimizer, self.average), "fresh")
        bad = [name for name in self.new_parameters if not re.fullmatch(r"[a-z_][a-z0-9_]*", name)]
        require(not bad, "run.start.new_parameters", self.new_parameters, "names of fields, such as q_norm")
        known = (*no_array_fields(), TOKENIZER)
        fits = set(self.changed_fields) <= set(known)
        require(fits, "run.start.changed_fields", self.changed_fields, f"among {', '.join(known)}")


@dataclass(frozen=True)
class RunSpec:
    """One run. Step `t` (from 0) reads the global sequences `[first(t), first(t) + size(t))` of its mixture
    (`batches`), counted from the end of the earlier run if `start.data` is `continued`."""

    name: str
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: Schedule
    batch_size: BatchSize
    """Sequences per step: a number, or phases by step."""
    seq_len: int
    """Tokens of a row of the batch; with `Dpo` a row is a pair, of two sides of half this length."""
    num_steps: int
    seed: int
    save_every_steps: int | None = None
    """Steps between kept checkpoints; None: only the final one and those of `keep_steps` are kept."""
    z_loss_weight: float = 0.0
    microbatch_size: int | None = field(default=None, metadata={"added_later": True})
    """Sequences in one forward and backward pass; None: the whole batch. Rounding depends on it, so it is identity."""
    clip_update_norm: ClipUpdateNormConfig | None = field(default=None, metadata={"added_later": True})
    skip_bad_steps: SkipBadStepsConfig | None = field(default=None, metadata={"added_later": True})
    ema: EmaConfig | None = field(default=None, metadata={"added_later": True})
    start: WarmStart | None = field(default=None, metadata={"added_later": True})
    """None: fresh parameters, a function of the seed."""
    keep_steps: tuple[int, ...] = field(default=(), metadata={"added_later": True})
    """More steps whose checkpoints are kept. Rolling checkpoints are not part of a run's spec (`trainer.saving`)."""
    cross_document_attention: bool = field(default=True, metadata={"added_later": True})
    """Whether a token attends to earlier documents in its row. If not, the first token of a document does not count in the
    loss, because the tokens before it do not predict it."""
    compute: ComputeConfig = field(default=ComputeConfig(), metadata={"added_later": True})
    """Precision, attention back-end, rematerialization. The choices made on a machine are in the run's record."""
    objective: Objective = field(default=NextToken(), metadata={"added_later": True})
    adapter: LoraConfig | None = field(default=None, metadata={"added_later": True})
    """Train a low-rank adapter over the start, whose own parameters stay as they are."""
    gradient_noise: bool = field(default=False, metadata={"added_later": True})
    """Record the noise of each step's gradient, by the gradients of its microbatches (`trainer.gradient_noise`)."""

    def __post_init__(self) -> None:
        require(self.num_steps > 0, "run.num_steps", self.num_steps, "positive")
        every = self.save_every_steps
        require(every is None or every > 0, "run.save_every_steps", every, "positive, or None")
        ascending = list(self.keep_steps) == sorted({step for step in self.keep_steps if 0 < step <= self.num_steps})
        require(ascending, "run.keep_steps", self.keep_steps, f"ascending, in 1..{self.num_steps}")
        sides = self.objective.ROW_SIDES
        longest = sides * self.model.max_seq_len
        require(self.context_len > 1 and self.seq_len <= longest, "run.seq_len", self.seq_len, f"in {2 * sides}..{longest}")
        if isinstance(self.objective, Dpo):
            self._check_preferences()
        if self.adapter is not None:
            self._check_adapter()
        for phase in self.batches.phases:
            self._check_microbatch(phase.batch_size)
        guarded = self.clip_update_norm is not None or self.skip_bad_steps is not None
        rebuilt = self.start is not None and self.start.guards == "rebuilt"
        require(guarded or not rebuilt, "run.start.guards", "rebuilt", "fresh where the run has neither guard")
        averaged = self.start is not None and self.start.average == "carried"
        require(self.ema is not None or not averaged, "run.start.average", "carried", "fresh where the run sets no ema")
        self.schedule.check_length(self.num_steps)
        require(self.z_loss_weight >= 0, "run.z_loss_weight", self.z_loss_weight, "at least 0")

    def _check_preferences(self) -> None:
        require(self.seq_len % 2 == 0, "run.seq_len", self.seq_len, "even with objective dpo: two sides of equal length")
        require(self.start is not None, "run.start", None, "given with objective dpo: the start is its reference")
        require(self.z_loss_weight == 0, "run.z_loss_weight", self.z_loss_weight, "0 with objective dpo")
        crossing = self.cross_document_attention
        require(crossing, "run.cross_document_attention", crossing, "true with objective dpo: a side is a row of its own")

    def _check_adapter(self) -> None:
        start = self.start
        fresh = start is not None and (start.optimizer, start.guards, start.average) == ("fresh", "fresh", "fresh")
        require(fresh, "run.start", start, "a WarmStart with fresh optimizer, guards and average: an adapter needs a base")
        require(not isinstance(self.model, MoeConfig), "run.model", "a mixture of experts", "a dense model with an adapter")
        require(self.ema is None, "run.ema", self.ema, "None with an adapter")
        whole = not isinstance(self.optimizer, AdamHConfig | MuonConfig | MuonHConfig)
        require(whole, "run.optimizer", type(self.optimizer).__name__, "a rule by element (AdamW, Lion, ...) with an adapter")

    def _check_microbatch(self, batch_size: int) -> None:
        size = self.microbatch_size
        several = size is not None and size < batch_size
        parts = f"False where a step of {batch_size} sequences is one microbatch; microbatch_size must be below batch_size"
        require(several or not self.gradient_noise, "run.gradient_noise", self.gradient_noise, parts)
        if size is not None:
            fits = size > 0 and batch_size % size == 0
            require(fits, "run.microbatch_size", size, f"a positive divisor of batch_size {batch_size}, or None")

    def saved_steps(self, last: int | None = None) -> tuple[int, ...]:
        """Steps whose checkpoints are kept, up to `last`, which is always kept (default: the run's last step)."""
        final = self.num_steps if last is None else last
        every = () if self.save_every_steps is None else range(self.save_every_steps, final + 1, self.save_every_steps)
        return tuple(sorted({*every, *(step for step in self.keep_steps if step <= final), final}))

    @property
    def context_len(self) -> int:
        """Tokens that the model reads together: those of a row, or of one side of a pair."""
        return self.seq_len // self.objective.ROW_SIDES

    @property
    def batches(self) -> BatchSchedule:
        return BatchSchedule.of(self.batch_size)

    def tokens_before(self, step: int) -> int:
        """Tokens that all earlier steps read."""
        return self.batches.first(step) * self.seq_len

    def step_tokens(self, step: int) -> int:
        return self.batches.size(step) * self.seq_len
