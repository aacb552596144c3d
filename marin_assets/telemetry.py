"""The asset that sends attempts as OpenTelemetry spans, where an endpoint is configured."""

import datetime
import os

import dagster as dg

from marin_assets.areas import owners
from resources.lab import Lab

TAKEN = "the_collector_takes_spans"


def traces_asset() -> dg.AssetsDefinition:
    """Attempts that ended since the last time, as spans of the endpoint in `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    key = dg.AssetKey(["operations", "traces"])

    @dg.asset(
        key=key,
        group_name="operations",
        owners=owners("operations"),
        kinds={"opentelemetry"},
        code_version="traces/1",
        check_specs=[dg.AssetCheckSpec(TAKEN, asset=key, description="the collector took every span")],
    )
    def traces(lab: dg.ResourceParam[Lab]) -> dg.MaterializeResult:
        """Sends each attempt to make an artifact as a span, once it has ended. Without an endpoint nothing is sent."""
        from operations.ledger.ledger import open_ledger
        from operations.telemetry.traces import NotTakenError, endpoint_from, send_new
        from recipes.prices import price_table

        now = datetime.datetime.now(datetime.UTC)
        endpoint = endpoint_from(os.environ)
        if endpoint is None:
            return _result(0, 0, "OTEL_EXPORTER_OTLP_ENDPOINT is not set: no spans are sent", passed=True)
        ledger = open_ledger([lab.store, lab.ferry_store], price_table(), now.date())
        try:
            sent, rejected = send_new(lab.store, ledger.tables["attempts"], endpoint, now)
        except NotTakenError as error:
            return _result(0, 0, f"{error}; they are sent again at the next time", passed=False)
        return _result(sent, rejected, f"{sent} spans sent, {rejected} rejected", passed=not rejected)

    return traces


def _result(sent: int, rejected: int, description: str, *, passed: bool) -> dg.MaterializeResult:
    check = dg.AssetCheckResult(check_name=TAKEN, passed=passed, severity=dg.AssetCheckSeverity.WARN, description=description)
    return dg.MaterializeResult(metadata={"sent": sent, "rejected": rejected}, check_results=[check])
