"""The asset that looks for faults and sends messages about them (`operations.alerts`, docs/runbook.md)."""

import datetime
import os
import shutil
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from marin_assets.areas import owners
from marin_assets.outcomes import outcomes
from marin_assets.probes import day_of_probes
from resources.lab import Lab

if TYPE_CHECKING:
    from operations.alerts.conditions import CampaignRun
    from operations.alerts.incidents import Finding
    from operations.alerts.outbox import Channel

TAKEN = "every_channel_took_its_messages"


def alerts_asset(campaigns: Sequence[str]) -> dg.AssetsDefinition:
    """Incidents that are open, and delivery to the channels of the environment. `campaigns`: tags of ferries and canaries."""
    key = dg.AssetKey(["operations", "alerts"])

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="alerts/1",
        check_specs=[dg.AssetCheckSpec(TAKEN, asset=key, description="nothing waits for a channel")],
    )
    def alerts(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Looks for faults, opens and closes incidents, and sends them to webhooks, e-mail and GitHub."""
        from operations.alerts.incidents import read_state
        from operations.alerts.outbox import tell

        now = datetime.datetime.now(datetime.UTC)
        findings = all_findings(lab, context.instance, campaigns, now, os.environ)
        failed = tell(lab.store, channels_from(os.environ), findings, now)
        is_open = [each for each in read_state(lab.store).incidents.values() if not each.closed]
        listed = "\n".join(f"- {each.finding.kind} {each.finding.subject}: {each.finding.summary}" for each in is_open)
        waiting = "; ".join(f"{name}: {why}" for name, why in failed.items()) or "nothing waits"
        return dg.MaterializeResult(
            metadata={"open": len(is_open), "incidents": dg.MetadataValue.md(listed or "none")},
            check_results=[
                dg.AssetCheckResult(
                    check_name=TAKEN,
                    passed=not failed,
                    severity=dg.AssetCheckSeverity.WARN,
                    description=waiting,
                )
            ],
        )

    return alerts


def all_findings(
    lab: Lab,
    instance: dg.DagsterInstance,
    campaigns: Sequence[str],
    now: datetime.datetime,
    environment: Mapping[str, str],
) -> "list[Finding]":
    """Return everything that is broken now, from the stores, Dagster's runs and the disk."""
    from marin_assets.run_evidence import evidence_of_run
    from operations.alerts import conditions
    from operations.ledger.ledger import open_ledger
    from recipes.prices import price_table

    budget = environment.get("MARIN_WEEKLY_DOLLARS")
    limits = conditions.Thresholds(
        free_disk_share=float(environment.get("MARIN_FREE_DISK_SHARE", conditions.Thresholds.free_disk_share)),
        weekly_dollars=Decimal(budget) if budget else None,
    )
    ledger = open_ledger([lab.store, lab.ferry_store], price_table(), now.date())
    evidence = partial(evidence_of_run, instance, attempts=ledger.tables["attempts"])
    findings = [
        *conditions.gate_findings(ledger),
        *conditions.waiver_findings(ledger, now.date()),
        *conditions.budget_findings(ledger, limits, now),
        *conditions.queue_findings(queued_runs(instance), now, limits),
        *conditions.scout_findings(silent_scouts(lab, now)),
        *conditions.probe_findings(day_of_probes(lab, now)),
    ]
    for campaign in campaigns:
        findings += conditions.campaign_findings(campaign, campaign_runs(instance, campaign), evidence)
    if lab.store.storage.is_local and os.path.isdir(lab.store.root):  # noqa: PTH112
        use = shutil.disk_usage(lab.store.root)
        findings += conditions.disk_findings(lab.store.root, use.free, use.total, limits)
    return findings


def silent_scouts(lab: Lab, now: datetime.datetime) -> dict[str, str]:
    """Return the scouts that are silent. A lab in which none has ever reported has no scouts to wait for."""
    from marin_assets.scouts import SCOUTS
    from operations.scouts.reports import reports, silent

    return silent(lab.store, SCOUTS, now) if reports(lab.store, list(SCOUTS)) else {}


def campaign_runs(instance: dg.DagsterInstance, campaign: str) -> "list[CampaignRun]":
    """Return the recent runs of a campaign, newest first."""
    from operations.alerts.conditions import CampaignRun

    return [CampaignRun(each.day, each.run_id, each.status, each.cause) for each in outcomes(instance, campaign)]


def queued_runs(instance: dg.DagsterInstance) -> dict[str, datetime.datetime]:
    """Return run -> since when of the runs that wait to start."""
    waiting = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED])
    return {
        f"{record.dagster_run.job_name} {record.dagster_run.run_id}": record.create_timestamp.replace(tzinfo=datetime.UTC)
        for record in instance.get_run_records(waiting)
    }


def channels_from(environment: Mapping[str, str]) -> "dict[str, Channel]":
    """Return the channels that `MARIN_ALERT_*` variables name (docs/runbook.md).

    Raises: ValueError naming a variable that lacks another.
    """
    from operations.alerts.channels import Email, GitHubIssues, Webhook

    channels: dict[str, Channel] = {}
    if url := environment.get("MARIN_ALERT_SLACK"):
        channels["slack"] = Webhook(url)
    if url := environment.get("MARIN_ALERT_DISCORD"):
        channels["discord"] = Webhook(url, "discord")
    if server := environment.get("MARIN_ALERT_SMTP"):
        host, _, port = server.rpartition(":")
        sender, to = _needed(environment, "MARIN_ALERT_FROM"), _needed(environment, "MARIN_ALERT_TO")
        user, password = environment.get("MARIN_ALERT_SMTP_USER", ""), environment.get("MARIN_ALERT_SMTP_PASSWORD", "")
        channels["mail"] = Email(host, int(port), sender, tuple(to.split(",")), user, password)
    if repository := environment.get("MARIN_ALERT_GITHUB"):
        api = environment.get("MARIN_ALERT_GITHUB_API", "https://api.github.com")
        channels["github"] = GitHubIssues(repository, _needed(environment, "MARIN_ALERT_GITHUB_TOKEN"), api)
    return channels


def _needed(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise ValueError(f"{name} is not set, and another MARIN_ALERT variable needs it (docs/runbook.md)")
    return environment[name]
