"""What `marin exposure` and `marin audit` print of a run on rewards: which rollout of which prompt, at which update."""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evals.audit.page import VERDICTS
from lineage.artifact.store import Artifact
from lineage.match_tiers import ITEM_STATUSES, item_status
from marin_assets.cli.console import print_table
from post_training.audit import EXPOSURES_FILE
from post_training.exposure import item_in_rollouts, marked_legs, rollout_reads

SHOWN = 40


def print_rollout_exposure(
    checkpoint: Artifact, documents: list[str], item: str | None, *, as_json: bool, console: Console
) -> None:
    """Print the updates that read rollouts: given ones (ids of `rollout_texts`), or those that hold an item."""
    legs = marked_legs(checkpoint)
    tiers: dict[str, str] = {}
    if item is not None:
        held = item_in_rollouts(legs, item)
        tiers = dict(held.documents.iter_rows())
        documents = list(tiers)
        if not as_json:
            status = item_status(held.statuses)
            found = f"{len(tiers)} different rollouts hold it or a part of it"
            outcome = found if tiers else f"{status}, {ITEM_STATUSES[status]}"
            console.print(f"rollouts of {len(legs)} runs were scanned for {escape(item)}: {outcome}")
    reads = rollout_reads(legs, documents)
    if as_json:
        print(json.dumps({"checkpoint": checkpoint.spec.address, "tiers": tiers, "reads": reads.to_dicts()}, indent=1))
        return
    rows = reads.with_columns(tier=pl.col("id").replace_strict(tiers, default="", return_dtype=pl.String))
    _print_reads(f"what {checkpoint.name} has read", rows, console)
    for unread in sorted(set(documents) - set(reads["id"])):
        console.print(f"{unread}: no update has read it", soft_wrap=True, highlight=False)


def print_reward_audit(audit: Artifact, report: Mapping[str, Any], console: Console) -> bool:
    """Print the audit of rollouts. Returns whether no update has read a whole item."""
    counts = report["counts"]
    console.print(f"[bold]{escape(audit.name)}[/], made {audit.manifest.created[:19]}", soft_wrap=True)
    console.print(
        f"{VERDICTS[report['verdict']]} Of {counts['items']:,} items, {counts['matched_after']} are in rollouts, "
        f"{counts['seen_in_training']} were read up to step {report['step']:,}.",
        soft_wrap=True,
    )
    console.print(f"runs: {escape('; then '.join(report['legs']))}", soft_wrap=True)
    if report["before"] is not None:
        console.print(f"They start from {escape(report['before'])}, which has an audit of its own.", soft_wrap=True)
    exposed = pl.read_parquet(audit.file(EXPOSURES_FILE))
    named = exposed.with_columns(item=pl.concat_str(["task", "item_id"], separator="/"))
    _print_reads("updates that read an item", named.sort("leg", "step", "row"), console)
    return report["verdict_at_step"] != "contaminated"


def _print_reads(title: str, reads: pl.DataFrame, console: Console) -> None:
    named = ("item",) if "item" in reads.columns else ()
    columns = (*named, "checkpoint", "prompt_id", "iteration", "row", "step", "tier", "verdict", "id")
    table = Table(*columns, title=escape(title))
    for row in reads.head(SHOWN).select(columns).iter_rows():
        table.add_row(*(escape(str(cell)) for cell in row))
    if table.row_count:
        print_table(table, console)
    if len(reads) > SHOWN:
        console.print(f"and {len(reads) - SHOWN:,} more; --json has all of them")
