"""Benchmark tasks: bits per byte of the gold answer (the primary number of a small model) and accuracy.

Below a billion parameters accuracies sit at chance, while the gold answer's likelihood already moves; both are reported,
accuracy with its chance level. An item that cannot be scored is a failed record with a reason, never left out.
"""

import json
import math
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from evals.intervals import ratio_bootstrap, wilson
from evals.items import Item
from evals.prompts import POLICY, continuation, gold_answer, prompt
from evals.records import EvalRecord, Score
from evals.scorer import Scored, TokenScorer, score_continuations
from evals.stage import TaskSpec
from lineage.digests import text_digest


def evaluate_benchmark(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    task: TaskSpec,
    items: Sequence[Item],
    checkpoint: str,
    seed: int,
) -> tuple[list[Score], list[EvalRecord]]:
    """Scores and records of a task: the gold answer's bits per byte, and accuracies where there are choices."""
    endings = [_endings(task, item) for item in items]
    pairs = [(prompt(item), continuation(text)) for item, texts in zip(items, endings, strict=True) for text in texts]
    scored = iter(score_continuations(scorer, tokenizer, pairs, start_token))
    records, golds = [], []
    for item, texts in zip(items, endings, strict=True):
        found = [next(scored) for _ in texts]
        records.append(_record(task, item, found, checkpoint))
        gold = found[item.answer_index if task.kind == "multiple_choice" else 0]
        if records[-1].verdict == "graded" and gold is not None:
            golds.append(gold)
    if not golds:
        raise ValueError(f"task {task.name}: none of {len(items)} items could be scored in {scorer.max_seq_len} tokens")
    return _scores(task, items, records, golds, seed), records


def _endings(task: TaskSpec, item: Item) -> Sequence[str]:
    if task.kind == "multiple_choice":
        if not item.choices:
            raise ValueError(f"task {task.name} is multiple choice, but item {item.item_id} has no choices")
        return item.choices
    return (gold_answer(item),)


def _record(task: TaskSpec, item: Item, found: Sequence[Scored | None], checkpoint: str) -> EvalRecord:
    common = (task.name, item.item_id, POLICY, checkpoint, text_digest(prompt(item)))
    scored = [s for s in found if s is not None]
    if len(scored) < len(found):
        return EvalRecord(*common, json.dumps({"reason": "longer than the context"}), "failed", None, None)
    outputs = {
        "nats": [round(s.nats, 4) for s in scored],
        "bytes": [s.num_bytes for s in scored],
        "truncated_tokens": max(s.truncated_tokens for s in scored),
    }
    gold = scored[item.answer_index] if task.kind == "multiple_choice" else scored[0]
    correct = None
    if task.kind == "multiple_choice":
        outputs["choice"] = int(np.argmin([s.nats for s in scored]))
        outputs["choice_per_byte"] = int(np.argmin([s.nats / s.num_bytes for s in scored]))
        correct = outputs["choice_per_byte"] == item.answer_index
    return EvalRecord(*common, json.dumps(outputs), "graded", correct, gold.nats / math.log(2) / gold.num_bytes)


def _scores(
    task: TaskSpec, items: Sequence[Item], records: Sequence[EvalRecord], golds: Sequence[Scored], seed: int
) -> list[Score]:
    bits = np.array([gold.nats for gold in golds]) / math.log(2)
    sizes = np.array([gold.num_bytes for gold in golds], dtype=np.float64)
    scores = [Score(task.name, "gold_bits_per_byte", *ratio_bootstrap(bits, sizes, seed), len(golds))]
    if task.kind == "multiple_choice":
        graded = [(i, json.loads(r.outputs)) for i, r in zip(items, records, strict=True) if r.verdict == "graded"]
        for metric, field in (("accuracy", "choice"), ("accuracy_per_byte", "choice_per_byte")):
            right = sum(outputs[field] == item.answer_index for item, outputs in graded)
            scores.append(Score(task.name, metric, right / len(graded), *wilson(right, len(graded)), len(graded)))
        chance = float(np.mean([1 / len(item.choices) for item, _ in graded]))
        scores.append(Score(task.name, "chance", chance, chance, chance, len(graded)))
    return scores
