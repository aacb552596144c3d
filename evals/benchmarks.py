"""Tasks by likelihood: bits per byte of the gold answer (the primary number of a small model) and accuracies.

Below a billion parameters accuracies sit at chance, while the gold answer's likelihood already moves; both are reported,
accuracy with its chance level. An item that cannot be scored is a failed record with a reason, never left out.

Accuracies differ in what a choice's nats are divided by: nothing (`accuracy`, lm-eval's acc), bytes (`accuracy_per_byte`),
characters (`accuracy_norm`, lm-eval's acc_norm), or its probability after a bare "Answer:" (`accuracy_uncond`, PMI).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from evals.intervals import ratio_bootstrap
from evals.items import Item
from evals.prompts import UNCONDITIONAL, Asked, ask, choose_shots, policy_name
from evals.records import EvalRecord, Score, Verdict, log_probs_of
from evals.scorer import Scored, TokenScorer, score_continuations
from evals.stage import TaskSpec
from evals.statistics import share_score
from lineage.digests import text_digest

ACCURACIES = {
    "accuracy": "choice",
    "accuracy_per_byte": "choice_per_byte",
    "accuracy_norm": "choice_per_character",
    "accuracy_uncond": "choice_uncond",
}
"""Metric -> the field of a record's outputs that holds the choice it goes by. `correct` of a record is by bytes."""
GREEDY_TASKS = frozenset({"lambada"})
"""Tasks whose gold answer counts as right when the model would say it word for word (lm-eval's acc of LAMBADA)."""


@dataclass(frozen=True)
class _Found:
    """An item, as asked, with what the model made of each pair; `free` after the bare prompt, where that says anything."""

    item: Item
    asked: Asked
    scored: tuple[Scored | None, ...]
    free: tuple[Scored | None, ...]


def evaluate_benchmark(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    task: TaskSpec,
    items: Sequence[Item],
    checkpoint: str,
    seed: int,
    shots: Sequence[Item] = (),
) -> tuple[list[Score], list[EvalRecord]]:
    """Scores and records of a task: the gold answer's bits per byte, and accuracies where there are choices.

    Raises: ValueError when no item can be scored, an item of a choice task has no choices, or there are too few shots.
    """
    asked = [_ask(task, item, shots) for item in items]
    free = [_free_pairs(task, each) for each in asked]
    pairs = [pair for each, bare in zip(asked, free, strict=True) for pair in (*each.pairs, *bare)]
    greedy = task.item_task in GREEDY_TASKS and task.kind == "gold_bpb"
    scored = iter(score_continuations(scorer, tokenizer, pairs, start_token, greedy=greedy))
    found = [
        _Found(item, each, tuple(next(scored) for _ in each.pairs), tuple(next(scored) for _ in bare))
        for item, each, bare in zip(items, asked, free, strict=True)
    ]
    records = [_record(task, each, checkpoint) for each in found]
    if not any(record.verdict == "graded" for record in records):
        reasons = ", ".join(sorted({json.loads(record.outputs)["reason"] for record in records}))
        raise ValueError(
            f"task {task.name}: none of {len(items)} items could be scored: {reasons} ({scorer.max_seq_len} tokens fit)"
        )
    return _scores(task, found, records, seed), records


def _ask(task: TaskSpec, item: Item, shots: Sequence[Item]) -> Asked:
    asked = ask(item, task.style, choose_shots(item, shots, task.num_shots))
    if task.kind == "multiple_choice":
        if not item.choices:
            raise ValueError(f"task {task.name} is multiple choice, but item {item.item_id} has no choices")
        return asked
    return Asked((asked.prompts[asked.gold],), (asked.continuations[asked.gold],), 0)


def _free_pairs(task: TaskSpec, asked: Asked) -> list[tuple[str, str]]:
    """The choices after a bare prompt; none where continuations are equal (a blank filled in) or letters."""
    if task.kind != "multiple_choice" or task.style == "letters" or len(set(asked.continuations)) == 1:
        return []
    return [(UNCONDITIONAL, ending) for ending in asked.continuations]


