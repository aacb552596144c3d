"""The training half of a run: nodes of checkpoints, exports, evaluations and audits.

Runs are declared in `recipes/studies/` (docs/recipes/add_a_run.md).
"""

import importlib
from functools import cache

from datakit.sources.source import SyntheticFiles
from evals.audit.build import AUDIT, AuditConfig
from evals.items.stage import (
    CONTAMINATION_SCORES,
    EVAL_RESULT,
    EXPORT_CANARY,
    ContaminationScoresConfig,
    EvalConfig,
    ExportCanaryConfig,
    TaskSpec,
)
from evals.tasks.policy import POLICY
from lineage.build.nodes import Node
from lineage.order.history import REFERENCE
from recipes import tokenized
from recipes.data import contamination, corpora, suites
from recipes.models import PublishedModel, imported, model_tokenizer
from recipes.policies import EVAL_SEED, policy_config
from recipes.records.placement import RoundTrialOf, SwarmTrialOf, TrialOf
from recipes.records.run import Run
from recipes.records.tokens import Tokens
from recipes.sources import source_config
from recipes.tokenized import tokenizer, trajectories
from trainer.hf.adapter import HF_ADAPTER, AdapterExportConfig
from trainer.hf.export import HF_MODEL, HfExportConfig
from trainer.spec.objectives import Dpo
from trainer.spec.pair_stage import PAIR_SCORES, PairScoresConfig
from trainer.spec.settings import mesh_argument
from trainer.spec.stage import CHECKPOINT, TRIAL, CheckpointConfig, step_partition
from trainer.spec.target import FORECAST

CONTROLS_PER_TASK = 50
PROPOSAL = "proposal"
"""Name of the input of a trial that a search proposed."""


@cache
def checkpoint(run: Run, step: int) -> Node:
    """Arrays, optimizer state and metrics at a step."""
    place = run.place.of_run(run.name, "checkpoint", partition=step_partition(step))
    inputs = {"mixture": mixture(run)}
    if (first := start(run)) is not None:
        inputs["start"] = first
    if isinstance(run.spec.objective, Dpo):
        inputs[REFERENCE] = reference(run, run.tokens)
    if run.forecast is not None:
        inputs[FORECAST] = run.forecast.node(run)
    if run.proposed is not None:
        inputs[PROPOSAL] = run.proposed.node()
    config = CheckpointConfig(run=run.spec, step=step)
    meshes = {name: (mesh_argument(mesh),) for name, mesh in run.execution.meshes.items()}
    stage = TRIAL if isinstance(run.place, TrialOf | SwarmTrialOf | RoundTrialOf) else CHECKPOINT
    return Node(*place, stage, config, inputs, run.execution.hardware, run.execution.settings.arguments(), meshes)


@cache
def mixture(run: Run) -> Node:
    """The mixture that a run reads."""
    return tokenized.mixture(run.data, run.batches, run.place.data, run.place.of_mix(run.data.name))


def start(run: Run) -> Node | None:
    """The checkpoint that a run starts from, if it does not begin with fresh parameters."""
    if isinstance(run.start, PublishedModel):
        return imported(run.start)
    return None if run.start is None else checkpoint(run.start.run, run.start.step)


@cache
def reference(run: Run, pairs: Tokens) -> Node:
    """Log-probabilities of pairs under the checkpoint that a run starts from; every run from there shares them."""
    first = start(run)
    if first is None:
        raise ValueError(f"run {run.name} has no start, which is the reference of its pairs; give it one")
    name = "-".join((*first.key, *(() if first.partition is None else (first.partition,))))
    place = run.place.data.of_all("preferences", pairs.name, "reference", name)
    return Node(
        *place, PAIR_SCORES, PairScoresConfig(run.spec.compute), _pair_inputs(run, pairs, first), run.evaluation.hardware
    )


@cache
def preference_scores(run: Run, step: int) -> Node:
    """Log-probabilities of held-out pairs at a step, and the accuracy of the implicit rewards."""
    pairs = run.evaluation.pairs
    if pairs is None:
        raise ValueError(f"run {run.name} has no held-out pairs; set evaluation.pairs")
    inputs = _pair_inputs(run, pairs, checkpoint(run, step)) | {REFERENCE: reference(run, pairs)}
    place = run.place.of_run(run.name, "preferences", partition=step_partition(step))
    return Node(*place, PAIR_SCORES, PairScoresConfig(run.spec.compute), inputs, run.evaluation.hardware)


def _pair_inputs(run: Run, pairs: Tokens, of: Node) -> dict[str, Node | tuple[Node, ...]]:
    caches = tuple(tokenized.token_cache(pairs, source, run.place.data) for source in pairs.sources)
    return {"caches": caches, "checkpoint": of}


@cache
def hf_model(run: Run, step: int) -> Node:
    """The checkpoint at a step as a folder that transformers opens."""
    place = run.place.of_run(run.name, "hf_model", partition=step_partition(step))
    return Node(
        *place,
        HF_MODEL,
        HfExportConfig(),
        {"checkpoint": checkpoint(run, step), "tokenizer": tokenizer(run.tokens, run.place.data)},
    )


@cache
def hf_adapter(run: Run, step: int) -> Node:
    """The adapter of a step as PEFT's files, over the start as its base."""
    first = start(run)
    place = run.place.of_run(run.name, "hf_adapter", partition=step_partition(step))
    config = AdapterExportConfig("" if first is None else first.name)
    return Node(*place, HF_ADAPTER, config, {"checkpoint": checkpoint(run, step)})


