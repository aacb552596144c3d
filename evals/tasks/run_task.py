"""One task asked of an opened model: the same for a model in this process and for one behind a URL."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenizers import Tokenizer

from evals.items.item import Item, items_of, read_items, select_items
from evals.items.stage import GENERATING_KINDS, TEXT_KINDS, TaskSpec
from evals.scoring.records import EvalRecord, Score
from evals.scoring.statistics import is_incomplete
from evals.tasks.benchmarks import evaluate_benchmark
from evals.tasks.generation import evaluate_generation
from evals.tasks.generator import TextGenerator
from evals.tasks.perplexity import evaluate_perplexity
from evals.tasks.scorer import TokenScorer
from evals.tasks.trajectories import evaluate_trajectories, read_trajectories
from lineage.artifact.store import Artifact
from lineage.progress import track
from trainer.api import Weights

log = logging.getLogger("evals")
type Found = tuple[list[Score], list[EvalRecord]]


class OpenModel(Protocol):
    """A model under evaluation, opened as tasks ask for it."""

    def scorer(self, weights: Weights) -> TokenScorer:
        """What gives nats of tokens, of the raw weights or their average."""
        ...

    def generator(self) -> TextGenerator:
        """What continues prompts, by the raw weights."""
        ...


@dataclass(frozen=True)
class TaskInputs:
    """What tasks read besides the model. `chosen` holds the items of each task that has some; `version` is the model's name in
    the records: a checkpoint's data version."""

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
    """The items that each task with items asks, by its name."""
    items = [item for suite in suites for item in read_items(suite)]
    return {
        task.name: select_items(items_of(items, task.item_task), task.max_items, seed)
        for task in tasks
        if task.kind not in TEXT_KINDS
    }


def run_task(model: OpenModel, inputs: TaskInputs, task: TaskSpec) -> Found:
    """Scores and records of a task. Raises: ValueError for what cannot be asked."""
    if task.kind in GENERATING_KINDS:
        return evaluate_generation(model.generator(), task, inputs.chosen[task.name], inputs.version, inputs.shots)
    opened = (model.scorer(task.weights), inputs.tokenizer, inputs.start_token)
    if task.kind == "perplexity":
        return evaluate_perplexity(*opened, task, inputs.corpora, inputs.version, inputs.seed)
    if task.kind == "trajectories":
        held = read_trajectories(inputs.trajectories, inputs.tokenizer_artifact, task.max_items)
        return evaluate_trajectories(*opened, task, held, inputs.version, inputs.seed)
    return evaluate_benchmark(*opened, task, inputs.chosen[task.name], inputs.version, inputs.seed, inputs.shots)


def run_tasks(model: OpenModel, inputs: TaskInputs, tasks: Sequence[TaskSpec], title: str) -> Found:
    """Every task, one after the other, each with a line in the log."""
    scores: list[Score] = []
    records: list[EvalRecord] = []
    for task in track(tasks, title, len(tasks)):
        done = run_task(model, inputs, task)
        scores += done[0]
        records += done[1]
        log.info("%s", ", ".join(map(str, done[0])))
    return scores, records


def incomplete_tasks(records: Sequence[EvalRecord]) -> list[str]:
    """Tasks of which too few items were graded."""
    graded: dict[str, list[bool]] = {}
    for record in records:
        graded.setdefault(record.task, []).append(record.verdict == "graded")
    return sorted(task for task, each in graded.items() if is_incomplete(sum(each), len(each)))
