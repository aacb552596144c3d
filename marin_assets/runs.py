"""A declared run as assets: the run itself, its checkpoints as they appear, and what each of them is worth.

`runs/<run>/training` launches (or resumes) the training job. Checkpoints are external assets: the job commits them and a
sensor reports each as a step partition (sensors/checkpoints.py), so neither side needs the other alive.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace

import dagster as dg
from pydantic import Field

from evals.items.stage import TaskSpec
from lineage.build.plan import Node
from marin_assets.data_stages import FILES, ROWS
from marin_assets.describe import describe, identity_tags
from marin_assets.event_log import STAGE_METADATA
from marin_assets.factory import OWNER, AssetTemplate, Invariant, WarningCheck, checked, dependencies, family_asset
from marin_assets.invariants import (
    audit_violations,
    judge_contamination,
    judge_termination,
    loss_violations,
    score_violations,
    special_token_violations,
)
from partitions.axes import step_and_task, steps, steps_by_task
from recipes.lines import Line
from recipes.runs import audit, checkpoint, contamination_scores, eval_result, eval_tasks, export_canary, hf_model
from resources.lab import Lab
from resources.progress import observing
from trainer.spec.config import RunSpec
from trainer.spec.settings import RuntimeOptions, mesh_argument
from trainer.spec.stage import CHECKPOINT, parse_step_partition, step_partition

LOSS = Invariant("loss_finite_and_bounded", "the loss is finite and below that of guessing", loss_violations)
SCORES = Invariant("scores_finite", "every score lies in its interval and is finite", score_violations)
EVAL_MATERIAL = ("suites", "shots", "policy", "trajectories")
"""Inputs of an evaluation that it makes where they are missing."""
SCORED_ITEMS = "Scores of every benchmark item that a source holds, and of clean items beside them, for the audit."
AUDITED = Invariant("audit_present", "the audit covers every task of the suite and has a verdict", audit_violations)

SPECIALS = Invariant(
    "special_tokens_match", "the export's special tokens are those that the model was trained with", special_token_violations
)
TERMINATES = WarningCheck(
    "generation_terminates", "texts of the exported model come to an end by themselves", judge_termination
)
CANARY = "What the exported folder writes when it is opened as a stranger opens it, and whether its special tokens are right."

CLEAN = WarningCheck("not_contaminated", "training has read no benchmark item", judge_contamination)


class TrainingConfig(dg.Config):
    """How this launch of a run runs, in place of what its line says; no part of what it is. Empty: as the line says."""

    mesh: str = Field("", description="Devices by axis, like data=4,tensor=2")
    trackers: list[str] = Field([], description="tensorboard, wandb")
    evaluation: str = Field("", description="FILE@STEPS: held-out texts scored on the way")
    profile: str = Field("", description="FIRST+COUNT steps of a profiler trace, like 20+5")
    rolling_seconds: float | None = Field(None, description="Between rolling checkpoints")
    watch_steps: int | None = Field(None, description="Between rows with the norms of every weight")

    def arguments(self) -> tuple[str, ...]:
        """What the job is told after what the line tells it."""
        settings = RuntimeOptions(tuple(self.trackers), self.evaluation, self.profile, self.rolling_seconds, self.watch_steps)
        return (*((mesh_argument(self.mesh),) if self.mesh else ()), *settings.arguments())


def run_assets(line: Line) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Training, checkpoints, evaluation and audit of a line's run."""
    return [
        training_asset(line),
        checkpoint_spec(line),
        *(family_asset(family) for family in run_families(line)),
    ]


def run_families(line: Line) -> tuple[AssetTemplate, ...]:
    """What is made of every saved step of a line's run."""
    families = (hf_family, export_canary_family, eval_family, contamination_scores_family, audit_family)
    return tuple(family(line) for family in families)


def training_key(line: Line) -> dg.AssetKey:
    return dg.AssetKey(["runs", line.run.name, "training"])


def checkpoint_key(line: Line) -> dg.AssetKey:
    return dg.AssetKey(list(checkpoint(line, line.run.num_steps).key))


def _kept(run: RunSpec) -> str:
    steps = run.saved_steps()
    return "the final checkpoint alone" if len(steps) == 1 else f"{len(steps)} checkpoints, first at step {steps[0]}"


