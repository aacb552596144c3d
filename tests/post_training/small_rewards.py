"""The smallest run on rewards: one-digit addition, a model of two layers, in a store of a test."""

from dataclasses import replace
from pathlib import Path

from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from post_training.environments.arithmetic import ADDITION, Addition
from post_training.spec import Imitate, KLConfig, LossConfig, RewardRunSpec, Rloo, SamplingConfig
from post_training.stage import REWARD_CHECKPOINT, RewardCheckpointConfig
from tests.tiny import tiny_model, tiny_spec
from trainer.spec.config import WarmStart
from trainer.spec.stage import step_partition

BYTES = 257
"""Every byte and the end of text."""


def store_at(folder: Path) -> Store:
    return Store(str(folder))


def environment() -> Node:
    return Node(("environments", "addition1"), None, ADDITION, Addition(1, 0.2))


def tokenizer() -> Node:
    return Node(("tokenizer", "bytes"), None, TOKENIZER, TokenizerConfig(BYTES), {"corpora": ()})


def base() -> RewardRunSpec:
    """A fresh model that imitates 4 iterations of 16 answers."""
    run = tiny_spec(name="imitation", model=tiny_model(vocab_size=BYTES), batch_size=16, num_steps=4, seed=1)
    return RewardRunSpec(run, SamplingConfig(16, 1, 4), Imitate())


def learner(iterations: int = 3, **changes) -> RewardRunSpec:
    """RLOO of 8 prompts x 4 completions in two updates an iteration, with a KL term to the start."""
    run = replace(
        base().run, name="rewards", num_steps=2 * iterations, batch_size=16, start=WarmStart(), save_every_steps=2, seed=3
    )
    spec = RewardRunSpec(run, SamplingConfig(8, 4, 4), Rloo(), LossConfig(truncated="train"), KLConfig(0.02))
    return replace(spec, **changes)


def node(spec: RewardRunSpec, step: int | None = None) -> Node:
    """The checkpoint of a run at a step, with its inputs."""
    at = step or spec.run.num_steps
    fields = {name: getattr(spec, name) for name in RewardRunSpec.__dataclass_fields__}
    inputs = {"environment": environment(), "tokenizer": tokenizer()}
    if spec.run.start is not None:
        inputs["start"] = node(base())
    key = ("runs", spec.run.name, "checkpoint")
    return Node(key, step_partition(at), REWARD_CHECKPOINT, RewardCheckpointConfig(**fields, step=at), inputs)
