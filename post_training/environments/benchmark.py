"""Prompts from benchmark items. The project's maths grader judges answers, and tests in the sandbox judge programs.

Give suites of training splits. Items of a test split would train on what evaluations score.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from evals.items.item import Item, read_items
from evals.items.prompts import render
from evals.items.tasks.registry import task_named
from evals.sandbox.run import Limits
from evals.tasks.generation import Judged, judge_answers, judge_programs
from evals.tasks.generator import Generated
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.environments.prompt import Prompt, Verdict, check_share, graded, split_of
from post_training.environments.table import write_prompts


@dataclass(frozen=True)
class Benchmark:
    """The items of one task of a suite."""

    task: str
    """A task of `evals/items/tasks/registry.py`, such as gsm8k or mbpp."""
    judged_by: Literal["answer", "tests"] = "answer"
    held_out_share: float = 0.1
    limits: Limits = field(default_factory=Limits)
    """What a program may use, if `judged_by` is `tests`."""

    def __post_init__(self) -> None:
        if self.judged_by not in ("answer", "tests"):
            raise ValueError(f"benchmark.judged_by is {self.judged_by!r}; answer and tests are allowed")
        check_share("benchmark", self.held_out_share)


def build(out: Writer, config: Benchmark, suite: Artifact) -> None:
    """Write a prompt for every item of the task. Raises: ValueError if the suite has none."""
    items = [item for item in read_items(suite) if item.task == config.task]
    if not items:
        raise ValueError(f"{out.spec.name}: {suite.name} has no item of task {config.task!r}")
    write_prompts(out, prompts(config, items))


def prompts(config: Benchmark, items: Sequence[Item]) -> Iterator[Prompt]:
    """Yield for every item the prompt that evaluations of the task use, without examples."""
    for item in items:
        name = f"{item.task}/{item.item_id}"
        rendered = render(item)
        task = json.dumps({"item": asdict(item), "judged_by": config.judged_by, "limits": asdict(config.limits)})
        answer = rendered.continuations[rendered.gold]
        yield Prompt(name, split_of(name, config.held_out_share), rendered.prompts[0], answer, task)


def judge(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
    """Judge as evaluations do. An answer that cannot be read from the text is wrong.

    Raises: NoSandboxError if the machine cannot confine programs.
    """
    if not prompts:
        return []
    records = [json.loads(prompt.task) for prompt in prompts]
    items = [from_jsonable(Item, record["item"]) for record in records]
    generated = [Generated(text, "stop", 0, 0) for text in texts]
    first = records[0]
    task = task_named(items[0].task)
    if first["judged_by"] == "tests":
        judged = judge_programs(task, items, generated, Limits(**first["limits"]))
    else:
        judged = judge_answers(task, items, generated)
    return [graded(each.correct is True, _detail(each)) for each in judged]


def _detail(judged: Judged) -> str:
    return judged.verdict if judged.answer is None else f"{judged.verdict}: {judged.answer}"


BENCHMARK = Stage(
    "environments.benchmark",
    "1",
    build,
    description="Benchmark items with the verifier of their task: the maths grader, or tests in the sandbox.",
    checks=("file_set",),
)
