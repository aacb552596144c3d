"""What `marin plan-run` prints."""

import yaml
from rich.console import Console
from rich.table import Table

from marin_assets.cli.run_plan import manifest, markdown, plan, rows, with_remat
from recipes.planned_runs import planned_runs


def print_plans(
    name: str | None, *, hardware: str | None, remat: str | None, as_manifest: bool, as_markdown: bool, console: Console
) -> None:
    """Of one paper run or of all. Raises: ValueError for an unknown name, listing those there are."""
    every = planned_runs()
    if name is not None and name not in every:
        raise ValueError(f"no paper run {name!r}; there are: {', '.join(every)}")
    if remat not in (None, "none", "named", "full"):
        raise ValueError(f"remat is {remat!r}; it must be none, named or full")
    chosen = list(every.values()) if name is None else [every[name]]
    plans = [plan(run if remat is None else with_remat(run, remat), hardware) for run in chosen]
    if as_manifest:
        print(yaml.safe_dump_all([manifest(found) for found in plans], sort_keys=False), end="")
    elif as_markdown:
        print(markdown(plans))
    else:
        for found in plans:
            table = Table(
                title=f"{found.run.name}: {found.run.told}", show_header=False, caption=f"Chosen: {found.run.chosen}."
            )
            for row in rows(found):
                table.add_row(*row)
            console.print(table)
