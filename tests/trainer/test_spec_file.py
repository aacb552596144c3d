"""`python -m trainer spec.json`: the job a launcher would write, on a terminal; errors name field and value."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_run import ROOT, SHORT, job_of

from lineage.config import to_jsonable
from lineage.jobs.job import job_folder
from trainer.spec_file import open_job


def spec_of(root: Path, **changes: object) -> Path:
    record = {"root": str(root), "mixture": "mixture", "run": to_jsonable(SHORT)} | changes
    path = root / "spec.json"
    path.write_text(json.dumps(record))
    return path


@pytest.mark.slow
def test_on_a_terminal_it_trains_with_a_bar_and_draws_its_loss(tmp_path: Path) -> None:
    """A real terminal, in a process of its own; the identity is that of the job that a launcher writes for the same run."""
    launched = job_of(tmp_path, SHORT)
    path = spec_of(tmp_path)
    job = open_job(path)
    assert job.spec.address == launched.spec.address and job.gate is not None
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TERM": "xterm", "COLUMNS": "150"}
    environment.pop("GLIBC_TUNABLES", None)  # as a person's shell has it
    command = [sys.executable, "-m", "trainer", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    screen = b""
    while chunk := _read(ours):
        screen += chunk
    assert process.wait(60) == 0, screen.decode()
    words = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.decode()).split())
    assert "12/12" in words and "tokens/s" in words and "its loss curve" in words
    assert "memory by GLIBC_TUNABLES glibc.malloc.hugetlb=1" in words, "by hand as fast as by a launcher"
    assert job.store.find(job.spec) is not None
    assert (job_folder(job) / "loss.png").read_bytes().startswith(b"\x89PNG")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other side is closed
        return b""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 12}, "steps"),
        ({"run": to_jsonable(SHORT) | {"num_step": 12}}, "num_step"),
        ({"run": to_jsonable(SHORT) | {"num_steps": -1}}, r"run\.num_steps is -1; it must be positive"),
        ({"run": to_jsonable(SHORT) | {"batch_size": 4, "microbatch_size": 3}}, "microbatch_size is 3; .* of batch_size 4"),
        ({"mixture": "mixture/other"}, "no artifact 'mixture/other' in .*; nothing is under that key"),
        ({"start": "runs/tiny/checkpoint"}, r"start is 'runs/tiny/checkpoint', but run\.start is None; give both or neither"),
    ],
)  # fmt: skip
def test_what_is_odd_is_named(changes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        open_job(spec_of(tmp_path, **changes))


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text("run:")
    with pytest.raises(ValueError, match=r"spec\.json is not JSON"):
        open_job(path)
