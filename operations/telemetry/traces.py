"""Attempts as OpenTelemetry spans, sent as OTLP over HTTP once each attempt has ended.

    .operations/telemetry/sent.json      attempts that were sent, of the last WINDOW_DAYS days

Spans are made from the summaries of attempts, so a killed step has a span too. If the collector does not answer, no span is
lost: it is sent the next time. If this process dies after the answer, an attempt may be sent twice, with equal ids.
Format: OTLP 1.x, protobuf (https://opentelemetry.io/docs/specs/otlp/).
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched
from urllib.parse import unquote

import polars as pl
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from lineage.artifact.store import Store
from lineage.strangers import json_object, naming

FILE = ".operations/telemetry/sent.json"
WINDOW_DAYS = 7
"""Attempts that ended earlier are not sent: collectors refuse old spans."""
BATCH = 500
TIMEOUT_SECONDS = 30.0
_FORMAT = "sent_spans/1"
_SERVICE = "marin"
_ATTRIBUTES = ("name", "address", "stage", "state", "place", "hardware", "host", "run_id", "store")
_NUMBERS = ("number", "seconds", "cpu_seconds", "peak_rss_bytes")


class NotTakenError(RuntimeError):
    """The collector did not accept spans. The message has no address and no header, because they may contain secrets."""


@dataclass(frozen=True)
class Endpoint:
    """Where spans are sent. `headers` often contain a key, so they are never shown."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def endpoint_from(environment: Mapping[str, str]) -> Endpoint | None:
    """Return the endpoint that OpenTelemetry's own variables name, or None.

    Raises: ValueError for an address that is not http(s), or a header without `=`.
    """
    url = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    if not url and (base := environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")):
        url = f"{base.rstrip('/')}/v1/traces"
    if not url:
        return None
    if not url.startswith(("http://", "https://")):
        raise ValueError("OTEL_EXPORTER_OTLP_ENDPOINT must be an http:// or https:// address; only OTLP over HTTP is sent")
    given = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
    if any(not equals or not name.strip() for name, equals, _ in pairs):
        raise ValueError("OTEL_EXPORTER_OTLP_HEADERS has an entry without `=`; the form is name=value,name=value")
    return Endpoint(url, {name.strip(): unquote(value.strip()) for name, _, value in pairs})


def send_new(store: Store, attempts: pl.DataFrame, endpoint: Endpoint, now: datetime.datetime) -> tuple[int, int]:
    """Send the attempts of the ledger that have ended and were not sent. Returns how many, and how many were rejected.

    A rejected span is not sent again, as OTLP requires. Raises: NotTakenError. Spans that were accepted before it are not sent
    again.
    """
    start = (now - datetime.timedelta(days=WINDOW_DAYS)).astimezone(datetime.UTC).isoformat(timespec="seconds")
    ended = attempts.filter((pl.col("state") != "running") & (pl.col("recorded") == "summary") & (pl.col("ended") >= start))
    rows = {_key(row): row for row in ended.sort("ended").iter_rows(named=True)}
    sent = _read_sent(store) & rows.keys()  # older ones are forgotten with the window
    todo, rejected = [(key, row) for key, row in rows.items() if key not in sent], 0
    for batch in batched(todo, BATCH):
        rejected += post(endpoint, [span_of(row) for _, row in batch])
        sent |= {key for key, _ in batch}
        store.storage.replace(FILE, json.dumps({"format": _FORMAT, "sent": sorted(sent)}).encode())
    return len(todo), rejected


def span_of(row: Mapping) -> Span:
    """Return the span of a row of the ledger's `attempts`. All attempts of one Dagster run share a trace."""
    failed = row["state"] in ("failed", "interrupted")
    texts = [KeyValue(key=f"marin.{name}", value=AnyValue(string_value=row[name])) for name in _ATTRIBUTES if row[name]]
    numbers = {name: row[name] for name in _NUMBERS if row[name] is not None}
    return Span(
        trace_id=_id(row["run_id"] or row["process"], 16),
        span_id=_id(_key(row), 8),
        name=row["stage"],
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=_nanoseconds(row["started"]),
        end_time_unix_nano=_nanoseconds(row["ended"]),
        attributes=[*texts, *(KeyValue(key=f"marin.{k}", value=AnyValue(double_value=float(v))) for k, v in numbers.items())],
        status=Status(code=Status.STATUS_CODE_ERROR if failed else Status.STATUS_CODE_OK, message=row["why"][:1000]),
    )


def post(endpoint: Endpoint, spans: Sequence[Span]) -> int:
    """Send spans in one request; returns how many the collector rejected. Raises: NotTakenError if it accepted none of them."""
    scope = ScopeSpans(scope=InstrumentationScope(name="marin.attempts"), spans=spans)
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=_SERVICE))])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])
    headers = {**endpoint.headers, "Content-Type": "application/x-protobuf"}
    try:
        answer = requests.post(endpoint.url, request.SerializeToString(), headers=headers, timeout=TIMEOUT_SECONDS)
    except requests.RequestException as error:
        raise NotTakenError(f"the collector of spans does not answer: {type(error).__name__}") from None
    if answer.status_code == 400:  # the spans are bad: the collector would always refuse them
        return len(spans)
    if answer.status_code > 400:
        raise NotTakenError(f"the collector of spans answers {answer.status_code} {answer.reason}")
    if "protobuf" not in answer.headers.get("Content-Type", ""):
        return 0
    return ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans


def _read_sent(store: Store) -> set[str]:
    text = store.storage.read_text(FILE)
    if text is None:
        return set()
    with naming(store.storage.uri(FILE)):
        record = json_object(text, FILE)
        if record.get("format") != _FORMAT or not _are_texts(record.get("sent")):
            raise ValueError(f"{FILE} is not a list of sent spans of format {_FORMAT}; delete it: a week is sent again")
        return set(record["sent"])


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _key(row: Mapping) -> str:
    return f"{row['launch']}/{row['number']}/{row['place']}"


def _id(text: str, size: int) -> bytes:
    """Return an id that is never all zeros, which OTLP forbids."""
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def _nanoseconds(time: str) -> int:
    return int(datetime.datetime.fromisoformat(time).timestamp() * 1e6) * 1000
