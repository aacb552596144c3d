"""LAMBADA (Paperno et al. 2016, arXiv:1606.06031): the last word of a passage."""

from collections.abc import Iterator
from pathlib import Path

from evals.items.files import first_requests
from evals.items.item import Item
from evals.items.rendering import bare_text, styles
from evals.items.task import Channels, Metric, Outcome, Task


def first_word(text: str) -> str | None:
    """Return the first word of a text without punctuation around it; None when there is none."""
    words = text.split()
    return words[0].strip(".,!?;:'\"“”’") or None if words else None


def _is_greedy(item: Item, outcome: Outcome) -> float:
    del item
    return float(bool(outcome.is_greedy))


ACCURACY_GREEDY = Metric("accuracy_greedy", _is_greedy, reads="greedy")
"""The share of items whose gold answer the model would generate word for word (lm-eval's `acc` of LAMBADA)."""


def read_lambada(path: Path) -> Iterator[Channels]:
    """OLMES requests. Question = the passage without its last word, which is the answer."""
    for record in first_requests(path):
        doc = record["doc"]
        yield {"item_id": f"{record['doc_id']:04d}", "question": doc["query"], "answer": doc["answers_text"][0]}


LAMBADA = Task(
    "lambada",
    styles(cloze=bare_text),
    kind="gold_bpb",
    stops=("\n",),
    extract=first_word,
    metrics=(ACCURACY_GREEDY,),
    formats={"lambada_requests": read_lambada},
)
