"""What a synthetic set is: its teacher, how it samples, and what is accepted. Frozen records that check themselves."""

from dataclasses import dataclass, field
from typing import Literal

from trainer.spec.checks import require


@dataclass(frozen=True)
class Teacher:
    """A model behind a URL with OpenAI's API: the project's server, or any other."""

    model: str
    url: str = field(default="", metadata={"identity": False})
    """Without /v1. It is no part of the identity: the same model may be served elsewhere."""

    form: Literal["completion", "chat", "agent"] = "completion"
    """`completion`: the prompt's text goes to /v1/completions. `chat`: it is the message of a user. `agent`: the teacher
    answers after it has looked at the environment's repository through a shell that only reads (`post_training.agents`)."""

    def __post_init__(self) -> None:
        require(bool(self.model), "teacher.model", self.model, "the name under which the server serves the model")
        require(self.form in ("completion", "chat", "agent"), "teacher.form", self.form, "completion, chat or agent")


@dataclass(frozen=True)
class SynthesisConfig:
    """Identity of the rollouts of a set: `samples` completions of each train prompt of an environment."""

    name: str
    teacher: Teacher
    samples: int
    max_tokens: int
    """Tokens of a completion; of an agent, all that it says."""

    max_turns: int = 15
    """Turns of an agent."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    shards: int = 1
    unit_prompts: int = 64
    """Prompts of a claim: what one worker answers at a time, and what is lost if it dies."""

    most_prompts: int | None = None
    """The first prompts by id; None is all."""

    claim_seconds: float = field(default=120.0, metadata={"identity": False})
    """A claim that was not renewed for so long belongs to whoever takes it next."""

    concurrency: int = field(default=16, metadata={"identity": False})
    patience_seconds: float = field(default=600.0, metadata={"identity": False})

    def __post_init__(self) -> None:
        for name in ("samples", "max_tokens", "max_turns", "shards", "unit_prompts", "claim_seconds", "concurrency"):
            require(getattr(self, name) > 0, f"synthesis.{name}", getattr(self, name), "positive")
        require(self.temperature > 0 or self.samples == 1, "synthesis.samples", self.samples, "1 for greedy completions")
        require(self.temperature >= 0, "synthesis.temperature", self.temperature, "at least 0")
        require(0 < self.top_p <= 1, "synthesis.top_p", self.top_p, "in (0, 1]")


@dataclass(frozen=True)
class ShardConfig(SynthesisConfig):
    """Identity of one shard of the rollouts."""

    shard: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.shard < self.shards, "synthesis.shard", self.shard, f"in 0..{self.shards - 1}")


@dataclass(frozen=True)
class Judge:
    """A model behind a URL that grades completions from 1 to 5 by an instruction."""

    model: str
    instruction: str
    least: int = 4
    """Completions with this grade or a better one are accepted."""

    max_tokens: int = 256
    url: str = field(default="", metadata={"identity": False})

    def __post_init__(self) -> None:
        require(1 <= self.least <= 5, "judge.least", self.least, "in 1..5")
        require(bool(self.instruction.strip()), "judge.instruction", self.instruction, "what the judge looks at")


@dataclass(frozen=True)
class AcceptConfig:
    """What is accepted: the verifier's verdict, then a judge's grade, then one of each group of duplicates."""

    verifier: Literal["environment", "none"] = "environment"
    judge: Judge | None = None
    truncated: Literal["drop", "keep"] = "drop"
    """Completions that ended at `max_tokens`."""

    min_jaccard: float = 0.8
    """Completions whose runs of five words are as similar as this are near duplicates; the first by (prompt, sample) stays."""

    def __post_init__(self) -> None:
        require(self.verifier in ("environment", "none"), "accept.verifier", self.verifier, "environment or none")
        judged = self.verifier != "none" or self.judge is not None
        require(judged, "accept.judge", self.judge, "a Judge if verifier is none: something must judge")
        require(self.truncated in ("drop", "keep"), "accept.truncated", self.truncated, "drop or keep")
        require(0 < self.min_jaccard <= 1, "accept.min_jaccard", self.min_jaccard, "in (0, 1]")


def shard_partition(shard: int) -> str:
    """Return the partition key of a shard. Keys sort like the numbers."""
    return f"shard-{shard:05d}"
