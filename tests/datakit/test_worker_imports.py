"""What a worker of a stage loads before its first shard: every worker of every stage pays for it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("stage", ["normalize", "minhash", "quality", "contamination", "corpus", "token_cache"])
def test_workers_of_stages_that_only_read_tables_load_no_scipy(stage: str) -> None:
    """It took a corpus's workers two thirds of their start, for the name of a file."""
    code = f"import sys, datakit.{stage}; print([name for name in sys.modules if name.startswith('scipy')])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
