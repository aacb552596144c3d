"""Modules that a stage's worker imports before its first shard, a cost that every worker pays."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


STAGES = [
    "documents.normalize",
    "dedup.minhash",
    "quality.verdicts",
    "contamination.marks",
    "corpus.build",
    "tokens.cache",
]


@pytest.mark.parametrize("stage", STAGES)
def test_workers_of_stages_that_only_read_tables_load_no_scipy(stage: str) -> None:
    """It took a corpus's workers two thirds of their start, for the name of a file."""
    code = f"import sys, datakit.{stage}; print([name for name in sys.modules if name.startswith('scipy')])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
