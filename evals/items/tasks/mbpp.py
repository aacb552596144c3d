"""MBPP (Austin et al. 2021, arXiv:2108.07732): short Python programs, judged by asserts."""

from collections.abc import Iterator
from pathlib import Path

from evals.items.files import json_lines
from evals.items.item import Item
from evals.items.rendering import styles
from evals.items.task import Channels, RenderedItem, Task


def _fenced(item: Item) -> RenderedItem:
    return RenderedItem((f"{item.question}\n```python\n",), (f"{item.solution}\n```",), 0)


def _lm_eval(item: Item) -> RenderedItem:
    head = "You are an expert Python programmer, and here is your task:"
    prompt = f"{head} {item.question} Your code should pass these tests:\n\n{item.code.strip()}\n[BEGIN]\n"
    return RenderedItem((prompt,), (f"{item.solution}\n[DONE]",), 0)


def read_mbpp(path: Path) -> Iterator[Channels]:
    """OLMES requests. `code` = the program that judges a solution: the set-up and the asserts."""
    for record in json_lines(path):
        doc = record["doc"]
        tests = [doc["test_setup_code"], *doc["test_list"]]
        yield {
            "item_id": f"{doc['task_id']:04d}",
            "question": doc["text"].strip(),
            "solution": _unix(doc["code"]),
            "answer": "",
            "code": _unix("\n".join(line for line in tests if line)) + "\n",
        }


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


MBPP = Task(
    "mbpp",
    styles(cloze=_fenced, lm_eval=_lm_eval),
    kind="gold_bpb",
    stops=("[DONE]", "\n```"),
    formats={"mbpp_requests": read_mbpp},
)
