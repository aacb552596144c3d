"""What `marin gate`, `marin waive` and `marin quarantine` do; with `--root` Dagster is not imported."""

import datetime
import getpass
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.locate import locate
from lineage.build.waiver_stage import waive
from lineage.config import from_jsonable
from lineage.signing.judge import judge_of
from lineage.stage import RequiredAncestors
from lineage.trust.gate import inspect, utc_today
from lineage.trust.verdict_log import read_log
from lineage.trust.verdicts import accept_losses, quarantine, revoke
from lineage.trust.waivers import WAIVERS_KEY, Waiver, recorded_waivers
from marin_assets.cli.show_lineage import stores_of

FAULT_MEND = (
    "put the file back (an earlier version of the object, a backup), or accept the loss with `./marin verdicts --accept WHY`: "
    "then say again what was known of these artifacts (`./marin quarantine`)"
)


def print_gate(text: str, root: str | None, needs: RequiredAncestors, console: Console) -> bool:
    """Say what the gate holds against an artifact and its ancestors, and which waivers there are; whether it is fit."""
    artifact = locate(stores_of(root), text)
    findings = inspect(artifact.store, [artifact.ref("artifact")], needs)
    for finding in findings:
        said = escape(f"{finding.artifact}: {finding.detail}\n    {finding.mend}")  # names have brackets, as markup has
        console.print(f"[red]{finding.problem}[/] {said}", soft_wrap=True)
    judge = judge_of(artifact.store.storage)
    console.print(escape(f"signatures: {judge.policy}"), soft_wrap=True)
    if not findings:
        console.print(f"{escape(artifact.name)} and all its ancestors are fit to build on")
    table = Table("problem", "artifact", "target", "who", "why", "expires", title="waivers")
    waivers = recorded_waivers(artifact.store, read_log(artifact.store, judge.verdict(artifact.store.storage)), judge)
    for _, waiver in waivers.sound:
        expired = datetime.date.fromisoformat(waiver.expires) < utc_today()
        cells = (waiver.problem, waiver.artifact, waiver.target, waiver.who, waiver.why)
        table.add_row(*map(escape, cells), waiver.expires + (" (expired)" if expired else ""))
    if table.row_count:
        console.print(table)
    for address, why in waivers.refused:
        console.print(f"[red]a waiver does not count[/] {escape(f'{address}: {why}')}", soft_wrap=True)
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


def revoke_waiver(text: str, root: str | None, why: str, console: Console) -> None:
    """End a waiver before its day."""
    artifact = locate(stores_of(root), text)
    if artifact.spec.key[0] != WAIVERS_KEY:
        raise ValueError(f"{artifact.name} is no waiver; `./marin gate ARTIFACT` lists them")
    revoke(artifact, why, getpass.getuser())
    console.print(escape(f"{artifact.name} does not count any more: {why}"), soft_wrap=True)


def show_verdicts(root: str | None, accept: str | None, faults: Sequence[str], console: Console) -> bool:
    """Print the verdict log of each store and its faults, or accept them and the named ones; whether none is left."""
    is_whole = True
    for store in stores_of(root):
        log = read_log(store)
        known = [*faults, *(fault.id for fault in log.faults)]
        if accept is not None and known:
            accept_losses(store, known, accept, getpass.getuser())
            log = read_log(store)
        table = Table("number", "verdict", "standing", "artifact", "who", "when", "why", title=f"verdicts of {store.root}")
        for record in log.records:
            name = "/".join(record.subject.key) + (f"[{record.subject.partition}]" if record.subject.partition else "")
            about, said = escape(name or "the log"), record.verdict
            table.add_row(
                f"{record.number}", said.kind, f"{said.standing}", about, *map(escape, (said.who, said.when, said.why))
            )
        console.print(table)
        for fault in log.faults:
            console.print(f"[red]fault {fault.id}[/] {escape(fault.detail)}\n    {FAULT_MEND}", soft_wrap=True)
        is_whole &= not log.faults
    return is_whole
