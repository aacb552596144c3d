"""A run on rewards as its job leaves it in a store: manifests with the identities and facts of real ones, without arrays."""

from collections.abc import Mapping
from typing import Any

from small_rewards import RewardRunSpec, learner

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.config import to_jsonable
from lineage.writing.write import writing
from post_training.stage import REWARD_CHECKPOINT, ROLLOUTS, RewardCheckpointConfig, RolloutsConfig, iteration_partition
from trainer.saving import rolling_store
from trainer.spec.stage import step_partition

SPEC = learner()
"""Three iterations of two updates each."""


def put(
    store: Store,
    key: str,
    partition: str | None,
    stage: str,
    *inputs: Artifact,
    named: Mapping[str, Artifact] | None = None,
    config: Any = None,
    **extra: Any,
) -> Artifact:
    """Commit an artifact of any stage with one small file; `extra` are facts of its manifest."""
    all_named = {f"input{number}": parent for number, parent in enumerate(inputs)} | dict(named or {})
    refs = tuple(parent.ref(name) for name, parent in all_named.items())
    spec = ArtifactSpec(tuple(key.split("/")), partition, stage, "1", to_jsonable(config or {}), refs)
    with writing(store, spec, code_fingerprint="code") as out:
        (out.folder / "a.txt").write_text(spec.version)
        out.extra.update(extra)
    return out.artifact


def environment(store: Store) -> Artifact:
    return put(store, "environments/sums", None, "environments.addition")


def rollouts(store: Store, prompts: Artifact, iteration: int, run: str = "sums") -> Artifact:
    """The rollouts of an iteration, with the summary that the job writes."""
    config = RolloutsConfig(**fields(SPEC), iteration=iteration)
    facts = {"policy_digest": f"digest{iteration}", "policy_step": 2 * iteration}
    numbers = {"reward": 0.25 * (iteration + 1), "right": 0.25, "used": 30}
    at = (f"runs/{run}/rollouts", iteration_partition(iteration), ROLLOUTS.name)
    return put(store, *at, prompts, config=config, rollouts=facts, iteration=numbers)


def checkpoint(
    store: Store, prompts: Artifact, step: int, shards: list[Artifact], run: str = "sums", *, rolling: bool = False
) -> Artifact:
    """The checkpoint of a step that learned from some shards."""
    learned = {str(each.spec.partition): each.data_version for each in shards}
    facts = {"step": step, "tokens_seen": 100 * step, "loss_nats": 0.5, "parameters": 7, "rollouts": learned}
    config = RewardCheckpointConfig(**fields(SPEC), step=step)
    at = (f"runs/{run}/checkpoint", step_partition(step), REWARD_CHECKPOINT.name)
    return put(rolling_store(store) if rolling else store, *at, prompts, config=config, checkpoint=facts)


def fields(spec: RewardRunSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in RewardRunSpec.__dataclass_fields__}
