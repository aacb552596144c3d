"""The test suite itself: a dead worker or a hanging test ends the run, which names the test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import os, signal, time
import pytest

@pytest.mark.parametrize("number", range(8))
def test_passes(number): pass

def test_dies(): os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize("number", range(600))
def test_takes_long_with_the_others(number): time.sleep(1)
"""
HANGS = "import time\n\ndef test_hangs(): time.sleep(600)\n"


@pytest.mark.slow
@pytest.mark.parametrize(("text", "name"), [(TESTS, "test_dies"), (HANGS, "test_hangs")], ids=["a killed worker", "a hang"])
def test_the_run_fails_within_minutes_and_names_the_test(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_small.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    folders = [ROOT, ROOT / "tests", ROOT / "tests" / "lab"]
    # At its end pytest deletes temporary folders of older runs. Those of this suite held 774,000 files (over 300 s in CI).
    places = {"PYTHONPATH": ":".join(map(str, folders)), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-o", "faulthandler_timeout=5", "-W", "ignore", "test_small.py"],
        cwd=tmp_path,
        env=os.environ | places,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode != 0
    assert f"crashed while running 'test_small.py::{name}'" in ended.stdout, ended.stdout + ended.stderr
