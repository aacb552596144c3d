"""Benchmarks as tables, to channels of `item/1`: Arrow streams (`datasets` on disk) and Parquet (the hub's own files).

Where a format of request files reads the same benchmark (`evals.formats`), items have the same ids and texts by either way, so
results, marks and audits of both meet. Columns of the hub's files are **from memory** of their pages: the hub is out of reach
here, and a file of another form is refused, by the column that it lacks.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

type Channels = dict[str, Any]
"""What a format gives for one item: `item_id` and the channels it has, by the names of `Item`."""
COPA_QUESTIONS = {"cause": "What was the CAUSE of this?", "effect": "What happened as a RESULT?"}
"""COPA's own wording; what it asks is part of the item, not of a template."""


def choice_channels(item_id: str, question: str, choices: Sequence[str], gold: int) -> Channels:
    if not 0 <= gold < len(choices):
        raise IndexError(f"item {item_id}: gold {gold} of {len(choices)} choices")
    return {
        "item_id": item_id,
        "question": question,
        "choices": tuple(choices),
        "answer": choices[gold],
        "answer_index": gold,
    }


def read_mmlu(path: Path) -> Iterator[Channels]:
    """One subject a file; rows are numbered within the subject."""
    for row, record in enumerate(rows(path)):
        item_id = f"{record['subject']}/{row:04d}"
        yield choice_channels(item_id, record["question"].strip(), record["choices"], record["answer"])


def read_hellaswag(path: Path) -> Iterator[Channels]:
    """Question = "<activity>: <context>", cleaned of WikiHow markers as lm-eval and OLMES do."""
    for row, record in enumerate(rows(path)):
        context = f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"
        endings = [_clean_wikihow(ending) for ending in record["endings"]]
        yield choice_channels(f"{row:05d}", _clean_wikihow(context), endings, int(record["label"]))


def _clean_wikihow(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ").strip()


def read_copa(path: Path) -> Iterator[Channels]:
    for record in rows(path):
        question = f"{record['premise'].strip()} {COPA_QUESTIONS[record['question']]}"
        choices = [record["choice1"].strip(), record["choice2"].strip()]
        yield choice_channels(f"{record['idx']:03d}", question, choices, int(record["label"]))


def read_choice_rows(path: Path) -> Iterator[Channels]:
    """ARC, OpenBookQA and CommonsenseQA: `choices` holds texts and their labels, `answerKey` one of these."""
    for record in rows(path):
        question = record["question_stem"] if "question_stem" in record else record["question"]
        choices, labels = record["choices"]["text"], list(record["choices"]["label"])
        if record["answerKey"] not in labels:
            raise IndexError(f"item {record['id']}: answerKey {record['answerKey']!r} is none of {labels}")
        yield choice_channels(record["id"], question.strip(), choices, labels.index(record["answerKey"]))


def read_boolq_rows(path: Path) -> Iterator[Channels]:
    """`question` has no question mark there; the request files give it one."""
    for row, record in enumerate(rows(path)):
        question = f"{record['question'].strip().removesuffix('?')}?"
        yield choice_channels(f"{row:04d}", question, ["yes", "no"], int(not record["answer"])) | {"passage": record["passage"]}


def read_winogrande_rows(path: Path) -> Iterator[Channels]:
    """By row, as `read_channels("winogrande_requests", ...)` numbers them; `answer` counts from 1."""
    for row, record in enumerate(rows(path)):
        yield winogrande_channels(f"{row:04d}", record)


def winogrande_channels(item_id: str, record: dict[str, Any]) -> Channels:
    """Question = the sentence with its blank `_`; choices fill it."""
    if record["sentence"].count("_") != 1:
        raise KeyError(f"item {item_id} has {record['sentence'].count('_')} blanks")
    return choice_channels(item_id, record["sentence"], [record["option1"], record["option2"]], int(record["answer"]) - 1)


def read_gsm8k_rows(path: Path) -> Iterator[Channels]:
    """`answer` is the worked solution, its last line `#### 18`."""
    for row, record in enumerate(rows(path)):
        solution, mark, answer = record["answer"].strip().rpartition("\n#### ")
        if not mark:
            raise KeyError(f"row {row}: no '#### ' before an answer in {solution[-80:]!r}")
        channels = {"question": record["question"].strip(), "solution": record["answer"].strip(), "answer": answer.strip()}
        yield {"item_id": f"{row:04d}", **channels}


def rows(path: Path) -> Iterator[dict]:
    """Rows of Parquet (the hub's own files), or of an Arrow IPC *stream* (Hugging Face `datasets` on disk)."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
        return
    with pa.memory_map(str(path)) as source:
        for batch in pa.ipc.open_stream(source):
            yield from batch.to_pylist()
