"""The stages of post-training: checkpoints of a run, its rollouts, and scores on held-out prompts."""

import re
from dataclasses import dataclass

from lineage.stage import Stage
from post_training.spec import RewardRunSpec, SamplingConfig
from trainer.spec.checks import require

ROLLOUTS_FILE = "rollouts.parquet"
_ITERATION = re.compile(r"iteration-(\d{8})")


@dataclass(frozen=True)
class RewardCheckpointConfig(RewardRunSpec):
    """Identity of a checkpoint: the whole run, and the number of updates so far."""

    step: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = 0 < self.step <= self.run.num_steps and self.step % self.updates == 0
        require(fits, "step", self.step, f"a multiple of {self.updates} in 1..{self.run.num_steps}")


@dataclass(frozen=True)
class RolloutsConfig(RewardRunSpec):
    """Identity of the rollouts of one iteration, counted from 0."""

    iteration: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.iteration < self.iterations, "iteration", self.iteration, f"in 0..{self.iterations - 1}")


@dataclass(frozen=True)
class HeldOutConfig:
    """Samples on held-out prompts."""

    sampling: SamplingConfig
    """`prompts` are sampled at once, with `completions` of each."""
    most_prompts: int = 1000
    """How many held-out prompts are sampled: the first ones by id."""
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.most_prompts > 0, "most_prompts", self.most_prompts, "positive")


REWARD_CHECKPOINT = Stage(
    "post_training.checkpoint",
    "2",
    job="post_training",
    config=RewardCheckpointConfig,
    gate={},
    description="Checkpoints of a run that learns from rewards.",
)
ROLLOUTS = Stage(
    "post_training.rollouts",
    "2",
    job="post_training",
    config=RolloutsConfig,
    gate={},
    description="The completions of one iteration, a row each, with log-probabilities, reward, verdict and advantage.",
)
HELD_OUT = Stage(
    "post_training.held_out",
    "2",
    job="post_training",
    config=HeldOutConfig,
    gate={},
    description="Sampled accuracy and pass@k of a checkpoint on held-out prompts.",
)


def iteration_partition(iteration: int) -> str:
    """Return the partition key of an iteration. Keys sort like the numbers."""
    return f"iteration-{iteration:08d}"


def parse_iteration(partition: str) -> int:
    """Return the iteration of a partition key. Raises: ValueError for any other key."""
    match = _ITERATION.fullmatch(partition)
    if match is None:
        raise ValueError(f"partition {partition!r} is not an iteration; it must look like {iteration_partition(3)}")
    return int(match[1])
