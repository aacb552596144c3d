"""Memory of the longest lines: above the limit they are drops, below it normalization holds a few copies."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datakit.readers.lines import MAX_RECORD_BYTES

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
LINE_BYTES = 100_000_000
STEPS = ("parse", "merge", "copy")
"""In order: each reads what the one before it wrote; `copy` is what a corpus does."""

STEP = """
import json, re, sys
from datakit.corpus.parts import Slice, write_split_part
from datakit.documents.normalize import *
folder, name = Path(sys.argv[2]), sys.argv[3]
(folder / "out").mkdir(exist_ok=True)
if sys.argv[1] == "parse":
    config = NormalizeConfig("s", Records("jsonl"), "prose")
    made = parse_shard(folder / "out", 0, [(name, folder / name, None)], config, CUT)
elif sys.argv[1] == "copy":
    part = folder / "out/documents/part.parquet"
    made = write_split_part(folder / "out", "train/part.parquet", (Slice(part, None, 0, int(sys.argv[4])),)) | {"drops": {}}
else:
    runs = sorted((folder / "out" / RUNS).glob("*.arrow"))
    made = merge_part(folder / "out", "part.parquet", runs, IdRange(), CUT, long_texts=True)
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(json.dumps({"peak": int(peak[1]) << 10, "drops": made["drops"]}))
"""


def ran(step: str, folder: Path, name: str, rows: int = 1) -> dict:
    """Run one step in a process of its own. `rows`: documents that a corpus copies."""
    command = [sys.executable, "-c", STEP, step, str(folder), name, str(rows)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def least(tmp_path: Path) -> dict[str, int]:
    """Peak memory of the steps with a short line."""
    folder = tmp_path / "least"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "a few words"}\n')
    return {step: ran(step, folder, "a.jsonl")["peak"] for step in STEPS}


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 2_000])
def test_a_line_of_100_mb_takes_less_than_four_times_its_size_to_parse_to_write_and_to_copy(
    tmp_path: Path, least: dict[str, int], others: int
) -> None:
    text = " ".join(f"word{i}" for i in range(100_000))
    texts = [f"{i} {text[i * 7 : i * 7 + 3_000]}" for i in range(others)]
    texts.insert(others // 2, (text * (LINE_BYTES // len(text) + 1))[:LINE_BYTES])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    times = {step: (ran(step, tmp_path, "a.jsonl", len(texts))["peak"] - least[step]) / LINE_BYTES for step in STEPS}
    assert max(times.values()) < 4, times


@pytest.mark.slow
def test_a_line_of_600_mb_in_600_kb_of_gzip_is_a_drop_that_is_never_held(tmp_path: Path, least: dict[str, int]) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wb", compresslevel=6) as stream:
        stream.write(b'{"text": "')
        for _ in range(600):
            stream.write(b"a" * MIB)
        stream.write(b'"}\n{"text": "a few words"}\n')
    assert (tmp_path / "a.jsonl.gz").stat().st_size < MIB
    made = ran("parse", tmp_path, "a.jsonl.gz")
    assert made["drops"] == {"record_too_large": 1}
    assert made["peak"] - least["parse"] < 2 * MAX_RECORD_BYTES
