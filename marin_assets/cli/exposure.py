"""The command `marin exposure`. It reads storage only; with `--root` it does not even import Dagster."""

import json
import re
from typing import Annotated

import polars as pl
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evals.audit.training_matches import document_reads, item_matches
from lineage.artifact.locate import locate
from lineage.match_tiers import CLEAN, ITEM_STATUSES, item_status
from marin_assets.cli.console import print_table
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT
from marin_assets.cli.rollout_exposure import print_rollout_exposure
from marin_assets.cli.show_lineage import stores_of
from post_training.stage import REWARD_CHECKPOINT

LISTED_STEPS = 12
DOCUMENT_ID = re.compile(r"[0-9a-f]{32}")


def exposure(
    checkpoint: Annotated[str, typer.Argument(help=ARTIFACT)],
    document: Annotated[list[str] | None, typer.Option(help="Document id (32 hex digits); give it again for more.")] = None,
    item: Annotated[str | None, typer.Option(help="Benchmark item: task/item_id, or suite/task/item_id.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show at which training steps a checkpoint saw documents, or those that hold a benchmark item; also of rollouts."""
    if (not document) == (item is None):
        raise typer.BadParameter("give --document (once or more) or --item")
    for each in document or []:
        if not DOCUMENT_ID.fullmatch(each):
            raise typer.BadParameter(f"--document is {each!r}; give an id of 32 hex digits, as `./marin holders` prints it")
    print_exposure(checkpoint, root, document or [], item, as_json=as_json, console=Console())


def print_exposure(
    text: str, root: str | None, documents: list[str], item: str | None, *, as_json: bool, console: Console
) -> None:
    """Print the steps at which a checkpoint saw documents, or those that hold an item; JSON has every read."""
    checkpoint = locate(stores_of(root), text)
    if checkpoint.spec.stage == REWARD_CHECKPOINT.name:
        print_rollout_exposure(checkpoint, documents, item, as_json=as_json, console=console)
        return
    tiers: dict[str, str] = {}
    if item is not None:
        matches = item_matches(checkpoint, item)
        tiers = dict(matches.documents.unique("id", keep="first", maintain_order=True).select("id", "tier").iter_rows())
        documents = list(tiers)
        if not as_json:
            _print_item(item, matches.statuses, tiers, console)
    reads = document_reads(checkpoint, documents)
    if as_json:
        print(json.dumps({"checkpoint": checkpoint.spec.address, "tiers": tiers, "reads": reads.to_dicts()}, indent=1))
        return
    if documents:
        _print_reads(checkpoint.name, reads, documents, tiers, console)


def _print_item(item: str, statuses: tuple[str, ...], tiers: dict[str, str], console: Console) -> None:
    scans = "1 source was" if len(statuses) == 1 else f"{len(statuses)} sources were"
    scanned = f"{scans} scanned for {escape(item)}"
    if tiers:
        holds = "1 document holds" if len(tiers) == 1 else f"{len(tiers)} documents hold"
        console.print(f"{scanned}: {holds} it or a part of it", soft_wrap=True)
    else:
        status = item_status(statuses)
        color = "green" if status == CLEAN else "yellow"
        console.print(f"{scanned}: [{color}]{status}[/], {ITEM_STATUSES[status]}", soft_wrap=True)


def _print_reads(name: str, reads: pl.DataFrame, documents: list[str], tiers: dict[str, str], console: Console) -> None:
    table = Table("run", "component", "document", "tier", "reads", "steps", title=escape(f"what {name} has read"))
    grouped = reads.group_by("leg", "checkpoint", "component", "id", maintain_order=True)
    for (_, checkpoint, component, document), rows in grouped:
        steps = rows["step"].unique(maintain_order=True).to_list()
        shown = ", ".join(map(str, steps[:LISTED_STEPS])) + (f", ... to {steps[-1]}" if len(steps) > LISTED_STEPS else "")
        table.add_row(
            escape(str(checkpoint)), str(component), str(document), tiers.get(str(document), ""), str(rows.height), shown
        )
    if table.row_count:
        print_table(table, console)
    unread = sorted(set(documents) - set(reads["id"]))
    for document in unread:
        tier = f" ({tiers[document]})" if document in tiers else ""
        console.print(f"{document}{tier}: no step has read it", soft_wrap=True, highlight=False)
