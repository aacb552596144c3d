"""Benchmark items, `item/1`: the one form that prompts are rendered from and that the contamination audit matches against.

An item has text *channels* (question, passage, choices, answer, solution, code); a task without one leaves it empty.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from lineage.artifact.store import Artifact

ITEMS_FILE = "items.parquet"
ITEM_SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("task", pa.string()),
        ("item_id", pa.string()),
        ("question", pa.string()),
        ("passage", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("solution", pa.string()),
        ("code", pa.string()),
        ("answer_index", pa.int32()),
        ("licence", pa.string()),
        ("source_digest", pa.string()),
    ]
)


@dataclass(frozen=True)
class Item:
    """One benchmark item. `item_id` is unique within its task; `answer_index` is -1 where there are no choices."""

    suite: str
    task: str
    item_id: str
    question: str
    answer: str
    licence: str
    source_digest: str
    passage: str = ""
    choices: tuple[str, ...] = ()
    solution: str = ""
    code: str = ""
    answer_index: int = -1

    def __post_init__(self) -> None:
        where = f"item {self.task}/{self.item_id}"
        if not self.question.strip():
            raise ValueError(f"{where} has an empty question; every item needs one")
        if self.choices and not 0 <= self.answer_index < len(self.choices):
            raise ValueError(
                f"{where}: answer_index is {self.answer_index}; with {len(self.choices)} choices it must be "
                f"0..{len(self.choices) - 1}"
            )
        if self.choices and self.choices[self.answer_index] != self.answer:
            raise ValueError(
                f"{where}: answer {self.answer!r} is not choice {self.answer_index} "
                f"({self.choices[self.answer_index]!r}); they must be equal"
            )
        if not self.choices and self.answer_index != -1:
            raise ValueError(f"{where}: answer_index is {self.answer_index} without choices; it must be -1")


def write_items(path: Path, items: Iterable[Item]) -> None:
    """Write `item/1`, sorted by task and item id. Raises ValueError naming an item id that occurs twice in its task."""
    ordered = sorted(items, key=lambda item: (item.task, item.item_id))
    counts = Counter((item.task, item.item_id) for item in ordered)
    task, item_id = max(counts, key=lambda key: counts[key], default=("", ""))
    if counts[task, item_id] > 1:
        raise ValueError(
            f"task {task!r} has {counts[task, item_id]} items with the id {item_id!r}; ids must be unique within a task "
            "(key on the row or doc_id where the benchmark's own ids repeat)"
        )
    rows = [asdict(item) | {"choices": list(item.choices)} for item in ordered]
    pq.write_table(pa.Table.from_pylist(rows, schema=ITEM_SCHEMA), path, compression="zstd")


def read_items(suite: Artifact, task: str | None = None) -> list[Item]:
    """Return items of a suite artifact in (task, item id) order; of one task when it is named.

    Raises: ValueError naming the tasks there are when the suite lacks the task.
    """
    rows = pq.read_table(suite.folder() / ITEMS_FILE, schema=ITEM_SCHEMA).to_pylist()
    items = [Item(**(row | {"choices": tuple(row["choices"])})) for row in rows]
    if task is None:
        return items
    chosen = [item for item in items if item.task == task]
    if not chosen:
        raise ValueError(f"{suite.name} has no task {task!r}; it has: {', '.join(sorted({i.task for i in items}))}")
    return chosen


def select_items(items: Sequence[Item], n: int | None, seed: int) -> list[Item]:
    """Return a deterministic subset: the `n` items of each task that come first in hash order, in (task, item id) order.

    The order depends on task, id and seed only, so a subset of `n` is contained in every larger one with the same seed,
    whatever else the suite holds. All items when `n` is None.
    """
    if n is not None and n <= 0:
        raise ValueError(f"n is {n}; the number of items per task must be positive, or None for all")
    by_task: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: _hash_order(item, seed)):
        by_task.setdefault(item.task, []).append(item)
    chosen = [item for group in by_task.values() for item in group[:n]]
    return sorted(chosen, key=lambda item: (item.task, item.item_id))


def _hash_order(item: Item, seed: int) -> tuple[int, str, str]:
    key = f"{seed}\x1f{item.task}\x1f{item.item_id}".encode()
    return xxhash.xxh3_64_intdigest(key), item.task, item.item_id


def items_of(items: Sequence[Item], task: str) -> list[Item]:
    """The items of a task. Raises ValueError when no suite has it, or two do (their item ids would clash in the records)."""
    chosen = [item for item in items if item.task == task]
    suites = sorted({item.suite for item in chosen})
    if not chosen:
        known = ", ".join(sorted({item.task for item in items}))
        raise ValueError(f"task {task!r} has no items in the suites; they have: {known}")
    if len(suites) > 1:
        raise ValueError(f"task {task!r} is in the suites {', '.join(suites)}; give the evaluation only one of them")
    return chosen
