"""The command `marin status`: the latest campaigns, what the stores hold, and what it cost."""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Annotated, Any

import dagster as dg
import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.store import Store
from lineage.graph.by_log import present_tables
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.listing import age, duration, size
from marin_assets.cli.options import AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of
from marin_assets.outcomes import CAMPAIGN_TAG, Outcome, outcomes
from operations.probes.outcomes import health, since

SHOWN_OUTCOMES = 5
FERRY = "ferry"


def status(as_json: Annotated[bool, AS_JSON] = False, root: Annotated[str | None, ROOT] = None) -> None:
    """Show the latest ferries and canaries, and for each kind of artifact how many there are, their size, age and cost."""
    rows = holdings(stores_of(root))
    with dg.DagsterInstance.get() as instance:
        history = {campaign: outcomes(instance, campaign) for campaign in campaigns_of(instance)}
    services = health_of_services(stores_of(root)[0])
    if as_json:
        listed = {name: [dataclasses.asdict(o) for o in attempts] for name, attempts in history.items()}
        print_json({"campaigns": listed, "services": services, "holds": rows})
        return
    console = Console()
    for campaign, attempts in history.items():
        finished = [o for o in attempts if o.status != "running"]
        passed = sum(o.status == "passed" for o in finished)
        console.print(f"[bold]{campaign}[/]: {passed} of {len(finished)} finished runs passed", highlight=False)
        if attempts:
            print_table(_history_table(attempts[:SHOWN_OUTCOMES]), console)
    if services:
        print_table(_services_table(services), console)
    if not rows:
        console.print("nothing was made yet; `./marin ferry` makes a whole day")
        return
    print_table(_holdings_table(rows), console)
    total = sum(row["num_bytes"] for row in rows), sum(row["cpu_seconds"] for row in rows)
    console.print(f"{sum(row['artifacts'] for row in rows):,} artifacts, {size(total[0])}, {total[1] / 3600:.2f} CPU hours")


def campaigns_of(instance: dg.DagsterInstance) -> list[str]:
    """Return the ferry, and every campaign that has run. Reading what is declared would take longer than all the rest."""
    ran = {value for _, values in instance.get_run_tags([CAMPAIGN_TAG]) for value in values}
    return [FERRY, *sorted(ran - {FERRY})]


def health_of_services(store: Store) -> list[dict[str, Any]]:
    """Return the health of each probed service over the last 24 hours; none if no probe was sent."""
    now = datetime.datetime.now(datetime.UTC)
    healths = health(since(store, now - datetime.timedelta(days=1), now))
    return [{**dataclasses.asdict(each), "success_ratio": each.success_ratio} for each in healths]


def holdings(stores: Sequence[Store]) -> list[dict[str, Any]]:
    """Return, per store and first two parts of the key: how many artifacts, bytes, seconds, CPU seconds, the newest."""
    rows = []
    for store in stores:
        parts = pl.col("name").str.replace(r"\[.*$", "").str.split("/").list.head(2).list.join("/").alias("what")
        grouped = (
            present_tables(store)
            .artifacts.group_by(parts)
            .agg(
                pl.len().alias("artifacts"),
                pl.col("num_bytes").sum(),
                pl.col("wall_seconds").sum(),
                pl.col("cpu_seconds").sum(),
                pl.col("created").max().alias("newest"),
            )
        )
        rows += [{**row, "root": store.root} for row in grouped.sort("what").iter_rows(named=True)]
    return rows


def _holdings_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="what the stores hold", title_style="bold", header_style="bold", pad_edge=False)
    table.add_column("key", no_wrap=True)
    for name in ("artifacts", "size", "took", "newest"):
        table.add_column(name, justify="right", no_wrap=True)
    now = datetime.datetime.now(datetime.UTC)
    for row in rows:
        newest = f"{age(row['newest'], now)} ago"
        table.add_row(row["what"], f"{row['artifacts']:,}", size(row["num_bytes"]), duration(row["wall_seconds"]), newest)
    return table


def _services_table(services: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="probes of the last 24 hours", title_style="bold", header_style="bold", pad_edge=False)
    table.add_column("service", no_wrap=True)
    for name in ("answered", "median", "p95"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("last error", overflow="ellipsis", no_wrap=True)
    for row in services:
        seconds = ("" if row[name] is None else f"{row[name]:.2f} s" for name in ("median_seconds", "p95_seconds"))
        table.add_row(row["probe"], f"{row['ok']} of {row['times']}", *seconds, escape(row["last_error"]))
    return table


def _history_table(history: Sequence[Outcome]) -> Table:
    table = Table(header_style="bold", pad_edge=False)
    for name in ("day", "ended", "status", "took", "run"):
        table.add_column(name, no_wrap=True)
    table.add_column("cause")
    for o in history:
        table.add_row(o.day, o.ended[:16].replace("T", " "), o.status, duration(o.seconds), o.run_id[:8], o.cause)
    return table
