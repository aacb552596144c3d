"""The command `marin holders`: the documents that hold a benchmark item. It reads storage only."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from datakit.contamination.marks import CONTAMINATION
from datakit.contamination.tables import HOLDERS
from lineage.artifact.store import Artifact, Store
from marin_assets.cli.console import print_table
from marin_assets.cli.options import AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of

SHOWN_ROWS = 50
MARKS = (("contamination",), ("ferry", "contamination"))
_COLUMNS = ("marks", "source", "part", "id", "channel", "tier", "score", "start_byte", "end_byte")


def holders(
    item: Annotated[str, typer.Argument(help="Benchmark item: task/item_id, or suite/task/item_id.")],
    key: Annotated[
        str, typer.Option(help="Marks to ask: contamination, contamination/POLICY, ferry/contamination.")
    ] = "contamination",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show which documents of all scanned sources hold a benchmark item: source, part, tier and span of each."""
    print_holders(item, key, root, as_json=as_json, console=Console())


def print_holders(item: str, key: str, root: str | None, *, as_json: bool, console: Console) -> None:
    """Print every document that holds an item, by the newest marks of each source under a key; JSON has all of them."""
    scans = newest_scans(stores_of(root), key)
    rows = item_holders(scans, item)
    if as_json:
        print(json.dumps({"item": item, "scans": [scan.spec.address for scan in scans], "documents": rows}, indent=1))
        return
    documents = len({(row["source"], row["id"]) for row in rows})
    found = "1 document holds" if documents == 1 else f"{documents:,} documents hold"
    console.print(f"{found} {item} or a part of it; scans: {len(scans)}", soft_wrap=True, markup=False)
    if rows:
        table = Table(*_COLUMNS, header_style="bold", pad_edge=False)
        for row in rows[:SHOWN_ROWS]:
            table.add_row(*(escape(str(row[name])) for name in _COLUMNS))
        print_table(table, console)
    if len(rows) > SHOWN_ROWS:
        console.print(f"and {len(rows) - SHOWN_ROWS:,} more: --json has all")


def newest_scans(stores: Sequence[Store], key: str) -> list[Artifact]:
    """Return the newest marks of every name under a key. Raises: ValueError without marks, or for marks without the table."""
    newest: dict[str, Artifact] = {}
    scans = (artifact for store in stores for artifact in store.artifacts(*key.split("/")))
    for scan in sorted(scans, key=lambda artifact: (artifact.manifest.created, artifact.spec.version)):
        if scan.spec.stage == CONTAMINATION.name:
            newest[scan.name] = scan
    if not newest:
        keys = scanned_keys(stores)
        known = f"--key takes {', '.join(keys)}" if keys else "keys look like contamination/benchmarks"
        raise ValueError(f"no documents were scanned for benchmark items under {key!r}; {known}")
    for scan in newest.values():
        if not scan.files(f"{HOLDERS}.parquet"):
            raise ValueError(
                f"{scan.name} was made by version {scan.spec.stage_version} of {scan.spec.stage}, which wrote no "
                f"{HOLDERS}.parquet; materialize it again"
            )
    return [newest[name] for name in sorted(newest)]


def scanned_keys(stores: Sequence[Store]) -> list[str]:
    """Return the keys of the lab's and the ferries' marks that the stores hold."""
    scans = (scan for store in stores for place in MARKS for scan in store.artifacts(*place))
    return sorted({"/".join(scan.spec.key) for scan in scans if scan.spec.stage == CONTAMINATION.name})


def item_holders(scans: Sequence[Artifact], item: str) -> list[dict[str, Any]]:
    """Return the rows of an item, `task/item_id` or `suite/task/item_id`. Raises: ValueError if no scan looked for it."""
    is_item = (pl.concat_str(["suite", "task", "item_id"], separator="/") == item) | (
        pl.concat_str(["task", "item_id"], separator="/") == item
    )
    is_bound, rows = False, []
    for scan in scans:
        is_bound |= not pl.scan_parquet(scan.files("items.parquet")[0]).filter(is_item).head(1).collect().is_empty()
        table = pl.scan_parquet(scan.files(f"{HOLDERS}.parquet")[0]).filter(is_item).collect(engine="streaming")
        rows += [{"marks": "/".join(scan.spec.key), **row} for row in table.iter_rows(named=True)]
    if not is_bound:
        raise ValueError(f"no item {item!r} among those that were looked for; give task/item_id or suite/task/item_id")
    return rows
