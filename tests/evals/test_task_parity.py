"""Prompts, extraction, scores and records of every task are byte for byte those of before each task had a record of its
own.

`task_parity.golden.json` was written by the code of commit 2178272, from the cases of `task_cases.py`.
"""

import json
from pathlib import Path

from task_cases import Interface, digests

from evals.items.item import Item
from evals.items.prompts import render
from evals.items.rendering import gold_answer
from evals.items.tasks.registry import task_named
from evals.tasks.benchmarks import evaluate_benchmark
from evals.tasks.generation import evaluate_generation, extract_program, redefined_builtins

GOLDEN = Path(__file__).with_name("task_parity.golden.json")


def prompts(item: Item, style: str, shots: list[Item], number: int) -> list[object]:
    """MMLU's examples are taken as they are: `test_prompts.py` covers the choice by subject."""
    task = task_named(item.task)
    chosen = shots[:number] if item.task == "mmlu" else task.shots(item, shots, number)
    rendered = render(item, style, chosen)
    return [rendered.prompts, rendered.continuations, rendered.gold]


def test_every_task_is_asked_and_judged_as_before() -> None:
    current = digests(
        Interface(
            prompts=prompts,
            gold_answer=gold_answer,
            extracted=lambda task, text: task_named(task).extract(text),
            gold_form=lambda task, answer: task_named(task).normalize(answer),
            stops=lambda task: task_named(task).stops,
            program=lambda item, text: extract_program(task_named(item.task).program_start(item), text),
            own_builtins=lambda item: redefined_builtins(task_named(item.task), item),
            benchmark=evaluate_benchmark,
            generation=evaluate_generation,
        )
    )
    expected = json.loads(GOLDEN.read_text())
    assert {key for key in expected if current.get(key) != expected[key]} == set()
    assert current.keys() == expected.keys()
