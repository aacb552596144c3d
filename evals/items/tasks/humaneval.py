"""HumanEval (Chen et al. 2021, arXiv:2107.03374): complete a Python function; tests judge the program."""

from collections.abc import Iterator
from pathlib import Path

from evals.items.files import json_lines
from evals.items.item import Item
from evals.items.rendering import styles
from evals.items.task import Channels, RenderedItem, Task


def _function(item: Item) -> RenderedItem:
    """Return the prompt without any change, because the completion must match its indentation."""
    return RenderedItem((item.question,), (item.solution,), 0)


def _start(item: Item) -> str:
    return item.question


def read_humaneval(path: Path) -> Iterator[Channels]:
    """OpenAI's file. `code` = the tests and the call that runs them."""
    for record in json_lines(path):
        yield {
            "item_id": record["task_id"],
            "question": record["prompt"],
            "solution": record["canonical_solution"],
            "answer": "",
            "code": f"{record['test'].strip()}\n\ncheck({record['entry_point']})\n",
        }


HUMANEVAL = Task(
    "humaneval",
    styles(cloze=_function),
    kind="gold_bpb",
    stops=("\nclass", "\ndef", "\n#", "\nif", "\nprint", "\n@"),  # Chen et al. 2021
    program_start=_start,
    formats={"humaneval_jsonl": read_humaneval},
)
