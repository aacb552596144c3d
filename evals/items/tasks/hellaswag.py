"""HellaSwag (Zellers et al. 2019, arXiv:1905.07830): which of four sentences continues a description."""

import re
from collections.abc import Iterator
from pathlib import Path

from evals.items.files import choice_channels, table_rows
from evals.items.item import Item
from evals.items.rendering import bare_text, lettered, styles
from evals.items.task import Channels, Task

CONTINUE = "\nChoose the best continuation:"


def _head(item: Item) -> str:
    return f"{item.question}{CONTINUE}"


def read_hellaswag(path: Path) -> Iterator[Channels]:
    """Yield the hub's table. Question = "<activity>: <context>", without WikiHow markers, as lm-eval and OLMES clean it."""
    for row, record in enumerate(table_rows(path)):
        context = f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"
        endings = [clean_wikihow(ending) for ending in record["endings"]]
        yield choice_channels(f"{row:05d}", clean_wikihow(context), endings, int(record["label"]))


def clean_wikihow(text: str) -> str:
    """Remove the marks of WikiHow, as lm-eval does."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ").strip()


HELLASWAG = Task("hellaswag", styles(cloze=bare_text, letters=lettered(_head)), formats={"hellaswag_arrow": read_hellaswag})
