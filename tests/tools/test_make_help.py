"""The Makefile: `make help` has a readable line for each target, and a target with a missing argument changes nothing."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDEST = 112


def test_make_help_has_one_narrow_line_for_each_target():
    """Every target of .PHONY is explained once, its explanation starts in one column, and no line is wider than 112."""
    text = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    *lines, _ = text.splitlines()
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert declared is not None
    assert sorted(line.split()[0] for line in lines) == sorted(declared[1].split())
    assert {line.index(line.split()[1]) for line in lines} == {19}
    assert [line for line in lines if len(line) > WIDEST] == []


def test_canary_lock_without_a_lock_file_is_refused_before_anything_is_built():
    """`make canary-lock` names LOCK and ends before it builds an environment: .venv stays as it is."""
    for arguments in ((), ("LOCK=no/such.lock",)):
        run = subprocess.run(["make", "canary-lock", *arguments], cwd=ROOT, capture_output=True, text=True)
        assert run.returncode != 0
        assert "name a lock file" in run.stderr
        assert "setup:" not in run.stderr
