"""A run on rewards as assets: the environment, the run, its checkpoints and rollouts, held-out scores, marks and the audit.

`runs/<run>/training` launches (or resumes) the job. Checkpoints and rollouts are external assets, partitioned by step and by
iteration: the job commits them, and a sensor reports them (sensors/rewards.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import dagster as dg

from lineage.build.nodes import Node
from lineage.trust.gate import GateError
from marin_assets.areas import owners
from marin_assets.data import of_all, suite_assets
from marin_assets.data_stages import FILES
from marin_assets.describe import describe, identity_tags
from marin_assets.factory import (
    AssetTemplate,
    Invariant,
    WarningCheck,
    asset_of,
    checked,
    dependencies,
    of_partitions,
    run_check,
)
from marin_assets.runs import CLEAN, LaunchRefusedError
from partitions.axes import iterations, steps
from post_training import checks
from post_training.stage import iteration_partition, parse_iteration
from recipes.data import contamination_index
from recipes.records.reward_run import RewardRun
from recipes.reward_runs import (
    audit_of_rollouts,
    environment_marks,
    environment_texts,
    held_out,
    last_checkpoint,
    reward_checkpoint,
    rollout_marks,
    rollout_texts,
    rollouts,
)
from resources.lab import Lab
from resources.progress import observing
from trainer.spec.stage import parse_step_partition, step_partition

LOSS = Invariant("loss_finite", "the loss of every update is finite", checks.loss_is_finite)
SAMPLER = Invariant(
    "sampler_is_trainer", "sampler and trainer give the same log-probabilities in every iteration", checks.sampler_is_trainer
)
ADVISORIES = (
    WarningCheck("groups_alive", "groups hold different rewards, so that they teach", checks.groups_are_alive),
    WarningCheck("kl_in_band", "the policy stays near its reference", checks.kl_in_band),
    WarningCheck("length_steady", "completions keep their length", checks.length_is_steady),
    WarningCheck("entropy_above_floor", "completions of a prompt differ", checks.entropy_above_floor),
    WarningCheck("policies_are_known", "every completion names the weights that sampled it", checks.policies_are_known),
    WarningCheck("second_verifier_agrees", "another verifier accepts what was rewarded", checks.second_verifier_agrees),
)
GAP = WarningCheck("held_out_gap", "train prompts are not answered better than held-out ones", checks.held_out_gap)


def reward_assets(run: RewardRun) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return training and everything made of a run."""
    return [reward_training(run), *(asset_of(template) for template in reward_templates(run))]


def environment_templates(run: RewardRun) -> Iterator[AssetTemplate]:
    """Yield the environment with its marks, the tokenizer and the suites; runs share them."""
    yield of_all(run.environment)
    yield of_all(run.tokenizer)
    yield from suite_assets(run.decontamination.suites)
    yield of_all(contamination_index(run.decontamination))
    yield of_all(environment_texts(run))
    yield of_all(environment_marks(run))


def reward_templates(run: RewardRun) -> tuple[AssetTemplate, ...]:
    """Return checkpoints and rollouts of a run, and what is made of each kept step."""
    after = (tuple(reward_training_key(run).path),)
    checkpoint = _of_step(run, reward_checkpoint, "Checkpoints; each lists the rollouts that it learned from.", {"jax"})
    scored = _of_step(run, held_out, "Sampled accuracy and pass@k on held-out prompts.", {"jax", "parquet"}, FILES)
    texts = _of_step(run, rollout_texts, "", {"parquet"}, group="contamination")
    marks = _of_step(run, rollout_marks, "", {"parquet"}, group="contamination")
    audited = _of_step(run, audit_of_rollouts, "", {"parquet"}, FILES)
    return (
        replace(checkpoint, is_external=True, after=after),
        replace(_rollouts(run), is_external=True, after=after),
        replace(scored, advisories=(GAP,)),
        texts,
        marks,
        replace(audited, advisories=(CLEAN,)),
    )


def reward_training_key(run: RewardRun) -> dg.AssetKey:
    """Return the key of the asset that trains a run on rewards."""
    return dg.AssetKey(["runs", run.name, "training"])


def reward_training(run: RewardRun) -> dg.AssetsDefinition:
    """Return the asset that launches the run. A killed job goes on at its last checkpoint, in the middle of the run."""
    final, key = last_checkpoint(run), reward_training_key(run)
    spec = run.spec

    @dg.asset(
        key=key,
        deps=dependencies(_of_step(run, reward_checkpoint, "", set())),
        group_name="runs",
        description=f"Learns `{run.name}` by {spec.advantage.kind}: {spec.iterations} iterations of {spec.sampling.prompts} "
        f"prompts x {spec.sampling.completions} completions, {spec.updates} updates each.",
        owners=owners("runs"),
        kinds={"jax"},
        code_version=f"{final.stage.name}@{final.stage.version}",
        check_specs=[
            *(dg.AssetCheckSpec(each.name, asset=key, description=each.promise, blocking=True) for each in (LOSS, SAMPLER)),
            *(dg.AssetCheckSpec(each.name, asset=key, description=each.promise) for each in ADVISORIES),
        ],
    )
    def training(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        listener = observing(context, key, None)
        try:
            built = lab.build(lab.store, final, listener=listener, run_id=context.run.run_id)
        except GateError as error:
            raise LaunchRefusedError(error, key) from None
        return dg.MaterializeResult(
            data_version=dg.DataVersion(built.artifact.data_version),
            metadata=describe(built),
            tags=identity_tags(built.artifact),
            check_results=[
                *(checked(each, built.artifact, context.run.run_id) for each in (LOSS, SAMPLER)),
                *(run_check(each, built.artifact) for each in ADVISORIES),
            ],
        )

    return training


def _rollouts(run: RewardRun) -> AssetTemplate:
    """Return the rollouts as assets with one partition for each iteration."""
    parts = iterations([iteration_partition(number) for number in range(run.spec.iterations)])
    described = f"Completions of `{run.name}` with log-probabilities, verdict, reward and advantage, by iteration."

    def at(partition: str) -> Node:
        return rollouts(run, parse_iteration(partition))

    return of_partitions(rollouts(run, 0), at, parts, "runs", described, {"jax", "parquet"})


def _of_step(
    run: RewardRun,
    node: Callable[[RewardRun, int], Node],
    description: str,
    kinds: set[str],
    *invariants: Invariant,
    group: str = "runs",
) -> AssetTemplate:
    """Return the template of an asset that a run has once for every step that it keeps."""
    example = node(run, run.spec.run.num_steps)
    parts = steps([step_partition(step) for step in run.spec.run.saved_steps()])

    def at(partition: str) -> Node:
        return node(run, parse_step_partition(partition))

    return of_partitions(example, at, parts, group, description or example.stage.description, kinds, *invariants)
