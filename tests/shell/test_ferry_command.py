"""`marin ferry` and `marin canary` around the job: lines of stages, a log file, the pass rate, the cause of a failure."""

from pathlib import Path

import dagster as dg
import pytest
from small import small_lab
from small_runs import DAY

from jobs.campaigns import FERRY, FERRY_JOB
from jobs.upkeep import PASS_RATES, job_over
from marin_assets.cli.ferry import run_campaign
from marin_assets.operations import pass_rate_asset, pass_rate_key
from marin_assets.outcomes import CAMPAIGN_TAG, classify


def pass_rate(home: Path) -> dict[str, object]:
    """The metadata of the newest pass rate of the ferry."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        event = instance.get_latest_materialization_event(pass_rate_key(FERRY))
    assert event is not None and event.asset_materialization is not None, "the pass rate was never materialized"
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.fixture
def home(own_day: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The instance of a finished day of the small ferry, as the command line finds it."""
    monkeypatch.setenv("DAGSTER_HOME", str(own_day / "dagster"))
    return own_day / "dagster"


def test_a_ferry_is_a_line_a_stage_and_refreshes_its_pass_rate(
    home: Path, own_day: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, _, definitions = small_lab(own_day / "lab")
    log = tmp_path / "logs/ferry.log"
    assert run_campaign(definitions, FERRY_JOB, FERRY, DAY, log, as_json=False)
    first, *lines = capfd.readouterr().out.splitlines()
    assert str(log) in first
    total = len(lines)
    counts = [line.partition("]")[0].removeprefix("[").strip() for line in lines]
    assert counts == [f"{at}/{total}" for at in range(1, total + 1)]
    stages = [line.partition("]")[2].split()[0] for line in lines]
    assert len(set(stages)) == total and {"datakit.raw", "trainer.checkpoint", "evals.audit"} <= set(stages)
    assert all(" reused" in line for line in lines)
    rate = pass_rate(home)
    assert (rate["runs"], rate["pass_rate"]) == (2, 1.0)
    assert log.stat().st_size > 0


def test_a_ferry_that_fails_refreshes_it_too_and_the_cause_is_last(home: Path, tmp_path: Path) -> None:
    @dg.asset(key=["ferry", "broken"], partitions_def=dg.StaticPartitionsDefinition([DAY]))
    def broken() -> None:
        raise ValueError("the vocabulary is larger than the text gives")

    job = dg.define_asset_job(FERRY_JOB, selection=[broken], tags={CAMPAIGN_TAG: FERRY})
    rates = job_over(PASS_RATES, [pass_rate_key(FERRY).to_user_string()])
    definitions = dg.Definitions(assets=[broken, pass_rate_asset(FERRY)], jobs=[job, rates])
    log = tmp_path / "ferry.log"
    with pytest.raises(RuntimeError, match="the vocabulary is larger than the text gives; run it again") as failed:
        run_campaign(definitions, FERRY_JOB, FERRY, DAY, log, as_json=True)
    assert str(log) in str(failed.value) and "\n" not in str(failed.value)
    rate = pass_rate(home)
    assert (rate["runs"], rate["pass_rate"], rate["infrastructure_failures"]) == (2, 0.5, 1)


def test_a_run_that_was_interrupted_is_named_so() -> None:
    """Ctrl-C ends a step with Dagster's own exception, whose name says nothing to a person."""

    @dg.asset(key=["ferry", "slow"])
    def slow() -> None:
        raise dg.DagsterExecutionInterruptedError

    with dg.instance_for_test() as instance:
        result = dg.materialize([slow], instance=instance, raise_on_error=False)
        assert classify(instance, result.dagster_run) == ("infrastructure", "ferry/slow: it was interrupted")
