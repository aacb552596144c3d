"""`make isoflop` as a command: a study that is killed goes on where it was, and what cannot be fitted is said by name."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.science.isoflop_study import LONGER, WHOLE, forecasts, method
from lineage.artifact.store import Artifact, Store
from science.trials import FLOP_TOLERANCE
from trainer.spec.target import size_of

ROOT = Path(__file__).resolve().parents[2]


def started(root: Path, workers: int = 2) -> subprocess.Popen[str]:
    study = ["--study", "smallest", "--workers", str(workers)]
    command = [sys.executable, "-m", "benchmarks.science.isoflop", *study, str(root)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def killed_after(root: Path, runs: int) -> None:
    """Start the study and kill it as soon as it says that some runs are done."""
    with started(root) as study:
        assert study.stderr is not None
        for line in study.stderr:
            if f"; {runs} of " in line:
                study.send_signal(signal.SIGKILL)
    assert study.returncode == -signal.SIGKILL


def finished(root: Path, workers: int = 2) -> str:
    """Run the study to its end; what it says."""
    with started(root, workers) as study:
        _, output = study.communicate()
    assert study.returncode == 1, output
    return output


def trials(root: Path) -> dict[str, Artifact]:
    return {
        trial.name: trial for trial in Store(str(root / "store")).artifacts("sweeps") if trial.spec.stage == "trainer.trial"
    }


def table(root: Path) -> Artifact:
    (artifact,) = Store(str(root / "store")).artifacts("sweeps/isoflop-smallest/table")
    return artifact


def test_the_longer_study_goes_on_from_the_whole_one() -> None:
    whole, longer = (list(forecasts(study, 1.0, "policy")) for study in (WHOLE, LONGER))
    assert longer[: len(whole)] == whole and len(longer) == len(whole) + 2
    most = method(LONGER).max_ratio * LONGER.budgets[-1][0] * (1 + FLOP_TOLERANCE)
    for forecast, _ in longer:
        run = forecast.config.target
        assert size_of(run).flops <= most, "or its forecast is refused"
        tokens = run.num_steps * run.batch_size * run.seq_len
        assert tokens * 4 < LONGER.text_bytes, "no run repeats data: with 512 tokens, a token has less than four bytes"


@pytest.mark.slow
def test_a_killed_study_goes_on_trains_nothing_twice_and_gives_the_same_table_to_the_byte(tmp_path: Path) -> None:
    killed_after(tmp_path / "killed", 2)
    before = {name: trial.manifest.created for name, trial in trials(tmp_path / "killed").items()}
    assert 2 <= len(before) < 4
    output = finished(tmp_path / "killed")
    assert "4 of 4 runs done" in output and "no law and no forecast" in output and "too_few_budgets" in output
    after = {name: trial.manifest.created for name, trial in trials(tmp_path / "killed").items()}
    assert len(after) == 4 and before.items() <= after.items()
    finished(tmp_path / "whole", workers=1)
    ours, whole = (table(tmp_path / name).file("trials.parquet").read_bytes() for name in ("killed", "whole"))
    assert ours == whole
    page = (tmp_path / "killed" / "isoflop-smallest.md").read_text()
    assert "`too_few_budgets`" in page and "| c1e09-d8-s0 |" in page
