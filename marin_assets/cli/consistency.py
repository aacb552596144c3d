"""What `marin consistency` and `marin rebuild-event-log` print."""

import dataclasses
import datetime
import json
from typing import Annotated

import dagster as dg
import typer
from rich.console import Console
from rich.markup import escape

from marin_assets import rebuild as log_rebuild
from marin_assets.cli.options import AS_JSON, ROOT, exit_by
from marin_assets.cli.show_lineage import stores_of
from marin_assets.consistency import check_consistency, reasons
from marin_assets.definitions import defs
from resources.dagster_private import keep_engines

SHOWN = 20


def consistency(as_json: Annotated[bool, AS_JSON] = False, root: Annotated[str | None, ROOT] = None) -> None:
    """Compare manifests, lineage tables and Dagster's event log, and name what disagrees."""
    exit_by(print_consistency(root, as_json=as_json, console=Console()))


def rebuild_event_log(
    fill_gaps: Annotated[
        bool, typer.Option("--fill-gaps", help="Report what is missing in a log with events of its own.")
    ] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make Dagster's event log again from manifests alone."""
    exit_by(rebuild(root, fill_gaps=fill_gaps, as_json=as_json, console=Console()))


def print_consistency(root: str | None, *, as_json: bool, console: Console) -> bool:
    """Compare the lab's stores with the instance's event log. Returns whether nothing disagrees."""
    today = datetime.datetime.now(datetime.UTC).date()
    with dg.DagsterInstance.get() as instance:
        keep_engines(instance)
        comparison = check_consistency(stores_of(root), instance, defs.resolve_asset_graph(), today)
    if as_json:
        print(json.dumps(dataclasses.asdict(comparison), indent=1, ensure_ascii=False))
        return not comparison.disagreements
    for one in comparison.disagreements:
        console.print(f"[red]{one.kind}[/] {escape(one.artifact)}", soft_wrap=True)
        for who, what in one.said:
            console.print(f"    {who}: {escape(what)}", soft_wrap=True)
        console.print(f"    {escape(one.mend)}", soft_wrap=True)
    console.print("; ".join(f"{count:,} {name}" for name, count in comparison.counts.items()), soft_wrap=True)
    for one in comparison.corrected[:SHOWN]:
        console.print(f"corrected: {escape(str(one))}", soft_wrap=True)
    if len(comparison.corrected) > SHOWN:
        console.print(f"corrected: {len(comparison.corrected) - SHOWN} more; --json has all", soft_wrap=True)
    for why, times in reasons(comparison.unknown)[:SHOWN]:
        console.print(f"unknown, {times} times: {escape(why)}", soft_wrap=True)
    console.print(f"{len(comparison.disagreements)} disagreements" if comparison.disagreements else "nothing disagrees")
    return not comparison.disagreements


def rebuild(root: str | None, *, fill_gaps: bool, console: Console, as_json: bool = False) -> bool:
    """Report the artifacts of one root, or of both of the lab's stores, to the lab's instance. Returns if all are sound."""
    stores = stores_of(root)
    with dg.DagsterInstance.get() as instance:
        keep_engines(instance)
        done = log_rebuild.rebuild_event_log(stores, instance, defs.resolve_asset_graph(), fill_gaps=fill_gaps)
    if as_json:
        print(
            json.dumps(
                {
                    "reported": len(done.reported),
                    "present": done.present,
                    "older": done.older,
                    "unsound": [str(f) for f in done.unsound],
                }
            )
        )
        return not done.unsound
    summary = f"{len(done.reported)} artifacts reported, {done.verdicts} verdicts; {done.present} were in the log already"
    console.print(f"{', '.join(store.root for store in stores)}: {summary}", soft_wrap=True)
    for name in done.older[:SHOWN]:
        console.print(f"left out, the log shows a newer one: {escape(name)}", soft_wrap=True)
    for finding in done.unsound:
        console.print(f"[red]not reported[/] {escape(str(finding))}", soft_wrap=True)
    return not done.unsound
