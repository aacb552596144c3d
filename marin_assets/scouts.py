"""Scouts as assets: one a scout, nightly at 02:00 UTC, and the judgement at 06:00 that every scout has reported."""

import datetime
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import dagster as dg

from marin_assets.areas import owners
from marin_assets.values import records_table
from resources.lab import Lab

if TYPE_CHECKING:
    from operations.ledger.ledger import Ledger
    from operations.scouts.reports import Look, Report

REPORTED = "every_scout_reported"
COLUMNS = ("severity", "first_seen", "summary", "command", "id")


def uncleared_drift(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.store_scouts import uncleared_drift as look
    from recipes.stages import stages

    return look([lab.store, lab.ferry_store], stages())


def unreproducible(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.store_scouts import Sampling
    from operations.scouts.store_scouts import unreproducible as look
    from recipes.stages import stages

    return look([lab.store, lab.ferry_store], stages(), now.date(), Sampling())


def unread_caches(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.ledger_scouts import unread_caches as look

    return look(_ledger(lab, now), now)


def expired_waivers(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.ledger_scouts import expired_waivers as look

    return look(_ledger(lab, now), now.date())


def flaky_checks(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from marin_assets.ledger_dagster import dagster_tables
    from operations.scouts.ledger_scouts import flaky_checks as look

    return look(_ledger(lab, now, dagster_tables(instance)))


def moved_upstreams(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    """Sources with materialized files whose origin has another revision today."""
    from datakit.sources.upstream import upstream_of
    from operations.scouts.store_scouts import moved_upstreams as look
    from recipes.sources import source_config

    partitions = {artifact.spec.partition for artifact in lab.store.artifacts("datakit", "raw")}
    return look({name: source_config(name).loader for name in sorted(filter(None, partitions))}, upstream_of)


def unaudited_checkpoints(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.ledger_scouts import unaudited_checkpoints as look

    return look(_ledger(lab, now))


def orphaned_files(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.reports import reports
    from operations.scouts.store_scouts import orphaned_files as look

    before = {seen.finding.subject: seen.first_seen for one in reports(lab.store, ["orphaned_files"]) for seen in one.seen}
    return look([lab.store, lab.ferry_store], before)


def slow_stages(lab: Lab, instance: dg.DagsterInstance, now: datetime.datetime) -> "Look":
    from operations.scouts.ledger_scouts import slow_stages as look

    return look(_ledger(lab, now))


type Scout = Callable[[Lab, dg.DagsterInstance, datetime.datetime], "Look"]
SCOUTS: Mapping[str, tuple[str, Scout]] = MappingProxyType(
    {
        "uncleared_drift": ("Artifacts whose code has changed, which nobody made again to compare.", uncleared_drift),
        "unreproducible": ("A few artifacts, made again each night: do they come out with the same bytes?", unreproducible),
        "unread_caches": ("Token caches that nothing reads.", unread_caches),
        "expired_waivers": ("Waivers past their last day.", expired_waivers),
        "flaky_checks": ("Checks whose outcome goes to and fro.", flaky_checks),
        "moved_upstreams": ("Sources whose origin has another revision than the pin.", moved_upstreams),
        "unaudited_checkpoints": ("Runs whose last checkpoint no audit has examined.", unaudited_checkpoints),
        "orphaned_files": ("Data folders that no manifest refers to.", orphaned_files),
        "slow_stages": ("Stages that took twice as long as they usually do.", slow_stages),
    }
)
"""Name -> (what it looks for, the scout). To add a scout, add a function and a row."""


def scout_asset(name: str) -> dg.AssetsDefinition:
    """The last report of one scout. A scout that raises fails its own asset; the others of the night go on."""
    looks_for, scout = SCOUTS[name]

    @dg.asset(
        key=["scouts", name],
        group_name="operations",
        description=looks_for,
        owners=owners("operations"),
        kinds={"table"},
        code_version="scout/1",
    )
    def look(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        from operations.scouts.reports import scouted

        report = scouted(lab.store, name, lambda: scout(lab, context.instance, _now()), _now)
        for seen in report.seen:
            context.log.warning(f"{seen.finding.severity}: {seen.finding.summary} ({seen.finding.command})")
        return dg.MaterializeResult(metadata=_metadata(report))

    return look


def scouts_asset() -> dg.AssetsDefinition:
    """What all scouts found, and the check that each has reported since it was last due."""
    key = dg.AssetKey(["operations", "scouts"])

    @dg.asset(
        key=key,
        deps=[dg.AssetKey(["scouts", name]) for name in SCOUTS],
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="scouts/1",
        check_specs=[dg.AssetCheckSpec(REPORTED, asset=key, description="each scout has reported since 02:00 UTC")],
    )
    def scouts(lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Collects the findings of the night and names every scout that is silent."""
        from operations.scouts.reports import reports, silent

        missing = silent(lab.store, SCOUTS, _now())
        collected = [(report, seen) for report in reports(lab.store, list(SCOUTS)) for seen in report.seen]
        why = "; ".join(f"{name}: {reason}" for name, reason in missing.items()) or f"all {len(SCOUTS)} have reported"
        rows = [{"scout": report.scout, **_row(seen)} for report, seen in collected]
        return dg.MaterializeResult(
            metadata={"findings": len(rows), "table": records_table(rows, ("scout", *COLUMNS))},
            check_results=[dg.AssetCheckResult(check_name=REPORTED, passed=not missing, description=why)],
        )

    return scouts


def _ledger(lab: Lab, now: datetime.datetime, dagster: Mapping | None = None) -> "Ledger":
    from operations.ledger.ledger import open_ledger
    from recipes.prices import price_table

    return open_ledger([lab.store, lab.ferry_store], price_table(), now.date(), dagster)


def _metadata(report: "Report") -> dict[str, dg.MetadataValue]:
    left_out = "\n".join(f"- {what}: {why}" for what, why in report.left_out.items())
    return {
        "findings": dg.MetadataValue.int(len(report.seen)),
        "examined": dg.MetadataValue.int(report.examined),
        "table": records_table([_row(seen) for seen in report.seen], COLUMNS),
        "left_out": dg.MetadataValue.md(left_out or "none"),
    }


def _row(lasting) -> dict[str, str]:
    finding = lasting.finding
    return {
        "severity": finding.severity,
        "first_seen": lasting.first_seen,
        "summary": finding.summary,
        "command": finding.command,
        "id": lasting.id,
    }


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
