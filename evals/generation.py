"""Tasks that a model answers in its own words: an answer compared with the right one, a program run against its tests.

Three outcomes that are not mixed: right or wrong, unparsed (the text holds no answer), failed (nothing could be asked or run).
"""

import ast
import builtins
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from evals.extraction import extract_answer, extract_program, gold_form
from evals.generator import Generated, TextGenerator
from evals.items import Item
from evals.prompts import ask, choose_shots, policy_name
from evals.records import EvalRecord, Score, Verdict
from evals.sandbox import Limits, Run, run_program
from evals.stage import TaskSpec
from evals.statistics import share_score
from lineage.digests import text_digest

STOPS = {
    "gsm8k": ("Question:", "</s>", "<|im_end|>", "\n\n"),
    "math": ("Problem:", "\n\n"),
    "humaneval": ("\nclass", "\ndef", "\n#", "\nif", "\nprint", "\n@"),
    "mbpp": ("[DONE]", "\n```"),
    "lambada": ("\n",),
}
"""Where an answer of a task ends (OLMES's; HumanEval's are those of Chen et al. 2021)."""
SANDBOXES = 2
"""Programs run side by side: their wall time is a limit, so more than there are cores would fail programs that are right."""


@dataclass(frozen=True)
class Judged:
    """The verdict on one text. `correct` is None unless it was graded."""

    verdict: Verdict
    correct: bool | None
    facts: dict[str, object]
    answer: str | None = None


def evaluate_generation(
    generator: TextGenerator,
    task: TaskSpec,
    items: Sequence[Item],
    checkpoint: str,
    shots: Sequence[Item] = (),
    limits: Limits | None = None,
) -> tuple[list[Score], list[EvalRecord]]:
    """Generate greedily and judge: scores `exact_match` or `pass_at_1`, the share of unparsed texts and of texts cut off.

    Where nothing could be graded there is no score of success, only the shares of unparsed texts and of texts cut off. A text
    is kept whole: `max_new_tokens` bounds it. Raises: NoSandboxError where programs cannot be held.
    """
    asked = [ask(item, task.style, choose_shots(item, shots, task.num_shots)) for item in items]
    prompts = [each.prompts[0] for each in asked]
    made = generator.generate(prompts, STOPS.get(task.item_task, ("\n\n",)), task.max_new_tokens)
    if task.kind == "program":
        judged = _judge_programs(items, made, limits or Limits())
    else:
        judged = [_judge_answer(task, item, each) for item, each in zip(items, made, strict=True)]
    policy = policy_name(task.style, task.num_shots)
    records = [
        EvalRecord(
            task.name,
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
        for item, prompt, each, verdict in zip(items, prompts, made, judged, strict=True)
    ]
    return _scores(task, records, made), records


def _outputs(made: Generated) -> dict[str, object]:
    return {
        "finish": made.finish,
        "num_tokens": made.num_tokens,
        "truncated_tokens": made.truncated_tokens,
    }


def _judge_answer(task: TaskSpec, item: Item, made: Generated) -> Judged:
    found, gold = extract_answer(task.item_task, made.text), gold_form(task.item_task, item.answer)
    if found is None:
        return Judged("unparsed", None, {"gold": gold})
    return Judged("graded", found == gold, {"gold": gold}, found)


def _judge_programs(items: Sequence[Item], made: Sequence[Generated], limits: Limits) -> list[Judged]:
    """Run every completion with the tests of its item; HumanEval's completion goes on from its prompt, MBPP's stands alone."""

    def judge(pair: tuple[Item, Generated]) -> Judged:
        item, text = pair
        program = extract_program(item.question if item.task == "humaneval" else "", text.text)
        if program is None:
            return Judged("unparsed", None, {"outcome": "no program"})
        run: Run = run_program(program, item.code, limits, own_builtins(item))
        return Judged("graded", run.passed, {"outcome": run.outcome, "detail": run.detail[-400:]})

    with ThreadPoolExecutor(SANDBOXES) as pool:
        return list(pool.map(judge, zip(items, made, strict=True)))


def own_builtins(item: Item) -> frozenset[str]:
    """Names of Python's own that the gold solution defines anew: the tests mean the program's (MBPP's 126 asks for a `sum`)."""
    if not item.solution:
        return frozenset()
    gold = item.question + item.solution if item.task == "humaneval" else item.solution
    defined = {each.name for each in ast.parse(gold).body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return frozenset(defined & set(dir(builtins)))


def _scores(task: TaskSpec, records: Sequence[EvalRecord], made: Sequence[Generated]) -> list[Score]:
    attempted, graded = len(records), sum(record.verdict == "graded" for record in records)
    unparsed = sum(record.verdict == "unparsed" for record in records)
    cut = sum(each.finish == "length" for each in made)
    right = sum(bool(record.correct) for record in records)
    metric = "pass_at_1" if task.kind == "program" else "exact_match"
    shares = [
        share_score(task.name, "unparsed", unparsed, attempted, attempted),
        share_score(task.name, "cut_off", cut, attempted, attempted),
    ]
    return [share_score(task.name, metric, right, graded, attempted), *shares] if graded else shares
