"""IFEval (Zhou et al. 2023, arXiv:2311.07911): requests with instructions that a program can verify.

A text is judged strictly as it is, and loosely: without its first line, its last line or its stars, whichever helps. Accuracies
are by prompt (all instructions of an item) and by instruction.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

from evals.items.files import json_lines
from evals.items.item import Item
from evals.items.rendering import styles
from evals.items.task import Channels, Metric, Outcome, RenderedItem, Task
from evals.items.tasks.ifeval_checks import follows


def read_ifeval(path: Path) -> Iterator[Channels]:
    """IFEval's file: `key`, `prompt`, `instruction_id_list`, `kwargs`. `code` = the instructions with their arguments, as JSON.

    Raises: ValueError for an instruction without a checker, and for arguments that it does not take.
    """
    for record in json_lines(path):
        named = zip(record["instruction_id_list"], record["kwargs"], strict=True)
        rules = [(name, {key: value for key, value in given.items() if value is not None}) for name, given in named]
        for name, given in rules:
            follows("any text", name, given)
        yield {"item_id": f"{record['key']}", "question": record["prompt"], "answer": "", "code": json.dumps(rules)}


def followed(item: Item, text: str, *, loose: bool = False) -> list[bool]:
    """Whether a text follows each instruction of an item."""
    texts = loose_texts(text) if loose else [text]
    return [any(follows(one, name, given) for one in texts) for name, given in json.loads(item.code)]


def loose_texts(text: str) -> list[str]:
    """Return the text without its first line, its last line or both, each with and without stars."""
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys([*cut, *(one.replace("*", "") for one in cut)]))


def _request(item: Item) -> RenderedItem:
    return RenderedItem((f"{item.question}\n\n",), ("",), 0)


def _prompt_level(item: Item, outcome: Outcome, *, loose: bool) -> float:
    return float(all(followed(item, outcome.text, loose=loose)))


def _instruction_level(item: Item, outcome: Outcome, *, loose: bool) -> float:
    """Return the number of instructions that are followed."""
    return float(sum(followed(item, outcome.text, loose=loose)))


def _instructions(item: Item) -> float:
    return float(len(json.loads(item.code)))


def _metrics() -> Iterator[Metric]:
    for mode, loose in (("strict", False), ("loose", True)):
        yield Metric(f"prompt_{mode}", functools.partial(_prompt_level, loose=loose), reads="text")
        by_instruction = functools.partial(_instruction_level, loose=loose)
        yield Metric(f"instruction_{mode}", by_instruction, reads="text", summary="ratio", weight=_instructions)


IFEVAL = Task(
    "ifeval",
    styles(cloze=_request),
    stops=(),
    metrics=tuple(_metrics()),
    verify=lambda item, text: all(followed(item, text)),
    formats={"ifeval_jsonl": read_ifeval},
)
