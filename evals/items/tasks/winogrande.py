"""WinoGrande (Sakaguchi et al. 2019, arXiv:1907.10641): which of two words fills a blank."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evals.items.files import choice_channels, first_requests, table_rows
from evals.items.item import Item
from evals.items.rendering import continuation, lettered, styles
from evals.items.task import Channels, RenderedItem, Task

BLANK = "___"
"""The blank in a prompt with letters; in an item it is `_`."""


def _filled_blank(item: Item) -> RenderedItem:
    """Partial scoring: the choice is in the prompt, and what follows the blank is scored (Trinh and Le 2018)."""
    before, _, after = item.question.partition("_")
    ending = continuation(after)
    return RenderedItem(tuple(before + choice for choice in item.choices), (ending,) * len(item.choices), item.answer_index)


def _head(item: Item) -> str:
    return f"Fill in the blank: {item.question.replace('_', BLANK)}"


def read_winogrande_requests(path: Path) -> Iterator[Channels]:
    """OLMES requests. `native_id` is null in all of them, so ids are row numbers."""
    for record in first_requests(path):
        yield _channels(f"{record['doc_id']:04d}", record["doc"])


def read_winogrande_rows(path: Path) -> Iterator[Channels]:
    """Yield the hub's table, with the same ids as the request files."""
    for row, record in enumerate(table_rows(path)):
        yield _channels(f"{row:04d}", record)


def _channels(item_id: str, record: dict[str, Any]) -> Channels:
    """Question = the sentence with its blank `_`. `answer` counts from 1."""
    if record["sentence"].count("_") != 1:
        raise KeyError(f"item {item_id} has {record['sentence'].count('_')} blanks; it must have one")
    return choice_channels(item_id, record["sentence"], [record["option1"], record["option2"]], int(record["answer"]) - 1)


WINOGRANDE = Task(
    "winogrande",
    styles(cloze=_filled_blank, letters=lettered(_head)),
    formats={"winogrande_requests": read_winogrande_requests, "winogrande_rows": read_winogrande_rows},
)
