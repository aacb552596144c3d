"""The ledger as Prometheus metrics: artifacts, attempts, dollars, training, probes, incidents and findings of scouts.

A scrape reads the numbers from the stores, so a restart of the exporter loses nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import polars as pl
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lineage.artifact.store import Store
from operations.alerts.incidents import read_state
from operations.ledger.ledger import Ledger
from operations.probes.outcomes import Outcome, health
from operations.scouts.reports import reports

type Facts = tuple[Ledger, Store]
"""The ledger, and the store that has records of operations."""


class LabCollector(Collector):
    """Metrics of the lab, collected at each scrape. `facts` brings the ledger up to date."""

    def __init__(self, facts: Callable[[], Facts], scouts: Sequence[str]) -> None:
        self._facts, self._scouts = facts, scouts

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. Raises: errors of the stores. Then the scrape fails, and Prometheus' `up` is 0."""
        ledger, store = self._facts()
        yield from artifact_metrics(ledger)
        yield from attempt_metrics(ledger)
        yield from training_metrics(ledger)
        yield from probe_metrics(ledger)
        yield from open_findings(store, self._scouts)


def artifact_metrics(ledger: Ledger) -> Iterator[Metric]:
    """Yield the number, bytes and newest time of the artifacts of each stage, and the number of unreadable files."""
    by = ["store", "stage"]
    created = pl.col("created").str.to_datetime(time_zone="UTC", strict=False).dt.epoch("s").max().cast(pl.Float64)
    table = ledger.tables["artifacts"].group_by(by).agg(pl.len().alias("n"), pl.col("num_bytes").sum(), created.alias("newest"))
    yield _gauge("marin_artifacts", "Artifacts.", by, table, "n")
    yield _gauge("marin_stored_bytes", "Bytes of artifacts.", by, table, "num_bytes")
    yield _gauge("marin_newest_artifact_timestamp_seconds", "When the newest artifact was made.", by, table, "newest")
    yield GaugeMetricFamily("marin_unreadable_files", "Files that the ledger could not read.", len(ledger.unreadable))


def attempt_metrics(ledger: Ledger) -> Iterator[Metric]:
    """Yield attempts by state, their seconds and dollars, and the attempts without a known price."""
    attempts = ledger.tables["attempts"]
    by_state = attempts.group_by("store", "stage", "state").len()
    yield _counter("marin_attempts", "Attempts to make an artifact.", ["store", "stage", "state"], by_state, "len")
    priced = pl.col("dollars").cast(pl.Float64).sum().alias("dollars")
    unpriced = pl.col("dollars").is_null().sum().alias("unpriced")
    table = attempts.group_by("store", "stage").agg(pl.col("seconds").sum(), priced, unpriced)
    yield _counter("marin_attempt_seconds", "Seconds of attempts, failed ones too.", ["store", "stage"], table, "seconds")
    yield _counter("marin_cost_dollars", "Dollars of attempts whose price is known.", ["store", "stage"], table, "dollars")
    yield _gauge("marin_unpriced_attempts", "Attempts whose price is not known.", ["store", "stage"], table, "unpriced")


def training_metrics(ledger: Ledger) -> Iterator[Metric]:
    """Yield the state of each run at its last checkpoint."""
    last = ledger.tables["checkpoints"].sort("step").unique(["store", "run"], keep="last")
    names = {
        "step": "Step of the last checkpoint.",
        "tokens_seen": "Tokens seen.",
        "loss_nats": "Training loss in nats a token.",
        "tokens_per_second": "Tokens a second.",
        "mfu": "Model FLOPs utilization.",
    }
    for name, text in names.items():
        yield _gauge(f"marin_run_{name}", text, ["store", "run"], last.drop_nulls(name), name)


def probe_metrics(ledger: Ledger) -> Iterator[Metric]:
    """Yield success ratio and latency of each probe over the days of the ledger's table."""
    columns = ledger.tables["probes"].sort("at").select("probe", "at", "ok", "seconds", "why")
    healths = health([Outcome(*row) for row in columns.iter_rows()])
    ratio = GaugeMetricFamily("marin_probe_success_ratio", "Probes that were answered.", labels=["probe"])
    broken = GaugeMetricFamily("marin_probe_broken", "1: the last probes all failed.", labels=["probe"])
    seconds = GaugeMetricFamily("marin_probe_seconds", "Latency of answers.", labels=["probe", "quantile"])
    for service in healths:
        ratio.add_metric([service.probe], service.success_ratio)
        broken.add_metric([service.probe], float(service.broken))
        for quantile, value in (("0.5", service.median_seconds), ("0.95", service.p95_seconds)):
            if value is not None:
                seconds.add_metric([service.probe, quantile], value)
    yield from (ratio, broken, seconds)


def open_findings(store: Store, scouts: Sequence[str]) -> Iterator[Metric]:
    """Yield open incidents by kind, and findings of scouts by severity. Raises: ValueError naming a record that is broken."""
    opened = [each.finding.kind for each in read_state(store).incidents.values() if not each.closed]
    yield _counted("marin_open_incidents", "Incidents that are open.", ["kind"], [(kind,) for kind in opened])
    labels = [(report.scout, seen.finding.severity) for report in reports(store, scouts) for seen in report.seen]
    yield _counted("marin_scout_findings", "Findings of scouts.", ["scout", "severity"], labels)


def _counted(name: str, text: str, labels: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Metric:
    counts: Mapping[tuple[str, ...], int] = {row: rows.count(row) for row in sorted(set(rows))}
    family = GaugeMetricFamily(name, text, labels=labels)
    for row, count in counts.items():
        family.add_metric(list(row), count)
    return family


def _gauge(name: str, text: str, by: Sequence[str], table: pl.DataFrame, value: str) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=by), by, table, value)


def _counter(name: str, text: str, by: Sequence[str], table: pl.DataFrame, value: str) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=by), by, table, value)


def _filled[M: (GaugeMetricFamily, CounterMetricFamily)](family: M, by: Sequence[str], table: pl.DataFrame, value: str) -> M:
    for row in table.sort(by).select(*by, value).iter_rows():
        family.add_metric([str(label) for label in row[:-1]], float(row[-1] or 0.0))
    return family
