"""A declared run as assets: the run itself, its checkpoints as they appear, and the evaluations of each.

`runs/<run>/training` launches (or resumes) the training job. Checkpoints are external assets with a partition for each step
that the run keeps. The job commits them and a sensor reports them (sensors/checkpoints.py), so the job and Dagster do not
depend on each other being alive.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import dagster as dg
from pydantic import Field

from lineage.build.nodes import Node
from lineage.trust.gate import GateError
from marin_assets.areas import owners
from marin_assets.data_stages import FILES, ROWS
from marin_assets.describe import describe, identity_tags
from marin_assets.factory import AssetTemplate, Invariant, WarningCheck, asset_of, checked, dependencies, run_check
from marin_assets.invariants import (
    audit_violations,
    judge_contamination,
    judge_termination,
    loss_violations,
    router_judgement,
    score_violations,
    special_token_violations,
)
from marin_assets.references import stage_references
from partitions.axes import step_and_task, steps, steps_by_task
from recipes.records.run import Run
from recipes.runs import (
    audit,
    checkpoint,
    contamination_scores,
    eval_tasks,
    export_canary,
    hf_adapter,
    hf_model,
    preference_scores,
    task_result,
)
from resources.lab import Lab
from resources.progress import observing
from trainer.spec.config import RunSpec
from trainer.spec.moe import MoeConfig
from trainer.spec.settings import RuntimeOptions, mesh_argument
from trainer.spec.stage import parse_step_partition, step_partition

LOSS = Invariant("loss_finite_and_bounded", "the loss is finite and below that of guessing", loss_violations)
ROUTER = WarningCheck("router_balanced", "no expert has too many or too few tokens in the last 65,536", router_judgement)
SCORES = Invariant("scores_finite", "every score lies in its interval and is finite", score_violations)
EVAL_MATERIAL = ("suites", "shots", "policy", "trajectories")
"""Inputs of an evaluation that it makes if they are missing."""
SCORED_ITEMS = "Scores of every benchmark item that a source holds, and of clean items beside them, for the audit."
PREFERRED = "Log-probabilities of held-out pairs and the accuracy of the implicit rewards, beside that of the start."
AUDITED = Invariant("audit_present", "the audit covers every task of the suite and has a verdict", audit_violations)

SPECIALS = Invariant(
    "special_tokens_match", "the export's special tokens are those that the model was trained with", special_token_violations
)
TERMINATES = WarningCheck(
    "generation_terminates", "texts of the exported model come to an end by themselves", judge_termination
)
CANARY = "What the exported folder writes when it is opened as a stranger opens it, and whether its special tokens are right."

CLEAN = WarningCheck("not_contaminated", "training has read no benchmark item", judge_contamination)


class LaunchRefusedError(GateError):
    """A launch was refused. The message has the command that makes what is missing, then the missing artifacts."""

    def __init__(self, refusal: GateError, key: dg.AssetKey) -> None:
        missing = [finding for finding in refusal.findings if finding.problem == "missing"]
        others = [finding for finding in refusal.findings if finding.problem != "missing"]
        name = key.to_user_string()
        super().__init__(name, others)
        if missing:
            names = ", ".join(finding.artifact for finding in missing)
            remedy = f"`./marin materialize {name}` makes what is missing and trains then; missing: {names}"
            self.args = (f"{remedy}\n{self}" if others else remedy,)
        self.findings = refusal.findings


class TrainingConfig(dg.Config):
    """Settings of this launch that replace the declared ones; not part of its identity. Empty: as declared."""

    mesh: str = Field("", description="Devices by axis, like data=4,tensor=2")
    trackers: list[str] = Field([], description="tensorboard, wandb")
    evaluation: str = Field("", description="FILE@STEPS: held-out texts scored on the way")
    profile: str = Field("", description="FIRST+COUNT steps of a profiler trace, like 20+5")
    rolling_seconds: float | None = Field(None, description="Between rolling checkpoints")
    watch_steps: int | None = Field(None, description="Between rows with the norms of every weight")

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments that follow the declared ones."""
        settings = RuntimeOptions(tuple(self.trackers), self.evaluation, self.profile, self.rolling_seconds, self.watch_steps)
        return (*((mesh_argument(self.mesh),) if self.mesh else ()), *settings.arguments())


@cache
def training_config_schema() -> dict[str, dg.Field]:
    """Return the fields of `TrainingConfig`. Dagster takes 1 ms to infer them, and every run has the same."""
    return dict(TrainingConfig.to_fields_dict())


