"""What `marin policies` prints: a comparison of contamination policies, as tables. Storage is all it reads."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.locate import locate
from lineage.store import Artifact
from marin_assets.lineage_cli import stores_of

_PAIR = ("policy", "other", "documents", "items")


def print_policies(text: str, root: str | None, *, as_json: bool, console: Console) -> None:
    """Print the newest comparison of a name. Raises: ValueError where there is none, with the command that makes it."""
    comparison = _newest(text, root)
    found = comparison.manifest.extra["comparison"]
    if as_json:
        print(json.dumps({"comparison": comparison.spec.address, **found}, indent=1))
        return
    rows = found["policies"]
    recall, false = ([name for name in rows[0] if name.startswith(prefix)] for prefix in ("recall_", "false_"))
    counts = [name for name in rows[0] if name not in (*recall, *false)]
    console.print(f"[bold]{escape(comparison.name)}[/], made {comparison.manifest.created[:19]}", soft_wrap=True)
    console.print(_table(f"what each marks (agreement: with {rows[0]['policy']}, both / either)", rows, counts))
    console.print(_table("share of planted items found, by form", rows, ["policy", *recall]))
    console.print(_table("share marked that holds no item", rows, ["policy", *false]))
    console.print(_table("marked by both / by the first alone / by the second alone", _pairs(found["agreement"]), _PAIR))
    console.print(f"which items and documents: {comparison.folder()}", soft_wrap=True, markup=False)


def _pairs(agreement: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    def sides(row: Mapping[str, Any], what: str) -> str:
        return " / ".join(str(row[f"{what}_{side}"]) for side in ("both", "only_first", "only_second"))

    return [{name: row[name] for name in _PAIR[:2]} | {what: sides(row, what) for what in _PAIR[2:]} for row in agreement]


def _newest(text: str, root: str | None) -> Artifact:
    try:
        return locate(stores_of(root), text)
    except ValueError as error:
        raise ValueError(f"{error}; `./marin materialize contamination_comparison/default` makes the default one") from error


def _table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(title=escape(title), title_justify="left", header_style="bold", pad_edge=False)
    for column in columns:
        justify = "left" if column in ("policy", "other") else "right"
        name = column.removeprefix("recall_").removeprefix("false_").replace("_", " ")
        table.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "left")
    for row in rows:
        table.add_row(*(escape(str(row[column])) for column in columns))
    return table
