"""Nodes of a run on rewards: checkpoints, rollouts, scores on held-out prompts, marks and the audit.

Runs are declared in `recipes/studies/` (docs/recipes/train_with_rewards.md).
"""

from functools import cache

from datakit.contamination.marks import CONTAMINATION
from lineage.build.nodes import Node
from post_training.audit import REWARD_AUDIT, RewardAuditConfig
from post_training.spec import RewardRunSpec
from post_training.stage import (
    HELD_OUT,
    REWARD_CHECKPOINT,
    ROLLOUTS,
    HeldOutConfig,
    RewardCheckpointConfig,
    RolloutsConfig,
    iteration_partition,
)
from post_training.texts import PROMPT_TEXTS, ROLLOUT_TEXTS, TextsConfig
from recipes.data import contamination_index, suites
from recipes.records.data import Decontamination
from recipes.records.reward_run import RewardRun
from trainer.spec.stage import step_partition


@cache
def reward_checkpoint(run: RewardRun, step: int) -> Node:
    """Arrays, optimizer state, metrics, and the list of rollouts at a step."""
    config = RewardCheckpointConfig(**_fields(run), step=step)
    return Node(("runs", run.name, "checkpoint"), step_partition(step), REWARD_CHECKPOINT, config, _inputs(run), run.hardware)


def last_checkpoint(run: RewardRun) -> Node:
    """Return the run's last checkpoint."""
    return reward_checkpoint(run, run.spec.run.num_steps)


@cache
def rollouts(run: RewardRun, iteration: int) -> Node:
    """The completions of an iteration. The job of the run commits them; this node has the identity that they get."""
    config = RolloutsConfig(**_fields(run), iteration=iteration)
    return Node(("runs", run.name, "rollouts"), iteration_partition(iteration), ROLLOUTS, config, _inputs(run), run.hardware)


def held_out(run: RewardRun, step: int, config: HeldOutConfig | None = None) -> Node:
    """Sampled accuracy and pass@k of a step on held-out prompts."""
    inputs = {"checkpoint": reward_checkpoint(run, step), "environment": run.environment, "tokenizer": run.tokenizer}
    return Node(("runs", run.name, "held_out"), step_partition(step), HELD_OUT, config or run.held_out, inputs, run.hardware)


@cache
def rollout_texts(run: RewardRun, step: int) -> Node:
    """The distinct rollouts of a step as documents."""
    inputs = {"checkpoint": reward_checkpoint(run, step)}
    return Node(("runs", run.name, "rollout_texts"), step_partition(step), ROLLOUT_TEXTS, TextsConfig(), inputs)


@cache
def rollout_marks(run: RewardRun, step: int) -> Node:
    """Marks of these rollouts against the suites."""
    return _marks(("runs", run.name, "rollout_marks"), step_partition(step), run.decontamination, rollout_texts(run, step))


@cache
def audit_of_rollouts(run: RewardRun, step: int) -> Node:
    """Which items the rollouts of a step and of the runs before it held, and which update read them."""
    before = () if run.start is None else tuple(rollout_marks(each, each.spec.run.num_steps) for each in run.start.history)
    inputs = {
        "checkpoint": reward_checkpoint(run, step),
        "marks": (*before, rollout_marks(run, step)),
        "suites": suites(run.decontamination.suites),
    }
    key = ("runs", run.name, "contamination_audit")
    return Node(key, step_partition(step), REWARD_AUDIT, RewardAuditConfig(), inputs)


def environment_texts(run: RewardRun) -> Node:
    """The prompts of the run's environment, with their answers, as documents."""
    key = ("environment_texts", *run.environment.key[1:])
    return Node(key, run.environment.partition, PROMPT_TEXTS, TextsConfig(), {"environment": run.environment})


def environment_marks(run: RewardRun) -> Node:
    """Marks of the prompts against the suites."""
    key = ("environment_marks", *run.environment.key[1:])
    return _marks(key, run.environment.partition, run.decontamination, environment_texts(run))


def _marks(key: tuple[str, ...], partition: str | None, of: Decontamination, texts: Node) -> Node:
    inputs = {"normalized": texts, "suites": suites(of.suites), "index": contamination_index(of)}
    return Node(key, partition, CONTAMINATION, of.policy, inputs)


def _fields(run: RewardRun) -> dict:
    return {name: getattr(run.spec, name) for name in RewardRunSpec.__dataclass_fields__}


def _inputs(run: RewardRun) -> dict[str, Node | tuple[Node, ...]]:
    start = {} if run.start is None else {"start": last_checkpoint(run.start)}
    return {"environment": run.environment, "tokenizer": run.tokenizer, **start}
