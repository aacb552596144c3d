"""Run one task on an opened model, which may be in this process or behind a URL."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tokenizers import Tokenizer

from evals.items.item import Item, items_of, read_items, select_items
from evals.items.stage import GENERATING_KINDS, TEXT_KINDS, TaskSpec
from evals.scoring.pass_at_k import PassCurve
from evals.scoring.records import EvalRecord, Score
from evals.scoring.statistics import is_incomplete
from evals.tasks.benchmarks import evaluate_benchmark
from evals.tasks.generation import evaluate_generation
from evals.tasks.generator import TextGenerator
from evals.tasks.perplexity import evaluate_perplexity
from evals.tasks.sampled import evaluate_samples
from evals.tasks.scorer import TokenScorer
from evals.tasks.trajectories import evaluate_trajectories, read_trajectories
from lineage.artifact.store import Artifact
from lineage.progress import track
from trainer.api import Weights

log = logging.getLogger("evals")


@dataclass(frozen=True)
class TaskResult:
    """Scores and records; `curves` of tasks with several samples an item."""

    scores: list[Score]
    records: list[EvalRecord]
    curves: list[PassCurve] = field(default_factory=list)


class OpenModel(Protocol):
    """A model under evaluation; scorers and generators open when a task needs them."""

    def scorer(self, weights: Weights) -> TokenScorer:
        """Open the scorer of the raw weights or of their average."""
        ...

    def generator(self) -> TextGenerator:
        """Open the generator, which uses the raw weights."""
        ...


@dataclass(frozen=True)
class TaskInputs:
    """Inputs of tasks besides the model. `chosen` holds the items of each task that has items; `version` names the model in the
    records: a checkpoint's data version."""

    tokenizer_artifact: Artifact
    tokenizer: Tokenizer
    start_token: int
    chosen: dict[str, list[Item]]
    shots: list[Item]
    corpora: tuple[Artifact, ...]
    trajectories: tuple[Artifact, ...]
    version: str
    seed: int


def chosen_items(tasks: Sequence[TaskSpec], suites: Sequence[Artifact], seed: int) -> dict[str, list[Item]]:
    """Choose the items of each task that has items; by task name."""
    items = [item for suite in suites for item in read_items(suite)]
    return {
        task.name: select_items(items_of(items, task.item_task), task.max_items, seed)
        for task in tasks
        if task.kind not in TEXT_KINDS
    }


def run_task(model: OpenModel, inputs: TaskInputs, task: TaskSpec) -> TaskResult:
    """Run a task. Raises: ValueError for a task that the model cannot do."""
    if task.kind in GENERATING_KINDS and task.samples > 1:
        chosen = inputs.chosen[task.name]
        scores, records, curve = evaluate_samples(model.generator(), task, chosen, inputs.version, inputs.seed, inputs.shots)
        return TaskResult(scores, records, [curve])
    if task.kind in GENERATING_KINDS:
        return TaskResult(*evaluate_generation(model.generator(), task, inputs.chosen[task.name], inputs.version, inputs.shots))
    opened = (model.scorer(task.weights), inputs.tokenizer, inputs.start_token)
    if task.kind == "perplexity":
        return TaskResult(*evaluate_perplexity(*opened, task, inputs.corpora, inputs.version, inputs.seed))
    if task.kind == "trajectories":
        held = read_trajectories(inputs.trajectories, inputs.tokenizer_artifact, task.max_items)
        return TaskResult(*evaluate_trajectories(*opened, task, held, inputs.version, inputs.seed))
    rules = inputs.chosen[task.name], inputs.version, inputs.seed, inputs.shots
    return TaskResult(*evaluate_benchmark(*opened, task, *rules))


def run_tasks(model: OpenModel, inputs: TaskInputs, tasks: Sequence[TaskSpec], title: str) -> TaskResult:
    """Run all tasks in order and log a line for each."""
    whole = TaskResult([], [])
    for task in track(tasks, title, len(tasks)):
        done = run_task(model, inputs, task)
        whole.scores.extend(done.scores)
        whole.records.extend(done.records)
        whole.curves.extend(done.curves)
        log.info("%s", ", ".join(map(str, done.scores)))
    return whole


def incomplete_tasks(records: Sequence[EvalRecord]) -> list[str]:
    """Return the names of tasks with too few graded items."""
    graded: dict[str, list[bool]] = {}
    for record in records:
        graded.setdefault(record.task, []).append(record.verdict == "graded")
    return sorted(task for task, each in graded.items() if is_incomplete(sum(each), len(each)))
