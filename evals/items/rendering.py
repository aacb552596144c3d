"""Renderers that tasks share: questions with continuations, questions with lettered choices, and gold answers."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from evals.items.item import Item
from evals.items.task import RenderedItem, Renderer, Style

LETTERS = "ABCDE"
CALCULATION = re.compile(r"<<[^>]*>>")
"""A calculator tag of GSM8K."""
FINAL_ANSWER = re.compile(r"\s*#### .*$")
"""The last line of a GSM8K solution."""


def continuation(text: str) -> str:
    """Return a choice or gold answer as the text that follows a prompt: after one space."""
    return f" {text.strip()}"


def gold_answer(item: Item) -> str:
    """Return the text whose likelihood is the main score of a small model: the worked solution if there is one, else the
    answer.

    GSM8K's calculator tags and its last line `#### 18` are notation of the dataset, so they are removed, as OLMES does.
    """
    if item.solution:
        return FINAL_ANSWER.sub("", CALCULATION.sub("", item.solution))
    return item.choices[item.answer_index] if item.choices else item.answer


def after_prompt(item: Item, prompt: str) -> RenderedItem:
    """Return the same prompt before every choice, or before the gold answer of an item without choices."""
    if not item.choices:
        return RenderedItem((prompt,), (continuation(gold_answer(item)),), 0)
    endings = tuple(continuation(choice) for choice in item.choices)
    return RenderedItem((prompt,) * len(endings), endings, item.answer_index)


def plain_question(item: Item) -> RenderedItem:
    """`Question: ...\\nAnswer:`, after the passage if there is one."""
    passage = f"{item.passage}\n\n" if item.passage else ""
    return after_prompt(item, f"{passage}Question: {item.question}\nAnswer:")


def bare_text(item: Item) -> RenderedItem:
    """Return the question itself, which the choices or the answer continue."""
    return after_prompt(item, item.question)


def prompted(template: Callable[[Item], str]) -> Renderer:
    """Return a renderer that makes the prompt by a function of the item."""
    return lambda item: after_prompt(item, template(item))


def lettered(head: Callable[[Item], str], indent: str = " ") -> Renderer:
    """Return a renderer that lists the choices by letter after a head, and scores the letters.

    The renderer raises ValueError for an item without choices.
    """

    def render(item: Item) -> RenderedItem:
        if not item.choices:
            raise ValueError(f"item {item.task}/{item.item_id} has no choices, so no letters; use another style")
        listed = "".join(f"\n{indent}{letter}. {choice}" for letter, choice in zip(LETTERS, item.choices, strict=False))
        endings = tuple(f" {letter}" for letter in LETTERS[: len(item.choices)])
        return RenderedItem((f"{head(item)}{listed}\nAnswer:",) * len(endings), endings, item.answer_index)

    return render


def question_head(item: Item) -> str:
    """Return the line `Question: ...`."""
    return f"Question: {item.question}"


def styles(
    cloze: Renderer = plain_question, letters: Renderer | None = None, lm_eval: Renderer | None = None
) -> Mapping[Style, Renderer]:
    """Return the three styles of a task. By default `letters` lists the choices after the question, `lm_eval` is as
    `cloze`."""
    return MappingProxyType({"cloze": cloze, "letters": letters or lettered(question_head), "lm_eval": lm_eval or cloze})
