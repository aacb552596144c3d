"""MMLU (Hendrycks et al. 2021, arXiv:2009.03300): exam questions in 57 subjects. Item ids are `<subject>/<row>`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from evals.items.files import choice_channels, table_rows
from evals.items.item import Item
from evals.items.rendering import lettered, styles
from evals.items.task import Channels, Style, Task, take_shots


def _subject(item: Item) -> str:
    return item.item_id.partition("/")[0]


def _question(item: Item) -> str:
    return item.question


def _shots_of_subject(item: Item, shots: Sequence[Item], count: int) -> list[Item]:
    """Return the first `count` examples of the item's subject. Raises: ValueError when there are fewer."""
    return take_shots(item, [shot for shot in shots if shot.task == item.task and _subject(shot) == _subject(item)], count)


def _description(item: Item, style: Style) -> str:
    """lm-eval's `description`, which is written once before all examples."""
    if style != "lm_eval":
        return ""
    return f"The following are multiple choice questions (with answers) about {_subject(item).replace('_', ' ')}.\n\n"


def read_mmlu(path: Path) -> Iterator[Channels]:
    """Yield the hub's table, one subject a file. Rows are numbered within the subject."""
    for row, record in enumerate(table_rows(path)):
        item_id = f"{record['subject']}/{row:04d}"
        yield choice_channels(item_id, record["question"].strip(), record["choices"], record["answer"])


MMLU = Task(
    "mmlu",
    styles(lm_eval=lettered(_question, indent="")),
    shots=_shots_of_subject,
    description=_description,
    formats={"mmlu_arrow": read_mmlu},
)
