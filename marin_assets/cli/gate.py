"""The commands `marin gate`, `waive`, `revoke`, `verdicts` and `quarantine`; none of them imports Dagster."""

import dataclasses
import datetime
import getpass
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.locate import locate
from lineage.artifact.store import Artifact
from lineage.build import waiver_stage
from lineage.config import from_jsonable
from lineage.signing.judge import judge_of
from lineage.stage import RequiredAncestors
from lineage.trust import verdicts as log_of_verdicts
from lineage.trust.gate import Finding, inspect, utc_today
from lineage.trust.verdict_log import Subject, VerdictLog, read_log
from lineage.trust.waivers import WAIVERS_KEY, Waiver, Waivers, recorded_waivers
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by
from marin_assets.cli.show_lineage import stores_of

FAULT_MEND = (
    "put the file back (an earlier version of the object, a backup), or accept the loss with `./marin verdicts --accept WHY`: "
    "then say again what was known of these artifacts (`./marin quarantine`)"
)


@dataclasses.dataclass(frozen=True)
class Judged:
    """A finding of the gate, and the waiver that lets it through, if one does."""

    finding: Finding
    waiver: Waiver | None


def gate(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    target: Annotated[str, typer.Option(help="What is to be built on it, for waivers that hold for some names only.")] = "",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Say whether an artifact is fit to build on: what is wrong with it or an ancestor, what mends it, what is waived.

    Ends with 0 if nothing is wrong or a waiver covers all that is, as a launch does.
    """
    from trainer.spec.stage import CHECKPOINT

    assert CHECKPOINT.gate is not None
    exit_by(print_gate(artifact, root, CHECKPOINT.gate, Console(), target=target, as_json=as_json))


def print_gate(
    text: str, root: str | None, needs: RequiredAncestors, console: Console, *, target: str = "", as_json: bool = False
) -> bool:
    """Print the gate's findings on an artifact and its ancestors, and the waivers. Returns whether it is fit."""
    artifact = locate(stores_of(root), text)
    signatures = judge_of(artifact.store.storage)
    log = read_log(artifact.store, signatures.verdict(artifact.store.storage))
    waivers = recorded_waivers(artifact.store, log, signatures)
    judged = judge(artifact, needs, waivers, target)
    is_fit = all(each.waiver is not None for each in judged)
    if as_json:
        print_json(
            {
                "artifact": artifact.name,
                "is_fit": is_fit,
                "signatures": str(signatures.policy),
                "findings": [_judged_record(each) for each in judged],
            }
        )
        return is_fit
    console.print(escape(f"signatures: {signatures.policy}"), soft_wrap=True)
    for each in judged:
        finding = each.finding
        line = escape(f"{finding.artifact}: {finding.detail}")  # names have brackets, as markup has
        console.print(f"[red]{finding.problem}[/] {line}", soft_wrap=True)
        waiver = each.waiver
        mend = finding.mend if waiver is None else f"waived by {waiver.who} until {waiver.expires}: {waiver.why}"
        console.print(f"    {escape(mend)}", soft_wrap=True)
    if is_fit:
        how = " (by waivers)" if judged else ""
        console.print(f"{escape(artifact.name)} and all its ancestors are fit to build on{how}", soft_wrap=True)
    _print_waivers(waivers, console)
    return is_fit


def judge(artifact: Artifact, needs: RequiredAncestors, waivers: Waivers, target: str) -> list[Judged]:
    """Return every finding with the first waiver that covers it for a target. Only `*` covers the target ""."""
    today = utc_today()
    findings = inspect(artifact.store, [artifact.ref("artifact")], needs)
    return [Judged(finding, _covering(waivers, finding, target, today)) for finding in findings]


def _covering(waivers: Waivers, finding: Finding, target: str, today: datetime.date) -> Waiver | None:
    covering = (waiver for _, waiver in waivers.sound if waiver.covers(finding.problem, finding.artifact, target, today))
    return next(covering, None)


def _judged_record(judged: Judged) -> dict[str, object]:
    finding, waiver = judged.finding, judged.waiver
    entry: dict[str, object] = {
        "problem": finding.problem,
        "artifact": finding.artifact,
        "detail": finding.detail,
        "mend": finding.mend,
    }
    return entry | {"waiver": None if waiver is None else dataclasses.asdict(waiver)}


def _print_waivers(waivers: Waivers, console: Console) -> None:
    table = Table("problem", "artifact", "target", "who", "why", "expires", title="waivers")
    for _, waiver in waivers.sound:
        expired = datetime.date.fromisoformat(waiver.expires) < utc_today()
        cells = (waiver.problem, waiver.artifact, waiver.target, waiver.who, waiver.why)
        table.add_row(*map(escape, cells), waiver.expires + (" (expired)" if expired else ""))
    if table.row_count:
        print_table(table, console)
    for address, why in waivers.refused:
        console.print(f"[red]a waiver does not count[/] {escape(f'{address}: {why}')}", soft_wrap=True)


def waive(
    problem: Annotated[str, typer.Argument(help="failed, quarantined, unaudited or incomplete.")],
    artifact: Annotated[str, typer.Option(help="Pattern of names that are not as they should be: 'corpus/default[kjv]'.")],
    who: Annotated[str, typer.Option(help="Who decides.")],
    why: Annotated[str, typer.Option(help="Why it may be used still.")],
    expires: Annotated[str, typer.Option(help="Last day it holds, YYYY-MM-DD (UTC).")],
    target: Annotated[str, typer.Option(help="Pattern of names that may be built on it.")] = "*",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Let work build on what a check or a person holds back, until a day; what it lets through records it."""
    fields = {"problem": problem, "artifact": artifact, "who": who, "why": why, "expires": expires, "target": target}
    waiver = from_jsonable(Waiver, fields, "waiver")
    recorded = [waiver_stage.waive(store, waiver) for store in stores_of(root)]  # a gate reads the waivers of its own store
    if as_json:
        print_json({"name": recorded[0].name, "expires": waiver.expires, "at": [each.uri for each in recorded]})
    else:
        roots = " and ".join(each.store.root for each in recorded)
        _say(f"{recorded[0].name} holds until {waiver.expires} (UTC) in {roots}")


def quarantine(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    why: Annotated[str, typer.Option(help="Why it must not be used, or may be used again.")],
    lift: Annotated[bool, typer.Option("--lift", help="Put it back in use.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Take an artifact out of use, or put it back: training, evaluation and serving refuse it and what was made from it."""
    target = locate(stores_of(root), artifact)
    log_of_verdicts.quarantine(target, why, getpass.getuser(), standing=not lift)
    if as_json:
        print_json({"name": target.name, "address": target.spec.address, "is_quarantined": not lift, "why": why})
    else:
        _say(f"{target.name} is {'back in use' if lift else 'quarantined'}: {why}")


def revoke(
    waiver: Annotated[str, typer.Argument(help="Name or address of the waiver: waivers/failed-1a2b3c4d.")],
    why: Annotated[str, typer.Option(help="Why it must not count any more.")],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """End a waiver before its day; what was made by it stays."""
    target = locate(stores_of(root), waiver)
    if target.spec.key[0] != WAIVERS_KEY:
        raise ValueError(f"{target.name} is no waiver; `./marin gate ARTIFACT` lists them")
    log_of_verdicts.revoke(target, why, getpass.getuser())
    if as_json:
        print_json({"name": target.name, "is_revoked": True, "why": why})
    else:
        _say(f"{target.name} does not count any more: {why}")


def verdicts(
    accept: Annotated[str | None, typer.Option(help="Accept the faults of the log, and say why.")] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="Accept a fault that the gate named, too: 5:1a2b3c4d1a2b3c4d.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show the verdict log of a root: every verdict, and records that are missing or edited; ends with 1 if there are any."""
    logs: dict[str, VerdictLog] = {}
    for store in stores_of(root):
        log = read_log(store)
        known = [*(fault or []), *(each.id for each in log.faults)]
        if accept is not None and known:
            log_of_verdicts.accept_losses(store, known, accept, getpass.getuser())
            log = read_log(store)
        logs[store.root] = log
    if as_json:
        print_json({where: _log_record(log) for where, log in logs.items()})
    else:
        for where, log in logs.items():
            _print_log(where, log, Console())
    exit_by(not any(log.faults for log in logs.values()))


def _log_record(log: VerdictLog) -> dict[str, object]:
    records = [{"number": r.number, "artifact": _about(r.subject), **dataclasses.asdict(r.verdict)} for r in log.records]
    return {"verdicts": records, "faults": [{"id": fault.id, "detail": fault.detail} for fault in log.faults]}


def _about(subject: Subject) -> str:
    name = "/".join(subject.key) + (f"[{subject.partition}]" if subject.partition else "")
    return name or "the log"


def _print_log(root: str, log: VerdictLog, console: Console) -> None:
    table = Table("number", "verdict", "standing", "artifact", "who", "when", "why", title=f"verdicts of {escape(root)}")
    for record in log.records:
        verdict = record.verdict
        cells = (verdict.kind, str(verdict.standing), _about(record.subject), verdict.who, verdict.when, verdict.why)
        table.add_row(str(record.number), *map(escape, cells))
    if table.row_count:
        print_table(table, console)
    else:
        console.print(f"{root}: no verdict was recorded", soft_wrap=True, markup=False)
    for fault in log.faults:
        console.print(f"[red]fault {fault.id}[/] {escape(fault.detail)}\n    {FAULT_MEND}", soft_wrap=True)


def _say(text: str) -> None:
    Console().print(text, soft_wrap=True, markup=False, highlight=False)
