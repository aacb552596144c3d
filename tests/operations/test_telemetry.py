"""Telemetry: what Prometheus reads is what the stores hold, and a collector of spans gets every attempt once."""

import datetime
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families
from random_lineage import write

from lineage.artifact.store import Store
from lineage.jobs.summary import summarizing
from marin_assets.cli.metrics import registry_of
from operations.alerts.incidents import Finding as Broken
from operations.alerts.outbox import tell
from operations.ledger.ledger import Ledger, open_ledger
from operations.probes.outcomes import Outcome, record
from operations.scouts.reports import Finding, Look, scouted
from operations.telemetry import traces
from operations.telemetry.traces import Endpoint, NotTakenError, endpoint_from, send_new
from recipes.prices import price_table

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime.datetime.now(datetime.UTC)


@dataclass
class Collector:
    """What a collector on loopback received, and how it answers."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    status: int = 200
    rejects: int = 0


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as collector:
        yield collector


@contextmanager
def running_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            if collector.status == 200:
                collector.keys.append(self.headers.get("api-key"))
                collector.spans += request.resource_spans[0].scope_spans[0].spans
            partial = ExportTracePartialSuccess(rejected_spans=collector.rejects)
            body = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


def attempted(store: Store, *, fails: bool = False, run: str = "run") -> None:
    made = write(store, 1, [])
    if not fails:
        with summarizing(store, made.spec, run):
            pass
        return
    with pytest.raises(RuntimeError), summarizing(store, made.spec, run):
        raise RuntimeError("out of luck")


def ledger_of(store: Store) -> Ledger:
    return open_ledger([store], price_table(), NOW.date())


def sent(store: Store, collector: Collector) -> tuple[int, int]:
    endpoint = Endpoint(f"{collector.url}/v1/traces")
    return send_new(store, ledger_of(store).tables["attempts"], endpoint, datetime.datetime.now(datetime.UTC))


def test_each_attempt_is_sent_once_and_a_failed_one_says_why(tmp_path: Path, collector: Collector) -> None:
    store = Store(str(tmp_path))
    attempted(store)
    attempted(store, fails=True)
    assert sent(store, collector) == (2, 0) and sent(store, collector) == (0, 0)
    attempted(store, run="another")
    assert sent(store, collector) == (1, 0)
    good, bad = sorted(collector.spans[:2], key=lambda span: span.status.code)
    later = collector.spans[2]
    assert good.trace_id == bad.trace_id != later.trace_id and len({each.span_id for each in collector.spans}) == 3
    assert (good.status.code, bad.status.code) == (Status.STATUS_CODE_OK, Status.STATUS_CODE_ERROR)
    assert "out of luck" in bad.status.message and len(good.trace_id) == 16 and len(good.span_id) == 8
    assert 0 < good.start_time_unix_nano <= good.end_time_unix_nano
    attributes = {each.key: each.value.string_value for each in good.attributes}
    assert attributes["marin.run_id"] == "run" and attributes["marin.state"] == "done"


def test_a_collector_that_is_away_loses_nothing(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    for _ in range(3):
        attempted(store)
    monkeypatch.setattr(traces, "BATCH", 2)
    collector.status = 503
    with pytest.raises(NotTakenError, match="the collector of spans answers 503"):
        sent(store, collector)
    collector.status = 200
    assert sent(store, collector) == (3, 0) and len(collector.spans) == 3
    attempted(store)
    with pytest.raises(NotTakenError, match="does not answer: ConnectionError") as error:
        send_new(store, ledger_of(store).tables["attempts"], Endpoint("http://127.0.0.1:1/secret"), NOW)
    assert "secret" not in str(error.value)
    assert sent(store, collector) == (1, 0)


@pytest.mark.parametrize(("status", "rejects"), [(400, 0), (200, 1)])
def test_what_a_collector_rejects_is_counted_and_not_sent_again(
    tmp_path: Path, collector: Collector, status: int, rejects: int
) -> None:
    store = Store(str(tmp_path))
    attempted(store)
    collector.status, collector.rejects = status, rejects
    assert sent(store, collector) == (1, 1) and sent(store, collector) == (0, 0)


def test_a_running_attempt_and_an_old_one_are_not_sent(tmp_path: Path, collector: Collector) -> None:
    store = Store(str(tmp_path))
    attempted(store)
    endpoint, attempts = Endpoint(f"{collector.url}/v1/traces"), ledger_of(store).tables["attempts"]
    assert send_new(store, attempts, endpoint, NOW + datetime.timedelta(days=8)) == (0, 0)
    with summarizing(store, write(store, 2, []).spec, "run"):
        assert sent(store, collector) == (1, 0)
    assert sent(store, collector) == (1, 0)


def test_the_endpoint_is_that_of_opentelemetrys_own_variables(tmp_path: Path) -> None:
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example/", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x=1"}
    assert endpoint_from({}) is None
    assert endpoint_from(base) == Endpoint("https://c.example/v1/traces", {"api-key": "a b", "x": "1"})
    assert endpoint_from({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"}) == Endpoint("http://t/x")
    assert "c.example" not in repr(endpoint_from(base)) and "a b" not in repr(endpoint_from(base))
    with pytest.raises(ValueError, match="must be an http:// or https:// address"):
        endpoint_from({"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://c:4317"})
    with pytest.raises(ValueError, match="an entry without `=`") as error:
        endpoint_from({**base, "OTEL_EXPORTER_OTLP_HEADERS": "secret"})
    assert "secret" not in str(error.value)


def filled(folder: Path) -> Store:
    """A store with an artifact, attempts, probes, an incident and a finding of a scout."""
    store = Store(str(folder))
    attempted(store)
    attempted(store, fails=True)
    at = NOW.isoformat(timespec="seconds")
    record(store, [Outcome("api_server", at, True, 0.5), Outcome("api_server", at, False, 9.0, "E: away")])
    tell(store, {}, [Broken("disk", "d", "full", "./marin status")], NOW)
    scouted(store, "unread_caches", lambda: Look((Finding("a", "low", "rots", "./marin status"),), 1), lambda: NOW)
    return store


def test_prometheus_reads_what_the_store_holds(tmp_path: Path) -> None:
    store = filled(tmp_path / "lab")
    server, thread = start_http_server(0, "127.0.0.1", registry_of(store.root))
    try:
        text = requests.get(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30).text
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    samples = {(s.name, *sorted(s.labels.values())): s.value for f in text_string_to_metric_families(text) for s in f.samples}
    [artifact] = store.artifacts()
    stage = artifact.spec.stage
    assert samples["marin_artifacts", "lab", stage] == 1
    assert samples["marin_stored_bytes", "lab", stage] == sum(entry.bytes for entry in artifact.manifest.files)
    assert samples["marin_attempts_total", "done", "lab", stage] == samples["marin_attempts_total", "failed", "lab", stage] == 1
    assert samples["marin_probe_success_ratio", "api_server"] == 0.5
    assert samples["marin_probe_seconds", "0.95", "api_server"] == 0.5
    assert samples["marin_open_incidents", "disk"] == 1
    assert samples["marin_scout_findings", "low", "unread_caches"] == 1
    assert samples["marin_unreadable_files",] == 0


def test_panels_of_the_dashboard_have_their_own_place_number_and_queries() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "lab.json").read_text())
    panels, [source] = dashboard["panels"], [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels) > 5
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert covered and not covered & cells and all(0 <= x < 24 for x, _ in covered), panel["title"]
        cells |= covered
        assert panel["datasource"]["uid"] == f"${{{source['name']}}}"
        names = [target["refId"] for target in panel["targets"]]
        assert names and len(set(names)) == len(names) and all(target["expr"].strip() for target in panel["targets"])


def test_every_metric_of_the_dashboard_is_served(tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "lab.json").read_text())
    asked = set(re.findall(r"marin_\w+", " ".join(t["expr"] for panel in dashboard["panels"] for t in panel["targets"])))
    families = {family.name for family in registry_of(filled(tmp_path).root).collect()}
    assert asked and {name.removesuffix("_total") for name in asked} == families
