"""COPA (Roemmele et al. 2011; in SuperGLUE, arXiv:1905.00537): which of two sentences is the cause or result of
another."""

from collections.abc import Iterator
from pathlib import Path

from evals.items.files import choice_channels, table_rows
from evals.items.item import Item
from evals.items.rendering import continuation, styles
from evals.items.task import Channels, RenderedItem, Task

QUESTIONS = {"cause": "What was the CAUSE of this?", "effect": "What happened as a RESULT?"}
"""The questions in COPA's own words. They are part of the item, not of the prompt template."""
_LINKS = {"cause": "because", "effect": "therefore"}


def _linked(item: Item) -> RenderedItem:
    """Return the premise and a conjunction, continued by each choice with a small first letter (as in lm-eval)."""
    kind = next(kind for kind, question in QUESTIONS.items() if item.question.endswith(question))
    premise = item.question.removesuffix(QUESTIONS[kind]).strip()
    endings = tuple(continuation(choice[0].lower() + choice[1:]) for choice in item.choices)
    return RenderedItem((f"{premise[:-1]} {_LINKS[kind]}",) * len(endings), endings, item.answer_index)


def read_copa(path: Path) -> Iterator[Channels]:
    """Yield items from SuperGLUE's table with the columns `premise, choice1, choice2, question, label, idx`."""
    for record in table_rows(path):
        question = f"{record['premise'].strip()} {QUESTIONS[record['question']]}"
        choices = [record["choice1"].strip(), record["choice2"].strip()]
        yield choice_channels(f"{record['idx']:03d}", question, choices, int(record["label"]))


COPA = Task("copa", styles(cloze=_linked), formats={"copa_arrow": read_copa})
