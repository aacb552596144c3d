"""Each kind of alert by its real cause: found in stores, Dagster's database and the disk, and received by real servers."""

import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import dagster as dg
import pytest
from alert_servers import smtp_server, web_server
from random_lineage import write

from lineage.build.waiver_stage import waive
from lineage.jobs.summary import summarizing
from lineage.trust.verdicts import quarantine
from lineage.trust.waivers import Waiver
from marin_assets.alerts import all_findings, channels_from
from marin_assets.canary import loss_check
from marin_assets.outcomes import CAMPAIGN_TAG
from marin_assets.scouts import SCOUTS
from operations.alerts.incidents import Finding, Kind
from operations.alerts.outbox import tell
from operations.probes.outcomes import Outcome, record
from operations.scouts.reports import Look, scouted
from recipes.canary import Canary, RecordedRun
from resources.lab import Lab

NOW = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
"""Runs that are queued now have waited for two hours then."""
KINDS = get_args(Kind.__value__)
CAMPAIGNS = ("ferry", "canary_cpu")
ENVIRONMENT = {"MARIN_WEEKLY_DOLLARS": "0", "MARIN_FREE_DISK_SHARE": "1"}


@dg.asset
def good() -> int:
    return 1


@dg.asset
def bad() -> int:
    sys.stderr.write("the last words of the step\n")
    raise RuntimeError("no space left, password=hunter2")


SPEC = dg.AssetCheckSpec("loss_in_band", asset="canary_of_a_test", blocking=True)


@dg.asset(name="canary_of_a_test", check_specs=[SPEC])
def canary() -> dg.MaterializeResult:
    result = loss_check(Canary("cpu", (RecordedRun("2026-11-01", 5.0, "a test"),)), 9.9)
    return dg.MaterializeResult(check_results=[result])


@dg.asset(deps=[canary])
def after_canary() -> int:
    return 1


def run(campaign: str, instance: dg.DagsterInstance, *assets: dg.AssetsDefinition) -> str:
    tags = {CAMPAIGN_TAG: campaign, "dagster/partition": "2026-11-20"}
    return dg.materialize(assets, instance=instance, raise_on_error=False, tags=tags).run_id


def break_everything(lab: Lab, instance: dg.DagsterInstance) -> str:
    """Cause each kind once. Returns the id of the failed ferry."""
    for _ in range(10):
        run("ferry", instance, good)  # so that its pass rate stays above nine tenths
    failed = run("ferry", instance, bad)
    run("canary_cpu", instance, canary, after_canary)
    waits = dg.Definitions([good], jobs=[dg.define_asset_job("waits", "*")]).resolve_job_def("waits")
    instance.create_run_for_job(waits)  # it waits to be started
    made = write(lab.store, 1, [])
    with summarizing(lab.store, made.spec, failed):
        sum(range(3_000_000))
    quarantine(made, "smells", "ada")
    waive(lab.store, Waiver("failed", made.name, "ada", "known", NOW.date().replace(year=2025).isoformat()))
    for name in list(SCOUTS)[1:]:
        scouted(lab.store, name, lambda: Look((), 0), lambda: NOW)
    record(lab.store, [Outcome("write_kept", NOW.isoformat(timespec="seconds"), False, 1.0, "OSError: full")] * 3)
    return failed


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[tuple[Lab, list[Finding], str]]:
    lab = Lab.at(str(tmp_path / "lab"))
    (tmp_path / "dagster").mkdir()
    with dg.instance_for_test(temp_dir=str(tmp_path / "dagster")) as instance:
        failed = break_everything(lab, instance)
        yield lab, all_findings(lab, instance, CAMPAIGNS, NOW, ENVIRONMENT), failed


def test_each_kind_is_found_by_its_cause_and_received_by_real_servers(broken: tuple[Lab, list[Finding], str]) -> None:
    lab, findings, failed = broken
    assert sorted(finding.kind for finding in findings) == sorted(KINDS)
    with web_server() as web, smtp_server() as box:
        environment = {
            "MARIN_ALERT_SLACK": f"{web.url}/hook",
            "MARIN_ALERT_SMTP": f"127.0.0.1:{box.port}",
            "MARIN_ALERT_FROM": "lab@example.org",
            "MARIN_ALERT_TO": "ada@example.org",
            "MARIN_ALERT_GITHUB": "lab/marin",
            "MARIN_ALERT_GITHUB_TOKEN": "secret",
            "MARIN_ALERT_GITHUB_API": web.url,
        }
        assert tell(lab.store, channels_from(environment), findings, NOW) == {}
        for texts in ([body["text"] for body in web.bodies], box.mails, [issue["body"] for issue in web.issues]):
            assert len(texts) == len(KINDS)
            for kind in KINDS:
                assert sum(f"docs/runbook.md#{kind.replace('_', '-')}" in text for text in texts) == 1, kind
        [ferry] = [issue["body"] for issue in web.issues if issue["title"] == "failed_ferry: ferry"]
        for wanted in (failed, "RuntimeError: no space left", "STEP_FAILURE bad", "the last words of the step",
                       "./marin ferry --day 2026-11-20", "tests/n1: done"):  # fmt: skip
            assert wanted in ferry, wanted
        assert "hunter2" not in "".join([ferry, *box.mails, *(body["text"] for body in web.bodies)])
        [of_canary] = [mail for mail in box.mails if "canary_out_of_band" in mail]
        assert "final loss 9.9000 nats" in of_canary
