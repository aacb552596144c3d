"""Check the Grafana dashboard: every query is PromQL, and Grafana's own models know every field.

    .venv/bin/python -m pip install --target /tmp/grafana promql-parser==0.12.0 "grafana-foundation-sdk==1769699998!10.1.0"
    PYTHONPATH=.:/tmp/grafana .venv/bin/python tools/check_dashboard.py

Both packages are no dependencies of the lab. That each metric of the dashboard is served, and
that its panels do not overlap, are tests (tests/operations/test_telemetry.py).
"""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "lab.json"


def main() -> None:
    promql, models, coding = (
        importlib.import_module(name)
        for name in ("promql_parser", "grafana_foundation_sdk.models.dashboard", "grafana_foundation_sdk.cog.encoder")
    )
    record = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in record["panels"] for target in panel["targets"]]
    for query in queries:
        promql.parse(re.sub(r"\$__\w+", "5m", query))
    known = json.loads(coding.JSONEncoder().encode(models.Dashboard.from_json(record)))
    unknown = list(lost(record, known))
    print(f"{len(queries)} queries are PromQL; {len(record['panels'])} panels; fields that Grafana does not know: {unknown}")
    raise SystemExit(bool(unknown))


def lost(record: Any, known: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each field of a record that Grafana's models have dropped."""
    if isinstance(record, dict):
        for name, value in record.items():
            if not isinstance(known, dict) or name not in known:
                yield f"{path}.{name}"
            else:
                yield from lost(value, known[name], f"{path}.{name}")
    elif isinstance(record, list):
        for number, (value, other) in enumerate(zip(record, known, strict=True)):
            yield from lost(value, other, f"{path}[{number}]")


if __name__ == "__main__":
    main()
