"""What `marin plan-run` prints."""

from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import AS_JSON
from marin_assets.cli.run_plan import manifest, markdown, plan, rows, with_remat
from recipes.planned_runs import planned_runs


def plan_run(
    name: Annotated[str | None, typer.Argument(help="A paper run: 1e23 or june; all of them by default.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Other hardware than its own, e.g. v5p-512.")] = None,
    remat: Annotated[str | None, typer.Option(help="Another choice of what backward makes again: none, named, full.")] = None,
    as_manifest: Annotated[bool, typer.Option("--manifest", help="Print the Kubernetes manifest of its training.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of docs/design/scale.md.")] = False,
) -> None:
    """Plan a large run on paper: memory of a device, time, checkpoints, storage operations and dollars a day."""
    shown = "manifest" if as_manifest else "markdown" if as_markdown else "json" if as_json else "text"
    print_plans(name, hardware=hardware, remat=remat, shown=shown, console=Console())


def print_plans(name: str | None, *, hardware: str | None, remat: str | None, shown: str, console: Console) -> None:
    """Print one paper run, or all. Raises: ValueError for an unknown name, listing those that exist."""
    every = planned_runs()
    if name is not None and name not in every:
        raise ValueError(f"no paper run {name!r}; there are: {', '.join(every)}")
    if remat not in (None, "none", "named", "full"):
        raise ValueError(f"remat is {remat!r}; it must be none, named or full")
    chosen = list(every.values()) if name is None else [every[name]]
    plans = [plan(run if remat is None else with_remat(run, remat), hardware) for run in chosen]
    if shown == "manifest":
        print(yaml.safe_dump_all([manifest(one) for one in plans], sort_keys=False), end="")
    elif shown == "markdown":
        print(markdown(plans))
    elif shown == "json":
        print_json({one.run.name: dict(rows(one)) for one in plans})
    else:
        for each in plans:
            table = Table(
                title=f"{each.run.name}: {each.run.stated}",
                show_header=False,
                caption=f"Chosen: {each.run.chosen}.",
            )
            for row in rows(each):
                table.add_row(*row)
            print_table(table, console)
