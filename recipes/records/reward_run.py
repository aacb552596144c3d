"""Record of a run on rewards: the spec, the environment whose prompts it answers, its tokenizer and its start."""

from dataclasses import dataclass, field

from lineage.build.nodes import Node
from post_training.spec import RewardRunSpec, SamplingConfig
from post_training.stage import HeldOutConfig
from recipes.hardware import alternatives
from recipes.records.data import Decontamination


@dataclass(frozen=True)
class RewardRun:
    """One job that samples, judges and learns. Its checkpoints keep the steps that `spec.run` keeps."""

    spec: RewardRunSpec
    environment: Node
    tokenizer: Node
    held_out: HeldOutConfig
    """How checkpoints are scored on held-out prompts."""

    decontamination: Decontamination
    """The suites against which prompts and rollouts are marked."""

    start: "RewardRun | None" = None
    """The run whose last checkpoint this one starts from; None for fresh parameters, which only imitation takes."""

    hardware: tuple[str, ...] = field(default=("cpu",))
    """In order of preference; no part of any identity."""

    def __hash__(self) -> int:
        """Hash the name: nodes are cached by run."""
        return hash(self.spec.run.name)

    def __post_init__(self) -> None:
        alternatives(self.hardware)
        if (self.start is None) != (self.spec.run.start is None):
            given = None if self.start is None else self.start.name
            raise ValueError(
                f"run {self.name}: start is {given}, spec.run.start is {self.spec.run.start!r}; give both, or neither for "
                "fresh parameters"
            )
        if self.start is not None and self.start.spec.run.model != self.spec.run.model:
            raise ValueError(f"run {self.name}: its model differs from that of its start {self.start.name}; make them equal")
        sampled, longest = self.held_out.sampling, self.spec.sampling
        if (sampled.temperature, sampled.top_p) != (longest.temperature, longest.top_p):
            raise ValueError(
                f"run {self.name}: held-out samples have temperature {sampled.temperature} and top_p {sampled.top_p}, rollouts "
                f"{longest.temperature} and {longest.top_p}; make them equal, or the gap between them means nothing"
            )

    @property
    def name(self) -> str:
        return self.spec.run.name

    @property
    def history(self) -> "tuple[RewardRun, ...]":
        """The runs that this one starts from, the oldest first, and this run last."""
        return (*(() if self.start is None else self.start.history), self)


def held_out_like(sampling: SamplingConfig, completions: int, rows: int = 2048) -> HeldOutConfig:
    """Samples of held-out prompts by the distribution of the rollouts, `rows` at once."""
    at_once = max(1, rows // completions)
    same = SamplingConfig(at_once, completions, sampling.max_new_tokens, sampling.temperature, sampling.top_p)
    return HeldOutConfig(same)
