"""The commands `marin list` and `marin show`: what the stores hold, from the lineage tables and manifests."""

import datetime
import json
from collections.abc import Sequence
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.locate import locate
from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.config import to_jsonable
from lineage.graph.by_log import present_tables
from lineage.graph.edges import LineageTables, read_manifests
from lineage.names import check_relative
from lineage.trust.gate import inspect
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of

SHOWN_ROWS = 40
SHOWN_CHARACTERS = 2_000
NOTHING = "nothing was made yet; `./marin ferry` makes a whole day"
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def list_artifacts(
    prefix: Annotated[str, typer.Argument(help="Only names that start so: corpus, runs/tiny, ferry/runs.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Older artifacts of a name too, and more than 40 rows.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """List artifacts, newest first: size, age, seconds that they took, and whether a newer one has the name."""
    stores = stores_of(root)
    rows = artifact_rows(stores, prefix)
    if not every:
        rows = [row for row in rows if row["is_newest"]]
    if as_json:
        print_json(rows)
        return
    if not rows and not prefix:
        print(NOTHING)
        return
    if not rows:
        raise ValueError(f"no artifact's name starts with {prefix!r} in {_roots(stores)}; {_there(stores)}")
    table = Table(header_style="bold", pad_edge=False, box=None)
    table.add_column("artifact", no_wrap=True)
    for name in ("size", "age", "took"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    now = datetime.datetime.now(datetime.UTC)
    for row in rows if every else rows[:SHOWN_ROWS]:
        name = row["name"] + (f"@{row['step']}" if row["step"] >= 0 else "")
        state = "newest" if row["is_newest"] else "older"
        took = duration(row["wall_seconds"])
        table.add_row(escape(name), size(row["num_bytes"]), age(row["created"], now), took, state)
    print_table(table)
    if len(rows) > SHOWN_ROWS and not every:
        print(f"and {len(rows) - SHOWN_ROWS} more: give a prefix, or --all")


def show(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show one artifact: where it is, what made it, its files, inputs, cost and facts, and what a gate says of it."""
    shown = locate(stores_of(root), artifact)
    record = shown_record(shown)
    if as_json:
        print_json(record)
        return
    console = Console()
    for name, value in record.items():
        if not isinstance(value, list | dict):
            console.print(f"{name:<14}{value}", soft_wrap=True, markup=False, highlight=False)
    for name in ("inputs", "problems"):
        for value in record[name]:
            console.print(f"{name[:-1]:<14}{value}", soft_wrap=True, markup=False, highlight=False)
    for name in ("config", "facts"):
        text = json.dumps(record[name], ensure_ascii=False)
        left_out = f" ... and {len(text) - SHOWN_CHARACTERS:,} more characters: --json" if len(text) > SHOWN_CHARACTERS else ""
        console.print(f"{name:<14}{text[:SHOWN_CHARACTERS]}{left_out}", soft_wrap=True, markup=False, highlight=False)


def shown_record(artifact: Artifact) -> dict[str, Any]:
    """Return what `marin show` says of an artifact. Problems are those of the launch gate, ancestors included."""
    manifest = artifact.manifest
    num_bytes = sum(entry.bytes for entry in manifest.files)
    rows = sum(entry.rows or 0 for entry in manifest.files)
    findings = inspect(artifact.store, [artifact.ref("artifact")], {})
    return {
        "name": artifact.name,
        "folder": artifact.uri,
        "made": f"{manifest.created[:19]} by {manifest.spec.stage}@{manifest.spec.stage_version}",
        "state": f"{len(findings)} problems (`./marin gate` says more)" if findings else "fit to build on",
        "files": f"{len(manifest.files)} files, {size(num_bytes)}" + (f", {rows:,} rows" if rows else ""),
        "cost": f"{duration(manifest.resources.wall_seconds)}, {manifest.resources.cpu_seconds:,.1f} CPU s, "
        f"{size(manifest.resources.peak_rss_bytes)} at its peak",
        "data version": manifest.data_version,
        "run": manifest.run_id,
        "inputs": [ref.address for ref in manifest.spec.inputs],
        "problems": [str(finding) for finding in findings],
        "config": to_jsonable(manifest.spec.config),
        "facts": to_jsonable(dict(manifest.extra)),
    }


def artifact_rows(stores: Sequence[Store], prefix: str) -> list[dict[str, Any]]:
    """Return a row for each artifact whose name starts with a prefix, newest first; `is_newest` of its name and step."""
    columns = ("name", "step", "created", "num_bytes", "wall_seconds", "stage", "address")
    rows: list[dict[str, Any]] = []
    for store in stores:
        table = _below(store, prefix).artifacts.filter(pl.col("name").str.starts_with(prefix)).select(columns)
        newest = pl.col("created").rank("ordinal", descending=True).over("name", "step") == 1
        rows += [{**row, "root": store.root} for row in table.with_columns(is_newest=newest).iter_rows(named=True)]
    return sorted(rows, key=lambda row: row["created"], reverse=True)


def _below(store: Store, prefix: str) -> LineageTables:
    """Return the tables of all artifacts whose names may start with a prefix.

    A prefix with a folder of the key is answered by a listing of that folder. Any other one is answered by the commit log of a
    bucket, or by a listing of a local root.
    """
    key, bracket, _ = prefix.partition("[")
    folder = key if bracket else key.rpartition("/")[0]
    if not folder:
        return present_tables(store)
    places = store.storage.find(check_relative(folder, "the folder of a prefix"), MANIFEST_NAME)
    return read_manifests(store, {place.rpartition("/")[0]: "" for place in places})


def _roots(stores: Sequence[Store]) -> str:
    return " and ".join(store.root for store in stores)


def _there(stores: Sequence[Store]) -> str:
    names = {row["name"].split("/")[0].split("[")[0] for row in artifact_rows(stores, "")}
    return f"names start with {', '.join(sorted(names))}" if names else NOTHING


def size(num_bytes: int) -> str:
    """Return a number of bytes with a decimal unit, such as `1.5 MB`."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float) -> str:
    """Return seconds in the largest unit of which there is one."""
    for length, unit in UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def age(created: str, now: datetime.datetime) -> str:
    """Return how long ago an ISO time in UTC was."""
    time = datetime.datetime.fromisoformat(created)
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return duration(max(0.0, (now - time).total_seconds()))
