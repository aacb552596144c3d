"""PIQA (Bisk et al. 2020, arXiv:1911.11641): which of two ways reaches a physical goal."""

from collections.abc import Iterator
from pathlib import Path

from evals.items.files import choice_channels, first_requests
from evals.items.item import Item
from evals.items.rendering import lettered, prompted, styles
from evals.items.task import Channels, Task


def _head(item: Item) -> str:
    return f"Goal: {item.question}"


def _prompt(item: Item) -> str:
    return f"{_head(item)}\nAnswer:"


def _lm_eval_prompt(item: Item) -> str:
    return f"Question: {item.question}\nAnswer:"


def read_piqa(path: Path) -> Iterator[Channels]:
    """OLMES requests."""
    for record in first_requests(path):
        doc = record["doc"]
        yield choice_channels(f"{record['doc_id']:04d}", doc["goal"], [doc["sol1"], doc["sol2"]], int(doc["label"]))


PIQA = Task(
    "piqa",
    styles(cloze=prompted(_prompt), letters=lettered(_head), lm_eval=prompted(_lm_eval_prompt)),
    formats={"piqa_requests": read_piqa},
)