def training_asset(line: Line) -> dg.AssetsDefinition:
    """Launches the run, which commits its checkpoints by itself; resumes at the last one after a kill."""
    final = checkpoint(line, line.run.num_steps)
    family = _family(line, final, lambda lab, partition: final, "")

    @dg.asset(
        key=training_key(line),
        deps=dependencies(family),
        group_name="runs",
        description=f"Trains `{line.run.name}` for {line.run.num_steps} steps, keeping {_kept(line.run)}.",
        owners=[OWNER],
        kinds={"jax"},
        code_version=f"{final.stage.name}@{final.stage.version}",
        check_specs=[dg.AssetCheckSpec(LOSS.name, asset=training_key(line), description=LOSS.promise, blocking=True)],
    )
    def training(context: dg.AssetExecutionContext, config: TrainingConfig, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        listener = observing(context, training_key(line), None)
        told = replace(final, arguments=(*final.arguments, *config.arguments()))
        built = lab.build(lab.store, told, listener=listener, run_id=context.run.run_id)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(built.artifact.data_version),
            metadata=describe(built),
            tags=identity_tags(built.artifact),
            check_results=[checked(LOSS, built.artifact, context.run.run_id)],
        )

    return training


def checkpoint_spec(line: Line) -> dg.AssetSpec:
    """The checkpoints: external, one dynamic partition a saved step."""
    return dg.AssetSpec(
        checkpoint_key(line),
        deps=[training_key(line)],
        partitions_def=steps(line.run.name),
        group_name="runs",
        description=f"Checkpoints of `{line.run.name}`, one partition a saved step, reported as training commits them.",
        owners=[OWNER],
        kinds={"jax", "safetensors"},
        metadata={STAGE_METADATA: CHECKPOINT.name},
        code_version="checkpoint/1",
    )


def eval_family(line: Line) -> AssetTemplate:
    """Scores of one task at one saved step."""
    tasks = {task.name: task for task in eval_tasks(line)}

    def node_at(lab: Lab, partition: str | None) -> Node:
        step, task = step_and_task(str(partition))
        return eval_node(line, parse_step_partition(step), tasks[task])

    example = eval_node(line, line.run.num_steps, next(iter(tasks.values())))
    return AssetTemplate(
        example=example,
        node_at=node_at,
        store_of=lambda lab: lab.store,
        group="runs",
        description="Scores with 95 % intervals and per-item records of one task at one saved step.",
        kinds=frozenset({"jax", "parquet"}),
        partitions_def=steps_by_task(line.run.name, list(tasks)),
        invariants=(SCORES,),
        mappings={checkpoint(line, 1).key: _step_of_both()},
        builds_inputs=EVAL_MATERIAL,
    )


def _step_of_both() -> dg.PartitionMapping:
    """A result's step and task, to the step of its checkpoint. Beta in Dagster, which docs/dependencies.md says once;
    Dagster itself says it for every run, in every process (378 lines an hour of `make ui`)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in beta")
        return dg.MultiToSingleDimensionPartitionMapping("step")


def hf_family(line: Line) -> AssetTemplate:
    """Hugging Face's form of one saved step."""
    told = "The checkpoint as transformers opens it: safetensors, configs with the right end-of-text ids, tokenizer."
    return _step_family(line, hf_model, told, {"safetensors", "huggingface"}, FILES)


def export_canary_family(line: Line) -> AssetTemplate:
    """What the export of one saved step writes."""
    family = _step_family(line, export_canary, CANARY, {"jax", "huggingface"}, SPECIALS)
    return replace(family, advisories=(TERMINATES,))


def contamination_scores_family(line: Line) -> AssetTemplate:
    """Scores of the items that the corpora hold, at one saved step."""
    return _step_family(line, contamination_scores, SCORED_ITEMS, {"jax", "parquet"}, ROWS)


def audit_family(line: Line) -> AssetTemplate:
    """Contamination audit of one saved step."""
    told = "Which benchmark items the corpus held, before and after, which steps saw them, and what it changed."
    return replace(_step_family(line, audit, told, {"parquet"}, AUDITED), advisories=(CLEAN,))


def _step_family(
    line: Line, node: Callable[[Line, int], Node], description: str, kinds: set[str], invariant: Invariant
) -> AssetTemplate:
    """What a run has one of for every saved step."""
    return AssetTemplate(
        example=node(line, line.run.num_steps),
        node_at=lambda lab, partition: node(line, parse_step_partition(str(partition))),
        store_of=lambda lab: lab.store,
        group="runs",
        description=description,
        kinds=frozenset(kinds),
        partitions_def=steps(line.run.name),
        invariants=(invariant,),
    )


def eval_node(line: Line, step: int, task: TaskSpec) -> Node:
    """Scores of one task at one step."""
    return eval_result(line, step, (task,), partition=f"{step_partition(step)}|{task.name}")


def _family(line: Line, example: Node, node_at, description: str) -> AssetTemplate:
    return AssetTemplate(
        example=example,
        node_at=node_at,
        store_of=lambda lab: lab.store,
        group="runs",
        description=description,
        kinds=frozenset({"jax"}),
    )