@cache
def export_canary(run: Run, step: int) -> Node:
    """A check that the folder opens, ends texts, and has the special tokens of training."""
    place = run.place.of_run(run.name, "hf_canary", partition=step_partition(step))
    return Node(
        *place,
        EXPORT_CANARY,
        ExportCanaryConfig(),
        {"hf_model": hf_model(run, step), "tokenizer": tokenizer(run.tokens, run.place.data)},
    )


def published_hf_model(model: PublishedModel) -> Node:
    """A published model exported again: its weights as they are scored and served here."""
    inputs = {"checkpoint": imported(model), "tokenizer": model_tokenizer(model)}
    return Node(("models", model.name, "hf_model"), None, HF_MODEL, HfExportConfig(), inputs)


def published_export_canary(model: PublishedModel) -> Node:
    """A check of that folder."""
    inputs = {"hf_model": published_hf_model(model), "tokenizer": model_tokenizer(model)}
    return Node(("models", model.name, "hf_canary"), None, EXPORT_CANARY, ExportCanaryConfig(max_new_tokens=256), inputs)


@cache
def policy(run: Run) -> Node:
    """The dated evaluation policy of a run's checkpoints; `recipes/policies.py` says what is in it."""
    at = run.place.data
    inputs = {"suites": suites(run.evaluation.suites, at), "shots": suites(run.evaluation.shots, at)}
    config = policy_config(run)
    return Node(*run.place.data.of_all("eval_policy", config.name), POLICY, config, inputs)


def eval_tasks(run: Run) -> tuple[TaskSpec, ...]:
    """Every task of the run's policy."""
    return policy_config(run).tasks


def eval_result(run: Run, step: int, tasks: tuple[TaskSpec, ...], partition: str) -> Node:
    """Scores with intervals and per-item records of some tasks of the policy at a step."""
    at = run.place.data
    inputs = {
        "checkpoint": checkpoint(run, step),
        "tokenizer": tokenizer(run.tokens, at),
        "suites": suites(run.evaluation.suites, at),
        "shots": suites(run.evaluation.shots, at),
        "corpora": corpora(run.heldout_corpus, at),
        "trajectories": trajectories(run.tokens, at),
        "policy": policy(run),
    }
    config = EvalConfig(tasks=tasks, seed=policy_config(run).seed)
    return Node(
        *run.place.of_run(run.name, "eval_result", partition=partition), EVAL_RESULT, config, inputs, run.evaluation.hardware
    )


def task_result(run: Run, step: int, task: TaskSpec) -> Node:
    """Scores of one task of the policy at a step."""
    return eval_result(run, step, (task,), partition=f"{step_partition(step)}|{task.name}")


def model_scores(model: PublishedModel, run: Run, task: TaskSpec) -> Node:
    """One task of a run's suites on a published model, by the policy that our own checkpoints are evaluated by."""
    inputs = {
        "checkpoint": imported(model),
        "tokenizer": model_tokenizer(model),
        "suites": suites(run.evaluation.suites),
        "shots": suites(run.evaluation.shots),
        "corpora": (),
        "policy": policy(run),
    }
    config = EvalConfig(tasks=(task,), seed=policy_config(run).seed)
    return Node(("models", model.name, "eval_result"), task.name, EVAL_RESULT, config, inputs, run.evaluation.hardware)


@cache
def contamination_scores(run: Run, step: int) -> Node:
    """Scores of contaminated items and clean controls, at a step and at the start of a warm-started run."""
    bound = {task.name for suite in run.decontamination.suites for task in suite.config.tasks}
    tasks = tuple(task for task in eval_tasks(run) if task.name in bound)
    inputs = {
        "checkpoint": checkpoint(run, step),
        "baseline": () if (first := start(run)) is None else (first,),
        "tokenizer": tokenizer(run.tokens, run.place.data),
        "suites": suites(run.decontamination.suites, run.place.data),
        "contamination": _marks(run),
    }
    place = run.place.of_run(run.name, "contamination_scores", partition=step_partition(step))
    config = ContaminationScoresConfig(tasks=tasks, controls_per_task=CONTROLS_PER_TASK, seed=EVAL_SEED)
    return Node(*place, CONTAMINATION_SCORES, config, inputs, run.evaluation.hardware)


@cache
def audit(run: Run, step: int) -> Node:
    """The benchmark items in the corpora, before and after decontamination, the steps that read them, and the scores."""
    every_corpus = {node.name: node for each in run.history for node in corpora(each.corpus, each.place.data)}
    inputs = {
        "checkpoint": checkpoint(run, step),
        "suites": suites(run.decontamination.suites, run.place.data),
        "contamination": _marks(run),
        "corpora": tuple(every_corpus.values()),
        "scores": (contamination_scores(run, step),),
    }
    if any(isinstance(source_config(source).loader, SyntheticFiles) for each in run.history for source in each.sources):
        synthetic = importlib.import_module(".synthetic", __package__)  # by name: it needs this module
        inputs["teacher_audits"] = synthetic.audits_of_teachers(tuple(s for each in run.history for s in each.sources))
    place = run.place.of_run(run.name, "contamination_audit", partition=step_partition(step))
    return Node(*place, AUDIT, AuditConfig(), inputs)


def _marks(run: Run) -> tuple[Node, ...]:
    """Marks of every source of the run and its predecessors, each once."""
    of_every_run = [(each, source) for each in run.history for source in each.sources]
    return tuple(
        {
            node.name: node
            for node in (contamination(each.decontamination, source, each.place.data) for each, source in of_every_run)
        }.values()
    )
