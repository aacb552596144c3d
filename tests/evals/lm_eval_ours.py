"""Our half of the comparison with lm-eval: a YAML task through the adapter, its items, and the evaluator."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lm_eval_cases import FUNCTIONS, MAX_NEW_TOKENS, NUM_SHOTS, START, YAML, generate, score
from unigram import byte_tokenizer

from evals.items.item import Item
from evals.items.stage import TaskSpec
from evals.items.task import Task
from evals.items.tasks.lm_eval_yaml import lm_eval_task, read_yaml
from evals.tasks.benchmarks import evaluate_benchmark
from evals.tasks.generation import evaluate_generation
from evals.tasks.generator import Generated


@dataclass(frozen=True)
class SmallModel:
    """The model of `lm_eval_cases.py` as the evaluator's scorer and generator."""

    max_seq_len: int = 1 << 16

    def token_nll(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.tail_nll(sequences, [len(sequence) - 1 for sequence in sequences])

    def tail_nll(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[np.ndarray]:
        return [score(sequence.tolist(), tail)[0] for sequence, tail in zip(sequences, tails, strict=True)]

    def tail_is_greedy(self, sequences: Sequence[np.ndarray], tails: Sequence[int]) -> list[bool]:
        return [score(sequence.tolist(), tail)[1] for sequence, tail in zip(sequences, tails, strict=True)]

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        return [Generated(generate(prompt, stops, max_tokens), "stop", 1, 0) for prompt in prompts]


def adapted(name: str) -> Task:
    return lm_eval_task(read_yaml(YAML / f"{name}.yaml"), FUNCTIONS)


def read_items(task: Task, path: Path) -> list[Item]:
    """Items of a file of documents, through the reader of the task's format."""
    (reader,) = task.formats.values()
    return [Item("lm_eval", task.name, licence="MIT", source_digest="d", **channels) for channels in reader(path)]


def our_scores(name: str, folder: Path) -> dict[str, float]:
    """The metrics of a task over the documents in a folder, by lm-eval's names."""
    task, model = adapted(name), SmallModel()
    items, shots = (read_items(task, folder / file) for file in (f"{name}.jsonl", f"{name}.shots.jsonl"))
    if name == "gsm8k":
        spec = TaskSpec(name, "generation", style="lm_eval", num_shots=NUM_SHOTS[name], max_new_tokens=MAX_NEW_TOKENS)
        scores, _ = evaluate_generation(model, spec, items, "version", shots, task=task)
    else:
        spec = TaskSpec(name, task.kind, style="lm_eval", num_shots=NUM_SHOTS[name])
        scores, _ = evaluate_benchmark(model, byte_tokenizer(), START, spec, items, "version", 0, shots, task)
    return {each.metric: each.value for each in scores}
