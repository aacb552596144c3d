"""Read rows of benchmark files: JSON lines, Arrow streams and Parquet. Task formats are built on these functions."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evals.items.task import Channels

UNCONDITIONAL_DOC_ID = 1_000_000
"""OLMES request rows with at least this `doc_id` score a choice after a bare "Answer:"; they repeat items."""


def json_lines(path: Path) -> Iterator[dict]:
    """Records of a JSON lines file, gzipped or not."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def first_requests(path: Path) -> Iterator[dict]:
    """Yield the first row of every item of an OLMES request file, which has one row per choice."""
    seen: set[int] = set()
    for record in json_lines(path):
        if record["doc_id"] < UNCONDITIONAL_DOC_ID and record["doc_id"] not in seen:
            seen.add(record["doc_id"])
            yield record


def table_rows(path: Path) -> Iterator[dict]:
    """Yield the rows of a Parquet file, or of an Arrow IPC *stream* (Hugging Face `datasets` on disk)."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from batch.to_pylist()
        return
    with pa.memory_map(str(path)) as source:
        for batch in pa.ipc.open_stream(source):
            yield from batch.to_pylist()


def choice_channels(item_id: str, question: str, choices: Sequence[str], gold: int) -> Channels:
    """Return the channels of a multiple-choice item. Raises: IndexError when `gold` is not the index of a choice."""
    if not 0 <= gold < len(choices):
        raise IndexError(f"item {item_id}: gold is {gold}, but there are {len(choices)} choices")
    return {
        "item_id": item_id,
        "question": question,
        "choices": tuple(choices),
        "answer": choices[gold],
        "answer_index": gold,
    }
