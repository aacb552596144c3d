"""The asset that probes what the lab needs: its roots, Dagster's database, and its cluster if there is one."""

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING

import dagster as dg

from marin_assets.areas import owners
from marin_assets.values import records_table
from resources.kubernetes_launcher import KubernetesLauncher
from resources.lab import Lab

if TYPE_CHECKING:
    from operations.probes.outcomes import Health

ANSWERED = "every_service_answers"
DAY = datetime.timedelta(days=1)
COLUMNS = ("probe", "times", "success_ratio", "median_seconds", "p95_seconds", "last_error")


def probes_asset() -> dg.AssetsDefinition:
    """Success ratio and latency of each service over a day, with the check that the newest probe of each succeeded."""
    key = dg.AssetKey(["operations", "probes"])

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="probes/1",
        check_specs=[dg.AssetCheckSpec(ANSWERED, asset=key, description="each service answered now")],
    )
    def probes(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Sends one small request to each service that the lab needs, and records how long the answers took."""
        from operations.probes.outcomes import record, send

        outcomes = send(probes_of(lab, context.instance), lambda: datetime.datetime.now(datetime.UTC))
        failed = [f"{outcome.probe}: {outcome.why}" for outcome in outcomes if not outcome.ok]
        for line in failed:
            context.log.error(line)
        record(lab.store, outcomes)
        result = dg.AssetCheckResult(
            check_name=ANSWERED,
            passed=not failed,
            severity=dg.AssetCheckSeverity.WARN,
            description="; ".join(failed) or f"{len(outcomes)} services answered",
        )
        rows = [row_of(health) for health in day_of_probes(lab, datetime.datetime.now(datetime.UTC))]
        return dg.MaterializeResult(
            metadata={"failed": len(failed), "last_24_hours": records_table(rows, COLUMNS)}, check_results=[result]
        )

    return probes


def probes_of(lab: Lab, instance: dg.DagsterInstance) -> dict[str, Callable[[], None]]:
    """Return the probes of a lab by name."""
    from operations.probes.storage import write_and_read

    probes: dict[str, Callable[[], None]] = {
        "write_kept": lambda: write_and_read(lab.store),
        "write_expiring": lambda: write_and_read(lab.ferry_store),
        "dagster_database": lambda: _newest_run(instance),
    }
    if isinstance(lab.launcher, KubernetesLauncher):
        from resources.probes import launcher_probes

        probes |= launcher_probes(lab.launcher)
    return probes


def day_of_probes(lab: Lab, now: datetime.datetime) -> "list[Health]":
    """Return the health of each probe over the last 24 hours. Raises: ValueError naming a file that cannot be read."""
    from operations.probes.outcomes import health, since

    return health(since(lab.store, now - DAY, now))


def row_of(health: "Health") -> dict[str, str]:
    """Return the health of a probe as a row of texts (`COLUMNS`)."""
    seconds = ("" if value is None else f"{value:.3f}" for value in (health.median_seconds, health.p95_seconds))
    cells = (health.probe, str(health.times), f"{health.success_ratio:.1%}", *seconds, health.last_error)
    return dict(zip(COLUMNS, cells, strict=True))


def _newest_run(instance: dg.DagsterInstance) -> None:
    instance.get_run_records(limit=1)
