"""Every benchmark task on real items: what it asks, extracts and records, as digests that a committed table holds.

The items are those of `data/eval_items/`, given to every task of their form under its name; tasks of another form (a
blank, a premise, a program) have items made from them.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from unigram import START, UnigramScorer, byte_tokenizer

from evals.items.item import Item
from evals.items.stage import TaskKind, TaskSpec
from evals.tasks.generator import Generated
from lineage.storage.digests import text_digest

DATA = Path(__file__).parents[2] / "data/eval_items"
CHOICE_TASKS = ("mmlu", "arc_easy", "arc_challenge", "openbookqa", "csqa", "piqa", "boolq", "hellaswag", "quiz")
ANSWER_TASKS = ("gsm8k", "math", "lambada", "sums")
STYLES = ("cloze", "letters", "lm_eval")
TEXTS = (
    "",
    "  \n ",
    "So the answer is: 1,234.50 dollars.\n\nQuestion: next",
    "#### -$3,000",
    "The final answer is 7. I hope it is correct.",
    "Final Answer: The final answer is $\\frac{1}{2}$. I hope it is correct.",
    "thus \\boxed{x = \\dfrac12} and \\boxed{5\\text{ cm}^2}",
    "no number here",
    "word, and more",
    "```python\ndef f():\n    return 1\n```\nDone",
    "    return sum(x for x in range(10))\n",
)
"""Texts that a model may write, beside the right answers."""


@dataclass(frozen=True)
class Interface:
    """What the tasks are asked through: the functions under test."""

    prompts: Callable[[Item, str, Sequence[Item], int], object]
    """(item, style, examples, how many of them) -> prompts, continuations and the index of the right one."""
    gold_answer: Callable[[Item], str]
    extracted: Callable[[str, str], str | None]
    gold_form: Callable[[str, str], str]
    stops: Callable[[str], Sequence[str]]
    program: Callable[[Item, str], str | None]
    own_builtins: Callable[[Item], frozenset[str]]
    benchmark: Callable[..., tuple[list, list]]
    generation: Callable[..., tuple[list, list]]


def vendored(name: str, task: str) -> list[Item]:
    rows = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
    return [Item(suite="vendored", task=task, licence="MIT", source_digest="d", **_channels(row)) for row in rows]


def _channels(row: dict) -> dict:
    return row | {"choices": tuple(row.get("choices", ()))}


def items_by_task() -> dict[str, list[Item]]:
    """Items of every task that the lab knows, and of two that it does not."""
    choices, stories, sums = (
        vendored("mmlu", "mmlu")[:40],
        vendored("hellaswag", "hellaswag")[:40],
        vendored("gsm8k", "gsm8k")[:40],
    )
    by_task = {task: [replace(item, task=task) for item in choices] for task in CHOICE_TASKS}
    by_task["hellaswag"] = stories
    by_task["boolq"] = [replace(item, passage=story.question) for item, story in zip(by_task["boolq"], stories, strict=True)]
    by_task |= {task: [replace(item, task=task) for item in sums] for task in ANSWER_TASKS}
    by_task["reading"] = [replace(item, task="reading", passage="A passage.") for item in choices]
    by_task["winogrande"] = [
        replace(i, task="winogrande", question=f"Because {i.question[:30]} _ was so, it ended.") for i in choices
    ]
    kinds = ("What was the CAUSE of this?", "What happened as a RESULT?")
    by_task["copa"] = [replace(i, task="copa", question=f"The man sat down. {kinds[n % 2]}") for n, i in enumerate(choices)]
    by_task["humaneval"] = [
        _program(item, "humaneval", f'def f{n}(x):\n    """{item.question}"""\n') for n, item in enumerate(sums)
    ]
    by_task["mbpp"] = [_program(item, "mbpp", item.question) for item in sums]
    return by_task


def _program(item: Item, task: str, question: str) -> Item:
    solution = "    return 1\n" if task == "humaneval" else "def sum(x):\n    return 1\n"
    return Item("vendored", task, item.item_id, question, "", "MIT", "d", solution=solution, code="assert True\n")


def digests(tasks: Interface) -> dict[str, str]:
    """A digest of everything that a task says and finds, by task and what of it."""
    digest_of: dict[str, str] = {}
    for task, items in items_by_task().items():
        for style in STYLES:
            if style == "letters" and not items[0].choices:
                continue
            for number in (0, 2):
                rendered = [tasks.prompts(item, style, items[:3], number) for item in items]
                digest_of[f"{task} {style} {number} prompts"] = _digest(rendered)
        digest_of[f"{task} gold"] = _digest([(tasks.gold_answer(item), tasks.gold_form(task, item.answer)) for item in items])
        texts = [*TEXTS, *(item.solution or item.answer for item in items)]
        digest_of[f"{task} extracted"] = _digest([tasks.extracted(task, text) for text in texts])
        digest_of[f"{task} stops"] = _digest(list(tasks.stops(task)))
        if items[0].code:
            programs = [(tasks.program(item, text), sorted(tasks.own_builtins(item))) for item in items[:5] for text in texts]
            digest_of[f"{task} programs"] = _digest(programs)
        for name, (scores, records) in _evaluated(tasks, task, items[:12]):
            digest_of[f"{task} {name} scores"] = _digest([score.rounded() for score in scores])
            digest_of[f"{task} {name} records"] = _digest([asdict(record) for record in records])
    return digest_of


def _evaluated(tasks: Interface, task: str, items: list[Item]) -> Iterator[tuple[str, tuple[list, list]]]:
    kinds: list[TaskKind] = ["multiple_choice"] if items[0].choices else ["gold_bpb"]
    scorer, tokenizer = UnigramScorer(np.linspace(0.5, 3.0, 257), 700), byte_tokenizer()
    for kind in kinds:
        for style in ("cloze", "letters", "lm_eval") if items[0].choices else ("cloze",):
            spec = TaskSpec(f"{task}_asked", kind, items=task, style=style)
            yield f"{kind} {style}", tasks.benchmark(scorer, tokenizer, START, spec, items, "version", 0)
    if not items[0].choices and not items[0].code:
        spec = TaskSpec(f"{task}_said", "generation", items=task, num_shots=2)
        yield "generation", tasks.generation(Remembered(), spec, items, "version", items[:3])
    if items[0].code:
        spec = TaskSpec(f"{task}_run", "program", items=task)
        yield "program", tasks.generation(Remembered(), spec, items[:1], "version")


@dataclass(frozen=True)
class Remembered:
    """Writes the texts above, one after the other, each with its stop strings."""

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        limits = f"{sorted(stops)} {max_tokens}"
        texts = [f"{TEXTS[-1 - n % len(TEXTS)]}" for n in range(len(prompts))]
        return [Generated(text + ("" if "return" in text else f"\n{limits}"), "stop", 3, 0) for text in texts]


def _digest(value: object) -> str:
    return text_digest(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))
