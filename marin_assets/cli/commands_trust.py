"""Commands about benchmark items in training text, and about what is fit to build on."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by

app = typer.Typer()
command = partial(app.command, rich_help_panel="Contamination, and what may be used")


@command()
def audit(
    checkpoint: Annotated[str, typer.Argument(help=ARTIFACT)],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show the contamination audit of a checkpoint: which items, which documents, at which steps, and what it changed."""
    from marin_assets.cli import audit as audit_cli

    exit_by(audit_cli.print_audit(checkpoint, root, as_json=as_json, console=Console()))


@command()
def holders(
    item: Annotated[str, typer.Argument(help="Benchmark item: task/item_id, or suite/task/item_id.")],
    key: Annotated[
        str, typer.Option(help="Marks to ask: contamination, contamination/POLICY, ferry/contamination.")
    ] = "contamination",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show which documents of all scanned sources hold a benchmark item: source, part, tier and span of each."""
    from marin_assets.cli import holders as holders_cli

    holders_cli.print_holders(item, key, root, as_json=as_json, console=Console())


@command()
def gate(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Say whether an artifact is fit to build on: what is wrong with it or an ancestor, and what mends it."""
    from marin_assets.cli import gate as gate_cli
    from trainer.spec.stage import CHECKPOINT

    assert CHECKPOINT.gate is not None
    exit_by(gate_cli.print_gate(artifact, root, CHECKPOINT.gate, Console()))


@command()
def waive(
    problem: Annotated[str, typer.Argument(help="failed, quarantined, unaudited or incomplete.")],
    artifact: Annotated[str, typer.Option(help="Pattern of names that are not as they should be: 'corpus/default[kjv]'.")],
    who: Annotated[str, typer.Option(help="Who decides.")],
    why: Annotated[str, typer.Option(help="Why it may be used still.")],
    expires: Annotated[str, typer.Option(help="Last day it holds, YYYY-MM-DD (UTC).")],
    target: Annotated[str, typer.Option(help="Pattern of names that may be built on it.")] = "*",
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Let work build on what a check or a person holds back, until a day; what it lets through records it."""
    from marin_assets.cli import gate as gate_cli

    gate_cli.record_waiver(root, gate_cli.waiver_of(problem, artifact, who, why, expires, target), Console())


@command()
def revoke(
    waiver: Annotated[str, typer.Argument(help="Name or address of the waiver: waivers/failed-1a2b3c4d.")],
    why: Annotated[str, typer.Option(help="Why it must not count any more.")],
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """End a waiver before its day; what was made by it stays."""
    from marin_assets.cli import gate as gate_cli

    gate_cli.revoke_waiver(waiver, root, why, Console())


@command()
def verdicts(
    accept: Annotated[str | None, typer.Option(help="Accept the faults of the log, and say why.")] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="Accept a fault that the gate named, too: 5:1a2b3c4d1a2b3c4d.")
    ] = None,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show the verdict log of a root: every verdict, and records that are missing or edited; ends with 1 if there are any."""
    from marin_assets.cli import gate as gate_cli

    exit_by(gate_cli.show_verdicts(root, accept, fault or [], Console()))


@command()
def quarantine(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    why: Annotated[str, typer.Option(help="Why it must not be used, or may be used again.")],
    lift: Annotated[bool, typer.Option("--lift", help="Put it back in use.")] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Take an artifact out of use: training, evaluation and serving refuse it and what was made from it."""
    from marin_assets.cli import gate as gate_cli

    gate_cli.set_quarantine(artifact, root, why, lift=lift, console=Console())
