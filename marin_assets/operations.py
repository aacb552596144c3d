"""Operations: pass rates of ferries and canaries, expiry of old ferries, the daily comparison of lineage.

A pass rate is read from the run ledger, so it includes every outcome: passes, broken invariants and machines that died.
"""

import datetime
import logging
from collections.abc import Callable, Sequence

import dagster as dg

from lineage.artifact.store import Store
from lineage.graph.consistency import Comparison
from lineage.writing.delete import delete
from marin_assets.areas import owners
from marin_assets.consistency import CACHE_KINDS, check_consistency, reasons
from marin_assets.outcomes import WINDOW_RUNS, outcomes
from marin_assets.values import records_table
from partitions.axes import day_of
from resources.dagster_private import BaseAssetGraph
from resources.lab import Lab
from resources.stores import FERRY_TTL_DAYS

log = logging.getLogger(__name__)

MIN_PASS_RATE = 0.9


def pass_rate_key(campaign: str) -> dg.AssetKey:
    """Return the key of a campaign's pass rate."""
    return dg.AssetKey(["operations", f"{campaign}_pass_rate"])


def pass_rate_asset(campaign: str) -> dg.AssetsDefinition:
    """Return the pass-rate history of a campaign (`ferry`, `canary_<hardware>`), with the check that it is at least 90 %."""
    key = pass_rate_key(campaign)

    @dg.asset(
        key=key,
        group_name="operations",
        description=f"The last {WINDOW_RUNS} runs of {campaign}: how many passed, and why the others did not.",
        owners=owners("operations"),
        kinds={"table"},
        code_version="pass_rate/1",
        check_specs=[
            dg.AssetCheckSpec("pass_rate_at_least_90_percent", asset=key, description=f"pass rate >= {MIN_PASS_RATE:.0%}")
        ],
    )
    def pass_rate(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        history = [outcome for outcome in outcomes(context.instance, campaign) if outcome.status != "running"]
        rate = sum(outcome.status == "passed" for outcome in history) / len(history) if history else 1.0
        description = f"{rate:.0%} of {len(history)} finished runs" if history else "no finished run yet: nothing to judge"
        return dg.MaterializeResult(
            metadata={
                "pass_rate": rate,
                "runs": len(history),
                "regressions": sum(outcome.status == "regression" for outcome in history),
                "infrastructure_failures": sum(outcome.status == "infrastructure" for outcome in history),
                "history": dg.MetadataValue.table([dg.TableRecord(vars(outcome)) for outcome in history[:WINDOW_RUNS]])
                if history
                else dg.MetadataValue.text("no finished run yet"),
            },
            check_results=[
                dg.AssetCheckResult(
                    check_name="pass_rate_at_least_90_percent", passed=rate >= MIN_PASS_RATE, description=description
                )
            ],
        )

    return pass_rate


def expired(store: Store, today: str, ttl_days: int = FERRY_TTL_DAYS) -> list[str]:
    """Return addresses of the artifacts whose day is more than `ttl_days` before `today`.

    An artifact whose partition is no day never expires; a warning names it.
    """
    oldest = datetime.date.fromisoformat(today) - datetime.timedelta(days=ttl_days)
    gone = []
    for artifact in store.artifacts():
        try:
            day = datetime.date.fromisoformat(artifact.spec.partition or "")
        except ValueError:
            log.warning("%s in %s is kept: its partition is no day (YYYY-MM-DD)", artifact.name, store.root)
            continue
        if day < oldest:
            gone.append(artifact.spec.address)
    return gone


def delete_expired(store: Store, today: str, ttl_days: int = FERRY_TTL_DAYS) -> list[str]:
    """Delete what has expired, manifests first; return the deleted addresses."""
    gone = expired(store, today, ttl_days)
    for address in gone:
        artifact = store.open(address)
        if artifact is not None:
            delete(artifact)
    return gone


def ferry_expiry_asset() -> dg.AssetsDefinition:
    """Return an asset whose materialization deletes expired artifacts; its metadata lists them."""

    @dg.asset(
        key=["operations", "ferry_expiry"],
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="ferry_expiry/1",
    )
    def ferry_expiry(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Deletes every ferry artifact that is older than the ferries' time to live."""
        today = day_of(datetime.datetime.now(datetime.UTC))
        gone = delete_expired(lab.ferry_store, today)
        context.log.info(f"deleted {len(gone)} artifacts older than {FERRY_TTL_DAYS} days")
        return dg.MaterializeResult(metadata={"deleted": len(gone), "addresses": dg.MetadataValue.json(gone[:1000])})

    return ferry_expiry


def lineage_consistency_asset(graph: Callable[[], BaseAssetGraph]) -> dg.AssetsDefinition:
    """Return the daily comparison of the three sources. `graph` returns the whole graph, including this asset."""
    key = dg.AssetKey(["operations", "lineage_consistency"])
    check = "witnesses_agree"

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"table"},
        code_version="lineage_consistency/1",
        check_specs=[dg.AssetCheckSpec(check, asset=key, description="manifests, lineage tables and event log agree")],
    )
    def lineage_consistency(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Compare manifests, lineage tables and Dagster's event log for every artifact; list each disagreement and its
        remedy.
        """
        today = datetime.datetime.now(datetime.UTC).date()
        comparison = check_consistency([lab.store, lab.ferry_store], context.instance, graph(), today)
        for disagreement in comparison.disagreements:
            context.log.error(str(disagreement))
        return dg.MaterializeResult(
            metadata=comparison_metadata(comparison), check_results=[comparison_result(check, comparison)]
        )

    return lineage_consistency


def comparison_metadata(comparison: Comparison) -> dict[str, dg.MetadataValue]:
    """Return counts, and tables of what disagrees and of what is unknown."""
    metadata: dict[str, dg.MetadataValue] = {name: dg.MetadataValue.int(count) for name, count in comparison.counts.items()}
    metadata["disagreements"] = dg.MetadataValue.int(len(comparison.disagreements))
    metadata["corrected by a newer event"] = dg.MetadataValue.int(len(comparison.corrected))
    rows: Sequence[dict[str, str]] = [
        {
            "kind": one.kind,
            "artifact": one.artifact,
            "said": "; ".join(f"{who}: {what}" for who, what in one.said),
            "mend": one.mend,
        }
        for one in comparison.disagreements
    ]
    if rows:
        metadata["what_disagrees"] = records_table(rows, ("kind", "artifact", "said", "mend"))
    unknown = [{"why": why, "times": times} for why, times in reasons(comparison.unknown)]
    if unknown:
        metadata["unknown"] = records_table(unknown, ("why", "times"))
    return metadata


def comparison_result(check: str, comparison: Comparison) -> dg.AssetCheckResult:
    """Fail on any disagreement; warn if only the lineage tables, a cache of the manifests, are wrong."""
    only_cache = all(one.kind in CACHE_KINDS for one in comparison.disagreements)
    description = (
        "; ".join(str(one) for one in comparison.disagreements[:3]) or f"nothing disagrees, {len(comparison.unknown)} unknown"
    )
    return dg.AssetCheckResult(
        check_name=check,
        passed=not comparison.disagreements,
        severity=dg.AssetCheckSeverity.WARN if only_cache else dg.AssetCheckSeverity.ERROR,
        description=description,
    )
