"""The command `marin metrics`: the ledger for Prometheus."""

import datetime
import threading
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from rich.console import Console

from marin_assets.cli.options import ROOT
from marin_assets.cli.show_lineage import stores_of
from marin_assets.scouts import SCOUTS
from operations.ledger.ledger import open_ledger
from operations.telemetry.gauges import Facts, LabCollector
from recipes.prices import price_table

PORT = 9464
"""OpenTelemetry's default port of a Prometheus exporter."""


def metrics(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; everybody who can reach an address beyond loopback may read it.")
    ] = ("127.0.0.1"),
    to: Annotated[Path | None, typer.Option(help="Write the metrics to this file once, for a textfile collector.")] = None,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Serve the lab's metrics to Prometheus (deploy/grafana/lab.json shows them), or write them to a file."""
    registry = registry_of(root)
    if to is not None:
        partial = to.with_name(f".{to.name}.partial")
        partial.write_bytes(generate_latest(registry))
        partial.rename(to)
        return
    server, thread = start_http_server(port, host, registry)
    Console().print(f"metrics are on http://{host}:{server.server_port}/metrics; Ctrl-C stops", markup=False, soft_wrap=True)
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()


def registry_of(root: str | None) -> CollectorRegistry:
    """Return a registry of the lab's metrics. The first collection finds what is wrong with the root before anyone scrapes."""
    stores, updating = stores_of(root), threading.Lock()

    def facts() -> Facts:
        with updating:  # two scrapes at once would both write the saved tables
            return open_ledger(stores, price_table(), datetime.datetime.now(datetime.UTC).date()), stores[0]

    registry = CollectorRegistry()
    registry.register(LabCollector(facts, list(SCOUTS)))
    return registry
