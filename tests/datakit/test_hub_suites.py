"""Hub benchmarks become suites: all files of the split and no other, item ids equal to the pinned wheels'."""

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import COMMIT, Hub
from test_hub import hub_on_loopback

from datakit.sources.raw import RAW
from datakit.sources.source import HubFiles, Revision
from evals.items.item import Item, read_items
from evals.items.suites import SUITE, SuiteConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from recipes.sources import source_config
from recipes.sources_benchmarks import HubBenchmark, hub_benchmarks
from recipes.suites import suite_config, suite_raw_source

ARC = {
    "id": "Mercury_7", "question": "What melts?", "answerKey": "B",
    "choices": {"text": ["sand", "ice", "air"], "label": ["A", "B", "C"]},
}  # fmt: skip
ROWS = {
    "mmlu": {"question": " 1+1? ", "subject": "algebra", "choices": ["1", "2", "3", "4"], "answer": 1},
    "hellaswag": {"activity_label": "Tea", "ctx_a": "She pours.", "ctx_b": "he", "endings": ["a.", "b.", "c."], "label": "2"},
    "arc_easy": ARC,
    "arc_challenge": ARC | {"answerKey": "1", "choices": {"text": ["ice", "sand"], "label": ["1", "2"]}},
    "gsm8k": {"question": "How many?", "answer": "2 and 2 are <<2+2=4>>4.\n#### 4"},
    "openbookqa": {**ARC, "question_stem": "What melts is"},
    "csqa": ARC | {"question_concept": "melt"},
    "boolq": {"question": "does ice melt", "passage": "Ice -- Frozen water.", "answer": True},
    "winogrande": {"sentence": "Ann hired Bo as _ was ill.", "option1": "Ann", "option2": "Bo", "answer": "1"},
    "copa": {"premise": "It rained.", "choice1": "Dry.", "choice2": "Wet.", "question": "effect", "idx": 3, "label": 1},
}  # fmt: skip
FOUND = {
    "mmlu": ("algebra/0000", "1+1?", "2"),
    "hellaswag": ("00000", "Tea: She pours. He", "c."),
    "arc_easy": ("Mercury_7", "What melts?", "ice"),
    "arc_challenge": ("Mercury_7", "What melts?", "ice"),
    "gsm8k": ("0000", "How many?", "4"),
    "openbookqa": ("Mercury_7", "What melts is", "ice"),
    "csqa": ("Mercury_7", "What melts?", "ice"),
    "boolq": ("0000", "does ice melt?", "yes"),
    "winogrande": ("0000", "Ann hired Bo as _ was ill.", "Ann"),
    "copa": ("003", "It rained. What happened as a RESULT?", "Wet."),
}


def parquet(row: dict[str, object]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), sink)
    return sink.getvalue()


def items_of(root: Path, benchmark: HubBenchmark, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> list[Item]:
    """Its suite, from a hub that has these files of it; the commit is written as a person does who has looked at the page."""
    source = source_config(suite_raw_source(benchmark.name))
    assert isinstance(source.loader, HubFiles)
    pinned = replace(source, loader=replace(source.loader, revision=Revision(COMMIT)))
    config = suite_config(benchmark.name, benchmark.name)
    declared = tuple(replace(task, num_items=None) for task in config.tasks)
    with hub_on_loopback(Hub(files, repository=benchmark.repository), monkeypatch):
        raw = Node(("raw",), pinned.name, RAW, pinned)
        suite = Node(("suite",), None, SUITE, SuiteConfig(config.suite, declared), {"raw": raw})
        store = Store(str(root))
        build(store, raw)
        return read_items(build(store, suite).artifact)


@pytest.mark.parametrize("benchmark", hub_benchmarks(), ids=lambda each: each.name)
def test_a_split_of_the_hub_becomes_items(benchmark: HubBenchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = benchmark.files[0].replace("*/", "algebra/").replace("-*", "-00000-of-00001")
    beside = name.replace(benchmark.split, "train")
    row = parquet(ROWS[benchmark.task])
    (item,) = items_of(tmp_path, benchmark, {name: row, beside: row, "README.md": b"# card"}, monkeypatch)
    assert (item.item_id, item.question, item.answer) == FOUND[benchmark.task]
    assert item.passage == ("Ice -- Frozen water." if benchmark.task == "boolq" else "")


def test_mmlu_is_its_subjects_and_not_the_file_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        f"{subject}/test-00000-of-00001.parquet": parquet(ROWS["mmlu"] | {"subject": subject}) for subject in ("law", "algebra")
    }
    files["all/test-00000-of-00001.parquet"] = parquet(ROWS["mmlu"])
    mmlu = next(each for each in hub_benchmarks() if each.task == "mmlu")
    assert sorted(item.item_id for item in items_of(tmp_path, mmlu, files, monkeypatch)) == ["algebra/0000", "law/0000"]


def test_a_benchmark_whose_commit_nobody_has_seen_is_refused(tmp_path: Path) -> None:
    source = source_config("hub_mmlu")
    with pytest.raises(Exception, match="unverified"):
        build(Store(str(tmp_path)), Node(("raw",), source.name, RAW, source))


@pytest.mark.parametrize(
    ("task", "change", "error"), [("arc_easy", {"answerKey": "E"}, "answerKey is 'E'"), ("gsm8k", {"answer": "4"}, "#### ")]
)
def test_a_row_of_another_form_is_refused(
    task: str, change: dict[str, object], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = next(each for each in hub_benchmarks() if each.task == task)
    name = benchmark.files[0].replace("-*", "-00000-of-00001")
    with pytest.raises(ValueError, match=error):
        items_of(tmp_path, benchmark, {name: parquet(ROWS[task] | change)}, monkeypatch)
