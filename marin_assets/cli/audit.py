"""The command `marin audit`: the page of a checkpoint's audit, as text. It reads storage only."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evals.audit.page import Block, Picture, page_sections
from evals.scoring.report_page import Table as PageTable
from lineage.artifact.locate import CHECKPOINT, locate
from lineage.artifact.newest import newest
from lineage.artifact.store import Artifact
from lineage.graph.below import children_of
from marin_assets.cli.console import print_table
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by
from marin_assets.cli.rollout_exposure import print_reward_audit
from marin_assets.cli.show_lineage import stores_of
from post_training.audit import REWARD_AUDIT

AUDIT = "contamination_audit"
"""Last part of the key of every audit."""
AUDIT_STAGES = ("evals.audit", REWARD_AUDIT.name)
LEFT_TO_THE_PAGE = ("Digests",)


def audit(
    checkpoint: Annotated[str, typer.Argument(help=ARTIFACT)],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show the contamination audit of a checkpoint: which items, which documents, at which steps, and what it changed.

    Ends with status 1 if a step up to the checkpoint read a whole benchmark item; parts and fragments alone end with 0.
    """
    exit_by(print_audit(checkpoint, root, as_json=as_json, console=Console()))


def print_audit(text: str, root: str | None, *, as_json: bool, console: Console) -> bool:
    """Print the newest audit of a checkpoint. Returns whether no step up to it has read a benchmark item.

    Raises: ValueError for a checkpoint without an audit; the message has the command that makes one.
    """
    artifact = audit_of(locate(stores_of(root), text))
    report = json.loads(artifact.files("audit.json")[0].read_text())
    if artifact.spec.stage == REWARD_AUDIT.name and not as_json:
        return print_reward_audit(artifact, report, console)
    if as_json:
        print(json.dumps({"audit": artifact.spec.address, **report}, indent=1, ensure_ascii=False))
        return report["verdict_at_step"] != "contaminated"
    page = artifact.files("audit.html")[0]
    console.print(f"[bold]{escape(artifact.name)}[/], made {artifact.manifest.created[:19]}", soft_wrap=True)
    for heading, blocks in page_sections(page.parent, report):
        if heading not in LEFT_TO_THE_PAGE:
            console.print(f"\n[bold]{heading}[/]")
            _print_blocks(blocks, console)
    console.print(f"\npage  {page}", soft_wrap=True, markup=False)
    return report["verdict_at_step"] != "contaminated"


def audit_of(checkpoint: Artifact) -> Artifact:
    """Return the newest audit of a checkpoint; of a report the audit that it shows; of an audit itself.

    Raises: ValueError if there is none.
    """
    if checkpoint.spec.stage in AUDIT_STAGES:
        return checkpoint
    shown = [ref for ref in checkpoint.spec.inputs if ref.key[-1] == AUDIT]
    if shown:
        return checkpoint.input(shown[0].name)
    audits = [child for child in children_of(checkpoint) if child.spec.stage in AUDIT_STAGES]
    if not audits and checkpoint.spec.key[-1] != CHECKPOINT:
        raise ValueError(f"{checkpoint.name} is no checkpoint and shows no audit; `./marin list runs/` shows checkpoints")
    if not audits:
        key = "/".join((*checkpoint.spec.key[:-1], AUDIT))
        raise ValueError(
            f"{checkpoint.name} was not audited; `./marin materialize {key} --partition {checkpoint.spec.partition}` does"
        )
    return newest(audits, f"audit of {checkpoint.name}")


def _print_blocks(blocks: Sequence[Block], console: Console) -> None:
    for block in blocks:
        if isinstance(block, PageTable):
            print_table(_table(block), console)
        elif isinstance(block, Picture):
            console.print(f"{block.caption}: {_relative(block.path)}", soft_wrap=True, markup=False)
        else:
            console.print(block, soft_wrap=True, markup=False, highlight=False)


def _table(block: PageTable) -> Table:
    table = Table(header_style="bold", pad_edge=False)
    for column in block.columns:
        table.add_column(column, justify="right" if column in block.numbers else "left")
    for row in block.rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _relative(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
