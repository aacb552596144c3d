"""The stage `trainer.checkpoint`: a job that commits one artifact per kept step."""

import re
from dataclasses import dataclass
from typing import Literal

from lineage.stage import Stage
from trainer.spec.config import RunSpec

type Weights = Literal["raw", "ema"]
"""The parameters of a checkpoint, or their average if its run keeps one."""
FORMAT = "checkpoint/1"
MODEL_FILE = "model.json"
"""The model's config in an imported checkpoint, which has no run spec."""
METRICS_FILE = "metrics.parquet"
"""One row a step of a run that was trained here."""
NOISE_COLUMNS = ("gradient_square", "noise_trace")
"""Its columns with `run.gradient_noise`: estimates of |G|^2, which may be below 0, and of tr(Sigma)."""
_STEP = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class CheckpointConfig:
    """Identity of a checkpoint: the whole run spec and the number of steps."""

    run: RunSpec
    step: int

    def __post_init__(self) -> None:
        if not 0 < self.step <= self.run.num_steps:
            raise ValueError(f"checkpoint step is {self.step}; run {self.run.name} takes 1 to {self.run.num_steps} steps")


CHECKPOINT = Stage(
    "trainer.checkpoint", "8", job="trainer", config=CheckpointConfig, gate={"datakit.token_cache": "datakit.contamination"}
)
"""Versions. 2: loss in row tiles. 3: update norm in the metrics. 4: attention in blocks. 5: gradients of products by rows.
6: norm of the direction before its clip in the metrics. 7: RMS norms with a gradient of their own. 2, 4, 5 and 7 round
differently."""
TRIAL = Stage("trainer.trial", CHECKPOINT.version, job="trainer", config=CheckpointConfig, gate=CHECKPOINT.gate)
"""One run of a sweep: its last checkpoint, or the record of its divergence (`trainer/trial.py`)."""


def step_partition(step: int) -> str:
    """Partition key of a step. Keys sort as numbers."""
    return f"step-{step:08d}"


def parse_step_partition(partition: str) -> int:
    """The step of a partition key. Raises ValueError for any other key."""
    match = _STEP.fullmatch(partition)
    if match is None:
        raise ValueError(f"partition {partition!r} is not a step; it must look like {step_partition(200)}")
    return int(match.group(1))
