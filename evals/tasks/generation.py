"""Tasks with generated answers: compare the answer with the gold answer, or run the program against its
tests.

There are three outcomes, counted apart: graded (right or wrong), unparsed (the text holds no answer), failed (the item
could not be asked or run).
"""

import ast
import builtins
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from evals.items.item import Item
from evals.items.prompts import policy_name, render
from evals.items.stage import TaskSpec
from evals.items.task import Outcome, Task
from evals.items.tasks.registry import task_named
from evals.sandbox.run import Limits, Run, run_program
from evals.scoring.records import EvalRecord, Score, Verdict
from evals.scoring.statistics import metric_score, share_score
from evals.tasks.generator import Generated, TextGenerator
from evals.tasks.math_equal import equal_pairs
from lineage.storage.digests import text_digest

_CODE_BLOCK = re.compile(r"```(?:python)?\n(.*?)(?:```|\Z)", re.DOTALL)
SANDBOXES = 2
"""Programs that run side by side. Their wall time is limited, so more programs than cores would fail right programs."""


@dataclass(frozen=True)
class Judged:
    """The verdict on one text. `correct` is None unless the verdict is `graded`."""

    verdict: Verdict
    correct: bool | None
    facts: dict[str, object]
    answer: str | None = None


def evaluate_generation(
    generator: TextGenerator,
    spec: TaskSpec,
    items: Sequence[Item],
    checkpoint: str,
    shots: Sequence[Item] = (),
    limits: Limits | None = None,
    task: Task | None = None,
) -> tuple[list[Score], list[EvalRecord]]:
    """Generate greedily and judge: `exact_match` (`pass_at_1` of programs and verified texts), the shares of unparsed and of
    cut-off texts, the task's metrics.

    When nothing could be graded there is no success score, only the shares of unparsed and of cut-off texts. Records
    keep the whole text, which `max_new_tokens` bounds. `task`: by default the registered one of `spec.item_task`.

    Raises: NoSandboxError when this machine cannot confine programs.
    """
    task = task or task_named(spec.item_task)
    prompts = [render(item, spec.style, task.shots(item, shots, spec.num_shots), task).prompts[0] for item in items]
    generated = generator.generate(prompts, task.stops, spec.max_new_tokens)
    judged = judge(task, spec, items, generated, limits)
    policy = policy_name(spec.style, spec.num_shots)
    records = [
        EvalRecord(
            spec.name,
            item.item_id,
            policy,
            checkpoint,
            text_digest(prompt),
            json.dumps(_outputs(each) | verdict.facts, ensure_ascii=False),
            verdict.verdict,
            verdict.correct,
            None,
            item.suite,
            item.source_digest,
            continuations=(each.text,),
            answer=verdict.answer,
        )
        for item, prompt, each, verdict in zip(items, prompts, generated, judged, strict=True)
    ]
    metric = "pass_at_1" if spec.kind == "program" or task.verify is not None else "exact_match"
    return [*_scores(spec, metric, records, generated), *_task_scores(task, spec, items, generated)], records


def judge(
    task: Task, spec: TaskSpec, items: Sequence[Item], generated: Sequence[Generated], limits: Limits | None
) -> list[Judged]:
    """Judge one text for each item; the verdict on an item and a text is made once. Raises: NoSandboxError."""
    unique = {(item.item_id, each.text): (item, each) for item, each in zip(items, generated, strict=True)}
    unique_items, texts = [item for item, _ in unique.values()], [each for _, each in unique.values()]
    if spec.kind == "program":
        verdicts = judge_programs(task, unique_items, texts, limits or Limits())
    else:
        verdicts = judge_answers(task, unique_items, texts)
    by_key = dict(zip(unique, verdicts, strict=True))
    return [by_key[item.item_id, each.text] for item, each in zip(items, generated, strict=True)]


def extract_program(start: str, text: str) -> str | None:
    """Return the program in a completion: its fenced block alone, else `start` and the completion; None for an empty
    completion."""
    if not text.strip():
        return None
    fenced = _CODE_BLOCK.search(text)
    return fenced[1] if fenced else start + text


def redefined_builtins(task: Task, item: Item) -> frozenset[str]:
    """Return the names of Python's builtins that the gold solution defines itself; the tests mean those (MBPP 126 defines
    `sum`)."""
    if not item.solution:
        return frozenset()
    gold = ast.parse(task.program_start(item) + item.solution)
    defined = {each.name for each in gold.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return frozenset(defined & set(dir(builtins)))


def _outputs(generated: Generated) -> dict[str, object]:
    return {
        "finish": generated.finish,
        "num_tokens": generated.num_tokens,
        "truncated_tokens": generated.truncated_tokens,
    }


def judge_answers(task: Task, items: Sequence[Item], generated: Sequence[Generated]) -> list[Judged]:
    """Compare the answer in every text with the gold one, or verify the text."""
    if task.verify is not None:
        return [Judged("graded", task.verify(item, each.text), {}) for item, each in zip(items, generated, strict=True)]
    answers = [task.extract(each.text) for each in generated]
    golds = [task.normalize(item.answer) for item in items]
    pairs = [("" if answer is None else answer, gold) for answer, gold in zip(answers, golds, strict=True)]
    equal = equal_pairs(pairs) if task.equality == "math" else [answer == gold for answer, gold in pairs]
    return [
        Judged("unparsed", None, {"gold": gold}) if answer is None else Judged("graded", right, {"gold": gold}, answer)
        for answer, gold, right in zip(answers, golds, equal, strict=True)
    ]


def judge_programs(task: Task, items: Sequence[Item], generated: Sequence[Generated], limits: Limits) -> list[Judged]:
    """Run every completion, after the task's `program_start`, with the tests of its item."""

    def judge(pair: tuple[Item, Generated]) -> Judged:
        item, each = pair
        program = extract_program(task.program_start(item), each.text)
        if program is None:
            return Judged("unparsed", None, {"outcome": "no program"})
        run: Run = run_program(program, item.code, limits, redefined_builtins(task, item))
        return Judged("graded", run.passed, {"outcome": run.outcome, "detail": run.detail[-400:]})

    with ThreadPoolExecutor(SANDBOXES) as pool:
        return list(pool.map(judge, zip(items, generated, strict=True)))


def _scores(spec: TaskSpec, metric: str, records: Sequence[EvalRecord], generated: Sequence[Generated]) -> list[Score]:
    attempted, graded = len(records), sum(record.verdict == "graded" for record in records)
    unparsed = sum(record.verdict == "unparsed" for record in records)
    cut_off = sum(each.finish == "length" for each in generated)
    right = sum(bool(record.correct) for record in records)
    shares = [
        share_score(spec.name, "unparsed", unparsed, attempted, attempted),
        share_score(spec.name, "cut_off", cut_off, attempted, attempted),
    ]
    return [share_score(spec.name, metric, right, graded, attempted), *shares] if graded else shares


def _task_scores(task: Task, spec: TaskSpec, items: Sequence[Item], generated: Sequence[Generated]) -> list[Score]:
    """Return the task's own metrics of texts, over all items."""
    scores = []
    for metric in (metric for metric in task.metrics if metric.reads == "text"):
        values = [metric.value(item, Outcome(text=each.text)) for item, each in zip(items, generated, strict=True)]
        weights = [metric.weight(item) for item in items]
        scores.append(metric_score(spec.name, metric, values, len(items), seed=0, weights=weights))
    return scores
