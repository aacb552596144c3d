"""Progress messages of a job in a real Dagster run: observations only, nothing depends on them."""

import json
from pathlib import Path

import dagster as dg
import dagster_pipes
import pytest

from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.job import LaunchRequest
from lineage.messages import Progress, ProgressMessage, line_of, note_of
from resources.progress import observing

HERE = Path(__file__).parent
NOTE = ProgressMessage("training a", 120, 480, {"loss_nats": 3.25})


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def test_a_job_is_observed_while_it_runs_and_its_log_has_words(tmp_path: Path) -> None:
    @dg.asset
    def watched_asset(context: dg.AssetExecutionContext) -> None:
        hear = observing(context, context.asset_key, None)
        run_subprocess(
            LaunchRequest("telling_job", tmp_path / "job.json", tmp_path / "log.txt", "a job", "digest", listener=hear)
        )

    with dg.instance_for_test() as instance:
        result = dg.materialize([watched_asset], instance=instance)
        records = instance.fetch_observations(watched_asset.key, limit=10).records
    assert result.success
    seen = [record.asset_observation.metadata for record in reversed(records) if record.asset_observation is not None]
    assert [(each["done"].value, each["total"].value, each["loss_nats"].value) for each in seen] == [(0, 3, 4.0), (3, 3, 1.0)]
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines == ["counting: 0 of 3 (loss_nats 4)", "at 0", "at 1", "at 2", "counting: 3 of 3 (loss_nats 1)", "at 3"]
    (made,) = result.get_asset_materialization_events()
    assert "loss_nats" not in made.materialization.metadata


def test_a_message_is_one_of_dagster_pipes() -> None:
    theirs = dagster_pipes._make_message("report_custom_message", {"payload": {"progress": NOTE.__dict__}})
    assert json.loads(line_of(NOTE)) == theirs
    assert note_of(line_of(NOTE)) == NOTE


@pytest.mark.parametrize("line", ["step 3\n", "", '{"a": 1}\n', line_of(NOTE)[:60], line_of(NOTE).replace("done", "gone")])
def test_any_other_line_is_shown_as_it_came(line: str, tmp_path: Path) -> None:
    messages: list[ProgressMessage] = []
    launch = LaunchRequest("m", tmp_path, tmp_path, "name", "digest", listener=messages.append)
    assert launch.format_log_line(line) == line and not messages
    assert launch.format_log_line(line_of(NOTE)) == "training a: 120 of 480 (loss_nats 3.25)\n" and messages == [NOTE]


def test_nothing_is_reported_where_nobody_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("MARIN_MESSAGES", raising=False)
    Progress("work", 2).at(2)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("MARIN_MESSAGES", "pipes")
    progress = Progress("work", 100)
    for done in range(101):
        progress.at(done)
    notes = [note_of(line) for line in capsys.readouterr().out.splitlines()]
    assert [note.done for note in notes if note] == [0, 100], "the first and the last, and one every half minute"


def test_a_listener_that_fails_costs_its_message_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(note: ProgressMessage) -> None:
        raise RuntimeError("the event log is gone")

    launch = LaunchRequest("m", tmp_path, tmp_path, "a job", "digest", listener=broken)
    assert launch.format_log_line(line_of(NOTE)) == f"{NOTE}\n"
    assert "a job: the listener failed at a message" in caplog.text and "the event log is gone" in caplog.text