def run_assets(run: Run) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Return training, checkpoints, evaluation and audit of a run."""
    return [training_asset(run), *(asset_of(template) for template in run_templates(run))]


def run_templates(run: Run) -> tuple[AssetTemplate, ...]:
    """Return the checkpoints of a run, and what is made of each."""
    templates = (checkpoints, hf_models, export_canaries, eval_results, scored_items, audits)
    preferring = () if run.evaluation.pairs is None else (held_out_pairs,)
    adapting = () if run.spec.adapter is None else (hf_adapters,)
    return tuple(template(run) for template in (*templates, *preferring, *adapting))


def training_key(run: Run) -> dg.AssetKey:
    """Return the key of the asset that trains a run."""
    return dg.AssetKey(["runs", run.name, "training"])


def saved_partitions(run: Run) -> list[str]:
    """Return the partition keys of the steps that a run keeps."""
    return [step_partition(step) for step in run.spec.saved_steps()]


def _kept(spec: RunSpec) -> str:
    steps = spec.saved_steps()
    return "the final checkpoint alone" if len(steps) == 1 else f"{len(steps)} checkpoints, first at step {steps[0]}"


def training_asset(run: Run) -> dg.AssetsDefinition:
    """Return the asset that launches the run. The run commits its checkpoints and resumes at the last one after a kill."""
    final = checkpoint(run, run.spec.num_steps)
    advisories = (ROUTER,) if isinstance(run.spec.model, MoeConfig) else ()

    @dg.asset(
        key=training_key(run),
        deps=dependencies(replace(checkpoints(run), after=())),
        group_name="runs",
        description=f"Trains `{run.name}` for {run.spec.num_steps} steps, keeping {_kept(run.spec)}.",
        owners=owners("runs"),
        kinds={"jax"},
        metadata=stage_references(final.stage),
        code_version=f"{final.stage.name}@{final.stage.version}",
        config_schema=training_config_schema(),
        check_specs=[
            dg.AssetCheckSpec(LOSS.name, asset=training_key(run), description=LOSS.promise, blocking=True),
            *(dg.AssetCheckSpec(each.name, asset=training_key(run), description=each.promise) for each in advisories),
        ],
    )
    def training(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        config = TrainingConfig(**context.op_execution_context.op_config)
        listener = observing(context, training_key(run), None)
        configured = replace(final, arguments=(*final.arguments, *config.arguments()))
        try:
            built = lab.build(lab.store, configured, listener=listener, run_id=context.run.run_id)
        except GateError as error:
            raise LaunchRefusedError(error, training_key(run)) from None  # the UI shows the last of a chain last
        return dg.MaterializeResult(
            data_version=dg.DataVersion(built.artifact.data_version),
            metadata=describe(built),
            tags=identity_tags(built.artifact),
            check_results=[
                checked(LOSS, built.artifact, context.run.run_id),
                *(run_check(each, built.artifact) for each in advisories),
            ],
        )

    return training


def checkpoints(run: Run) -> AssetTemplate:
    """Return the checkpoints as external assets, one partition for each step that the run keeps."""
    template = _step_template(
        run,
        checkpoint,
        f"Checkpoints of `{run.name}`, one partition for each kept step, reported as training commits them.",
        {"jax", "safetensors"},
    )
    return replace(template, is_external=True, after=(tuple(training_key(run).path),))


def eval_results(run: Run) -> AssetTemplate:
    """Return the scores of one task at one saved step."""
    tasks = {task.name: task for task in eval_tasks(run)}

    def node(partition: str | None) -> Node:
        step, task = step_and_task(str(partition))
        return task_result(run, parse_step_partition(step), tasks[task])

    return AssetTemplate(
        example=task_result(run, run.spec.num_steps, next(iter(tasks.values()))),
        node_at=lambda lab, partition: node(partition),
        node=node,
        store_of=lambda lab: lab.store,
        group="runs",
        description="Scores with 95 % intervals and per-item records of one task at one saved step.",
        kinds=frozenset({"jax", "parquet"}),
        partitions_def=steps_by_task(saved_partitions(run), list(tasks)),
        invariants=(SCORES,),
        mappings={checkpoint(run, run.spec.num_steps).key: _step_of_both()},
        builds_inputs=EVAL_MATERIAL,
    )


def _step_of_both() -> dg.PartitionMapping:
    """Map a result's step and task to the step of its checkpoint.

    It is beta in Dagster (docs/dependencies.md), which warns of it for every run in every process: 378 lines
    an hour of `make ui`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in beta")
        return dg.MultiToSingleDimensionPartitionMapping("step")


def hf_models(run: Run) -> AssetTemplate:
    """Return Hugging Face's form of one saved step."""
    description = "The checkpoint as transformers opens it: safetensors, configs with the right end-of-text ids, tokenizer."
    return _step_template(run, hf_model, description, {"safetensors", "huggingface"}, FILES)


def hf_adapters(run: Run) -> AssetTemplate:
    """Return PEFT's form of the adapter of one saved step."""
    return _step_template(
        run, hf_adapter, "The adapter as `peft` opens it over the start.", {"safetensors", "huggingface"}, FILES
    )


def export_canaries(run: Run) -> AssetTemplate:
    """Return what the export of one saved step writes."""
    return replace(_step_template(run, export_canary, CANARY, {"jax", "huggingface"}, SPECIALS), advisories=(TERMINATES,))


def held_out_pairs(run: Run) -> AssetTemplate:
    """Scores of the held-out pairs at one saved step."""
    return _step_template(run, preference_scores, PREFERRED, {"jax", "parquet"}, ROWS)


def scored_items(run: Run) -> AssetTemplate:
    """Return the scores of the items that the corpora hold, at one saved step."""
    return _step_template(run, contamination_scores, SCORED_ITEMS, {"jax", "parquet"}, ROWS)


def audits(run: Run) -> AssetTemplate:
    """Return the contamination audit of one saved step."""
    description = "Which benchmark items the corpus held, before and after, which steps saw them, and what it changed."
    return replace(_step_template(run, audit, description, {"parquet"}, AUDITED), advisories=(CLEAN,))


def _step_template(
    run: Run, node: Callable[[Run, int], Node], description: str, kinds: set[str], *invariants: Invariant
) -> AssetTemplate:
    """Return the template of an asset that a run has once for every saved step."""

    def at(partition: str | None) -> Node:
        return node(run, parse_step_partition(str(partition)))

    return AssetTemplate(
        example=node(run, run.spec.num_steps),
        node_at=lambda lab, partition: at(partition),
        node=at,
        store_of=lambda lab: lab.store,
        group="runs",
        description=description,
        kinds=frozenset(kinds),
        partitions_def=steps(saved_partitions(run)),
        invariants=invariants,
    )
