"""What `marin gate`, `marin waive` and `marin quarantine` do; with `--root` Dagster is not imported."""

import datetime
import getpass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.locate import locate
from lineage.build.waiver_stage import waive
from lineage.config import from_jsonable
from lineage.stage import RequiredAncestors
from lineage.trust.gate import inspect, utc_today
from lineage.trust.verdicts import quarantine
from lineage.trust.waivers import Waiver, recorded_waivers
from marin_assets.cli.show_lineage import stores_of


def print_gate(text: str, root: str | None, needs: RequiredAncestors, console: Console) -> bool:
    """Say what the gate holds against an artifact and its ancestors, and which waivers there are; whether it is fit."""
    artifact = locate(stores_of(root), text)
    findings = inspect(artifact.store, [artifact.ref("artifact")], needs)
    for finding in findings:
        said = escape(f"{finding.artifact}: {finding.detail}\n    {finding.mend}")  # names have brackets, as markup has
        console.print(f"[red]{finding.problem}[/] {said}", soft_wrap=True)
    if not findings:
        console.print(f"{escape(artifact.name)} and all its ancestors are fit to build on")
    table = Table("problem", "artifact", "target", "who", "why", "expires", title="waivers")
    for _, waiver in recorded_waivers(artifact.store):
        expired = datetime.date.fromisoformat(waiver.expires) < utc_today()
        cells = (waiver.problem, waiver.artifact, waiver.target, waiver.who, waiver.why)
        table.add_row(*map(escape, cells), waiver.expires + (" (expired)" if expired else ""))
    if table.row_count:
        console.print(table)
    return not findings


def waiver_of(problem: str, artifact: str, who: str, why: str, expires: str, target: str) -> Waiver:
    """A waiver from plain text. Raises: ValueError naming the field that is not allowed."""
    fields = {"problem": problem, "artifact": artifact, "who": who, "why": why, "expires": expires, "target": target}
    return from_jsonable(Waiver, fields, "waiver")


def record_waiver(root: str | None, waiver: Waiver, console: Console) -> None:
    """Record a waiver in the store under a root, or in both of the lab's: a gate reads those of its own store."""
    for store in stores_of(root):
        artifact = waive(store, waiver)
        console.print(f"{escape(artifact.name)} holds until {waiver.expires} (UTC), at {artifact.uri}", soft_wrap=True)


def set_quarantine(text: str, root: str | None, why: str, *, lift: bool, console: Console) -> None:
    """Take an artifact out of use, or put it back."""
    artifact = locate(stores_of(root), text)
    quarantine(artifact, why, getpass.getuser(), standing=not lift)
    console.print(escape(f"{artifact.name} is {'back in use' if lift else 'quarantined'}: {why}"), soft_wrap=True)
