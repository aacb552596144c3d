"""The queue of the lab's own `dagster.yaml`: a code server that stops answering costs no queued run."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster_processes import DagsterProcesses
from launches import until
from queue_location import FOLDER, RUNS
from small import repository

pytestmark = pytest.mark.slow

UNREACHED = "Run dequeue failed to reach the user code server, re-submitting the run"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A home with the lab's own settings; the place of files and the pause after a failure are this test's."""
    settings = yaml.safe_load((repository() / "dagster.yaml").read_text())
    settings["storage"]["sqlite"]["base_dir"] = str(tmp_path / "storage")
    for part in ("local_artifact_storage", "compute_logs"):
        settings[part]["config"]["base_dir"] = str(tmp_path / part)
    settings["run_coordinator"]["config"]["user_code_failure_retry_delay"] = 1
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "marks").mkdir()
    return tmp_path


@pytest.fixture
def dagster(folder: Path) -> Iterator[DagsterProcesses]:
    ours = {"DAGSTER_HOME": str(folder), FOLDER: str(folder / "marks"), "PYTHONPATH": str(Path(__file__).parent)}
    quickly = {"DAGSTER_GRPC_TIMEOUT_SECONDS": "5"}  # sixty without it
    with DagsterProcesses("queue_location", os.environ | ours | quickly, folder) as processes:
        yield processes


def test_twenty_queued_runs_survive_a_code_server_that_does_not_answer(dagster: DagsterProcesses, folder: Path) -> None:
    with dg.DagsterInstance.from_config(str(folder)) as instance:

        def ended() -> list[dg.DagsterRun]:
            statuses = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
            return list(instance.get_runs(dg.RunsFilter(statuses=statuses)))

        def told(message: str) -> int:
            runs = instance.get_runs()
            return sum(message in entry.message for run in runs for entry in instance.all_logs(run.run_id))

        until(lambda: len(ended()) >= 2, "two runs to end")
        server = dagster.processes["location"].pid
        os.kill(server, signal.SIGSTOP)
        try:
            until(lambda: told(UNREACHED) >= 3, "three attempts that the code server does not answer")
        finally:
            os.kill(server, signal.SIGCONT)
        until(lambda: len(ended()) >= RUNS, "every run to end")
        assert {run.status for run in instance.get_runs()} == {dg.DagsterRunStatus.SUCCESS}
        assert len(instance.get_runs()) == RUNS
    marks = {path.name: path.read_text().split() for path in (folder / "marks").iterdir()}
    assert set(marks) == {str(at) for at in range(RUNS)}