def _record(task: TaskSpec, found: _Found, checkpoint: str) -> EvalRecord:
    policy = policy_name(task.style, task.num_shots, task.weights)
    digest = text_digest("\x1f".join(dict.fromkeys(found.asked.prompts)))
    item = found.item

    def record(
        outputs: dict[str, object],
        verdict: Verdict,
        correct: bool | None = None,
        bpb: float | None = None,
        log_probs: tuple[float, ...] = (),
        answer: str | None = None,
    ) -> EvalRecord:
        told = json.dumps(_said(found) | outputs, ensure_ascii=False)
        whose, judged = (task.name, item.item_id, policy, checkpoint, digest), (verdict, correct, bpb)
        about = (item.suite, item.source_digest, found.asked.continuations)
        return EvalRecord(*whose, told, *judged, *about, log_probs, answer)

    scored = [s for s in (*found.scored, *found.free) if s is not None]
    if len(scored) < len(found.scored) + len(found.free):
        return record({"reason": "longer than the context"}, "failed")
    if not all(math.isfinite(s.nats) for s in scored):
        return record({"reason": "the model's log-probability is not a finite number"}, "failed")
    choices, free = scored[: len(found.scored)], scored[len(found.scored) :]
    outputs: dict[str, object] = {
        "bytes": [s.num_bytes for s in choices],
        "truncated_tokens": max(s.truncated_tokens for s in choices),
    }
    gold = choices[found.asked.gold]
    correct, answer = gold.is_greedy, None
    if task.kind == "multiple_choice":
        chosen = _choices(found.asked, choices, free)
        outputs |= chosen
        correct, answer = chosen["choice_per_byte"] == found.asked.gold, item.choices[chosen["choice_per_byte"]]
    bits = gold.nats / math.log(2) / gold.num_bytes
    return record(outputs, "graded", correct, bits, log_probs_of(s.nats for s in choices), answer)


def _said(found: _Found) -> dict[str, object]:
    """Which continuation is right; the choices where these are in the prompts."""
    endings = found.asked.continuations
    filled = {"choices": list(found.item.choices)} if len(endings) > len(set(endings)) else {}
    return {**filled, "gold_index": found.asked.gold, "gold": found.item.answer}


def _choices(asked: Asked, scored: Sequence[Scored], free: Sequence[Scored]) -> dict[str, Any]:
    """What each accuracy would choose; the first of equals, as in lm-eval."""
    characters = [len(ending.removeprefix(" ")) for ending in asked.continuations]
    chosen: dict[str, Any] = {
        "choice": int(np.argmin([s.nats for s in scored])),
        "choice_per_byte": int(np.argmin([s.nats / s.num_bytes for s in scored])),
        "choice_per_character": int(np.argmin([s.nats / n for s, n in zip(scored, characters, strict=True)])),
    }
    if free:
        chosen["free_nats"] = [round(s.nats, 4) for s in free]
        chosen["choice_uncond"] = int(np.argmin([s.nats - f.nats for s, f in zip(scored, free, strict=True)]))
    return chosen


def _scores(task: TaskSpec, found: Sequence[_Found], records: Sequence[EvalRecord], seed: int) -> list[Score]:
    graded = [(each, json.loads(r.outputs)) for each, r in zip(found, records, strict=True) if r.verdict == "graded"]
    golds = [each.scored[each.asked.gold] for each, _ in graded]
    bits = np.array([gold.nats for gold in golds if gold is not None]) / math.log(2)
    sizes = np.array([gold.num_bytes for gold in golds if gold is not None], dtype=np.float64)
    attempted = len(records)
    scores = [Score(task.name, "gold_bits_per_byte", *ratio_bootstrap(bits, sizes, seed), len(graded), attempted)]
    if golds and all(gold is not None and gold.is_greedy is not None for gold in golds):
        said = sum(bool(gold.is_greedy) for gold in golds if gold is not None)
        scores.append(share_score(task.name, "accuracy_greedy", said, len(graded), attempted))
    if task.kind != "multiple_choice":
        return scores
    for metric, field in ACCURACIES.items():
        if all(field in outputs for _, outputs in graded):
            right = sum(outputs[field] == each.asked.gold for each, outputs in graded)
            scores.append(share_score(task.name, metric, right, len(graded), attempted))
    chance = float(np.mean([1 / len(each.item.choices) for each, _ in graded]))
    scores.append(Score(task.name, "chance", chance, chance, chance, len(graded), attempted))
    return scores
