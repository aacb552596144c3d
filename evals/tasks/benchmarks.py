"""Score a benchmark by likelihood: bits per byte of the gold answer, and accuracies where items have choices.

Bits per byte of the gold answer is the main score of a small model: below a billion parameters accuracies are near
chance, while the likelihood of the gold answer already improves. Accuracies are reported with their chance level. An
item that cannot be scored becomes a failed record with a reason; it is never left out.

Accuracies differ in what the nats of a choice are divided by: nothing (`accuracy`, lm-eval's acc), its bytes
(`accuracy_per_byte`), its characters (`accuracy_norm`, lm-eval's acc_norm), or its probability after a bare "Answer:"
(`accuracy_uncond`, pointwise mutual information).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from evals.items.item import Item
from evals.items.prompts import UNCONDITIONAL, policy_name, render
from evals.items.stage import TaskSpec
from evals.items.task import Outcome, RenderedItem, Task
from evals.items.tasks.registry import task_named
from evals.scoring.intervals import ratio_bootstrap
from evals.scoring.records import EvalRecord, Score, Verdict, log_probs_of
from evals.scoring.statistics import metric_score, share_score
from evals.tasks.scorer import Scored, TokenScorer, score_continuations
from lineage.storage.digests import text_digest

ACCURACIES = {
    "accuracy": "choice",
    "accuracy_per_byte": "choice_per_byte",
    "accuracy_norm": "choice_per_character",
    "accuracy_uncond": "choice_uncond",
}
"""Metric -> the field of a record's outputs with the choice that the metric picks. `correct` of a record is by
bytes."""


@dataclass(frozen=True)
class _ScoredItem:
    """An item with the scores of its pairs (None: longer than the context), and of its choices after the bare
    prompt."""

    item: Item
    rendered: RenderedItem
    scored: tuple[Scored | None, ...]
    unconditional: tuple[Scored | None, ...]

    @property
    def outcome(self) -> Outcome:
        gold = self.scored[self.rendered.gold]
        assert gold is not None  # only items that were graded have an outcome
        return Outcome(tuple(each.nats for each in self.scored if each is not None), gold.is_greedy)


def evaluate_benchmark(
    scorer: TokenScorer,
    tokenizer: Tokenizer,
    start_token: int,
    spec: TaskSpec,
    items: Sequence[Item],
    checkpoint: str,
    seed: int,
    shots: Sequence[Item] = (),
    task: Task | None = None,
) -> tuple[list[Score], list[EvalRecord]]:
    """Return scores and records of a task: bits per byte of the gold answers, accuracies where there are choices, the task's
    metrics.

    `task`: the record of the benchmark, by default the registered one of `spec.item_task`.

    Raises: ValueError when no item can be scored, an item of a multiple-choice task has no choices, or there are too
    few shots.
    """
    task = task or task_named(spec.item_task)
    rendered = [_render(task, spec, item, shots) for item in items]
    bare = [_unconditional_pairs(spec, each) for each in rendered]
    pairs = [pair for each, of_bare in zip(rendered, bare, strict=True) for pair in (*each.pairs, *of_bare)]
    greedy = spec.kind == "gold_bpb" and any(metric.reads == "greedy" for metric in task.metrics)
    scores = iter(score_continuations(scorer, tokenizer, pairs, start_token, greedy=greedy))
    scored = [
        _ScoredItem(item, each, tuple(next(scores) for _ in each.pairs), tuple(next(scores) for _ in of_bare))
        for item, each, of_bare in zip(items, rendered, bare, strict=True)
    ]
    records = [_record(spec, each, checkpoint) for each in scored]
    if not any(record.verdict == "graded" for record in records):
        reasons = ", ".join(sorted({json.loads(record.outputs)["reason"] for record in records}))
        raise ValueError(
            f"task {spec.name}: none of {len(items)} items could be scored: {reasons} "
            f"(the context holds {scorer.max_seq_len} tokens)"
        )
    return _scores(task, spec, scored, records, seed), records


def _render(task: Task, spec: TaskSpec, item: Item, shots: Sequence[Item]) -> RenderedItem:
    rendered = render(item, spec.style, task.shots(item, shots, spec.num_shots), task)
    if spec.kind == "multiple_choice":
        if not item.choices:
            raise ValueError(f"task {spec.name} is multiple choice, but item {item.item_id} has no choices")
        return rendered
    return RenderedItem((rendered.prompts[rendered.gold],), (rendered.continuations[rendered.gold],), 0)


def _unconditional_pairs(spec: TaskSpec, rendered: RenderedItem) -> list[tuple[str, str]]:
    """Return the choices after a bare prompt; none when all continuations are equal (a filled blank) or are letters."""
    if spec.kind != "multiple_choice" or spec.style == "letters" or len(set(rendered.continuations)) == 1:
        return []
    return [(UNCONDITIONAL, ending) for ending in rendered.continuations]


def _record(spec: TaskSpec, each: _ScoredItem, checkpoint: str) -> EvalRecord:
    policy = policy_name(spec.style, spec.num_shots, spec.weights)
    digest = text_digest("\x1f".join(dict.fromkeys(each.rendered.prompts)))
    item = each.item

    def record(
        outputs: dict[str, object],
        verdict: Verdict,
        correct: bool | None = None,
        bpb: float | None = None,
        log_probs: tuple[float, ...] = (),
        answer: str | None = None,
    ) -> EvalRecord:
        facts = json.dumps(_gold_facts(each) | outputs, ensure_ascii=False)
        identity, judged = (spec.name, item.item_id, policy, checkpoint, digest), (verdict, correct, bpb)
        about = (item.suite, item.source_digest, each.rendered.continuations)
        return EvalRecord(*identity, facts, *judged, *about, log_probs, answer)

    scored = [s for s in (*each.scored, *each.unconditional) if s is not None]
    if len(scored) < len(each.scored) + len(each.unconditional):
        return record({"reason": "longer than the context"}, "failed")
    if not all(math.isfinite(s.nats) for s in scored):
        return record({"reason": "the model's log-probability is not a finite number"}, "failed")
    choices, unconditional = scored[: len(each.scored)], scored[len(each.scored) :]
    outputs: dict[str, object] = {
        "bytes": [s.num_bytes for s in choices],
        "truncated_tokens": max(s.truncated_tokens for s in choices),
    }
    gold = choices[each.rendered.gold]
    correct, answer = gold.is_greedy, None
    if spec.kind == "multiple_choice":
        chosen = _choices(each.rendered, choices, unconditional)
        outputs |= chosen
        correct, answer = chosen["choice_per_byte"] == each.rendered.gold, item.choices[chosen["choice_per_byte"]]
    bits = gold.nats / math.log(2) / gold.num_bytes
    return record(outputs, "graded", correct, bits, log_probs_of(s.nats for s in choices), answer)


def _gold_facts(each: _ScoredItem) -> dict[str, object]:
    """Return which continuation is right; also the choices when they are in the prompts (equal continuations)."""
    endings = each.rendered.continuations
    filled = {"choices": list(each.item.choices)} if len(endings) > len(set(endings)) else {}
    return {**filled, "gold_index": each.rendered.gold, "gold": each.item.answer}


def _choices(rendered: RenderedItem, scored: Sequence[Scored], unconditional: Sequence[Scored]) -> dict[str, Any]:
    """Return the choice that each accuracy picks; the first one of equals, as in lm-eval."""
    characters = [len(ending.removeprefix(" ")) for ending in rendered.continuations]
    chosen: dict[str, Any] = {
        "choice": int(np.argmin([s.nats for s in scored])),
        "choice_per_byte": int(np.argmin([s.nats / s.num_bytes for s in scored])),
        "choice_per_character": int(np.argmin([s.nats / n for s, n in zip(scored, characters, strict=True)])),
    }
    if unconditional:
        chosen["free_nats"] = [round(s.nats, 4) for s in unconditional]
        chosen["choice_uncond"] = int(np.argmin([s.nats - u.nats for s, u in zip(scored, unconditional, strict=True)]))
    return chosen


def _scores(task: Task, spec: TaskSpec, scored: Sequence[_ScoredItem], records: Sequence[EvalRecord], seed: int) -> list[Score]:
    graded = [(each, json.loads(r.outputs)) for each, r in zip(scored, records, strict=True) if r.verdict == "graded"]
    golds = [each.scored[each.rendered.gold] for each, _ in graded]
    bits = np.array([gold.nats for gold in golds if gold is not None]) / math.log(2)
    sizes = np.array([gold.num_bytes for gold in golds if gold is not None], dtype=np.float64)
    attempted = len(records)
    scores = [Score(spec.name, "gold_bits_per_byte", *ratio_bootstrap(bits, sizes, seed), len(graded), attempted)]
    for metric in task.metrics:
        if metric.reads == "nats" or (metric.reads == "greedy" and spec.kind == "gold_bpb"):
            values = [metric.value(each.item, each.outcome) for each, _ in graded]
            scores.append(metric_score(spec.name, metric, values, attempted, seed))
    if spec.kind != "multiple_choice":
        return scores
    for name, field in ACCURACIES.items():
        if all(field in outputs for _, outputs in graded):
            right = sum(outputs[field] == each.rendered.gold for each, outputs in graded)
            scores.append(share_score(spec.name, name, right, len(graded), attempted))
    chance = float(np.mean([1 / len(each.item.choices) for each, _ in graded]))
    scores.append(Score(spec.name, "chance", chance, chance, chance, len(graded), attempted))
    return scores
