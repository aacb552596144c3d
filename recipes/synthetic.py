"""Nodes of a synthetic set: a shard of its rollouts, and what is accepted (docs/recipes/make_synthetic_data.md)."""

from dataclasses import fields
from functools import cache

from datakit.sources.source import SyntheticFiles
from lineage.build.nodes import Node
from post_training.synthetic.accepted import SYNTHETIC_ACCEPTED
from post_training.synthetic.rollouts import SYNTHETIC_ROLLOUTS
from post_training.synthetic.spec import ShardConfig, SynthesisConfig, shard_partition
from recipes.lab import declarations
from recipes.records.reward_run import RewardRun
from recipes.records.synthetic import SyntheticSet
from recipes.reward_runs import audit_of_rollouts
from recipes.reward_runs import last_checkpoint as last_of_rewards
from recipes.runs import audit, checkpoint
from recipes.sources import source_config


@cache
def shard(of: SyntheticSet, number: int) -> Node:
    """One shard of the completions."""
    config = ShardConfig(**{each.name: getattr(of.synthesis, each.name) for each in fields(SynthesisConfig)}, shard=number)
    teacher = {} if of.teacher is None else {"teacher": teacher_checkpoint(of)}
    place = ("synthetic", of.name, "rollouts"), shard_partition(number)
    return Node(*place, SYNTHETIC_ROLLOUTS, config, {"environment": of.environment, **teacher})


@cache
def accepted(of: SyntheticSet) -> Node:
    """What the verifier or the judge accepts of all shards."""
    shards = tuple(shard(of, number) for number in range(of.synthesis.shards))
    key = ("synthetic", of.name, "accepted")
    return Node(key, None, SYNTHETIC_ACCEPTED, of.accept, {"environment": of.environment, "rollouts": shards})


def teacher_checkpoint(of: SyntheticSet) -> Node:
    """The last checkpoint of the teacher. Raises: ValueError if the set has none."""
    if of.teacher is None:
        raise ValueError(f"the teacher of {of.name} is known by its URL alone; declare its run")
    if isinstance(of.teacher, RewardRun):
        return last_of_rewards(of.teacher)
    return checkpoint(of.teacher, of.teacher.spec.num_steps)


def audits_of_teachers(sources: tuple[str, ...]) -> tuple[Node, ...]:
    """Return the audits of the teachers of these sources, each once; a teacher that is known by its URL alone has none."""
    loaders = [source_config(source).loader for source in sources]
    taught = [declared_set(loader.set) for loader in loaders if isinstance(loader, SyntheticFiles)]
    teachers = {of.teacher.name: of.teacher for of in taught if of.teacher is not None}
    return tuple(
        audit_of_rollouts(run, run.spec.run.num_steps) if isinstance(run, RewardRun) else audit(run, run.spec.num_steps)
        for run in teachers.values()
    )


def declared_set(name: str) -> SyntheticSet:
    """Return the declared set of a name. Raises: ValueError that lists the names."""
    for of in declarations().synthetic:
        if of.name == name:
            return of
    names = ", ".join(of.name for of in declarations().synthetic) or "none"
    raise ValueError(f"synthetic set {name!r} is not declared; the declared sets are: {names}")
