"""The command that checks and times a GPU, from end to end with tiny shapes: it must not fail there on a mistake of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import ROOT

pytestmark = pytest.mark.slow


def test_every_part_of_the_gpu_benchmark_ends(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(ROOT / "benchmarks/gpu.py"), "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    results = json.loads((tmp_path / "gpu.json").read_text())
    parts = ["numbers", "resume", "attention", "machine", "llama_50m", "dense_1b", "float8", "moe_256m", "experts", "serving"]
    assert list(results) == parts and results["resume"]["same_bytes"]
    assert results["numbers"]["moe"]["apart"] < 1e-3 and results["experts"]["tiled"]["apart"] < 1e-4
    assert results["serving"]["decode_tokens_per_second"] > 0
