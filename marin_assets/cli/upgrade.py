"""What `marin upgrade` does: plan the upgrade of one or several stores, print it, and apply it on request."""

import dataclasses
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lineage.artifact.store import Store
from lineage.upkeep.upgrade import apply_upgrade
from lineage.upkeep.upgrade_plan import Plan, plan_upgrade
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import AS_JSON, ROOT, exit_by
from marin_assets.cli.show_lineage import stores_of


def upgrade(
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes. Without it the plan is printed and nothing is written.")
    ] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Bring a store that older code made to today's formats and keys; no data file changes."""
    exit_by(print_upgrade(root, apply=apply, as_json=as_json, console=Console()))


def print_upgrade(root: str | None, *, apply: bool, as_json: bool = False, console: Console) -> bool:
    """Print the plan of every store, and apply it if asked. Returns False if an artifact cannot be upgraded."""
    from recipes.upgrades import key_today  # imports the data engines: seconds that other commands do not need

    plans = [(store, plan_upgrade(store, key_today)) for store in stores_of(root)]
    if as_json:
        done = [sum(1 for _ in apply_upgrade(store, plan)) if apply else 0 for store, plan in plans]
        pairs = zip(plans, done, strict=True)
        print_json([{"root": store.root, "done": n, **dataclasses.asdict(plan)} for (store, plan), n in pairs])
        return not any(plan.problems for _, plan in plans)
    for store, plan in plans:
        _print_plan(store, plan, console)
        if apply:
            done = sum(1 for _ in apply_upgrade(store, plan))
            console.print(f"{escape(store.root)}: {done} of {len(plan.changes)} changes are done", soft_wrap=True)
    if not apply and any(not plan.is_empty for _, plan in plans):
        console.print("nothing was written; `./marin upgrade --apply` makes these changes (docs/recipes/upgrade_a_store.md)")
    return not any(plan.problems for _, plan in plans)


def _print_plan(store: Store, plan: Plan, console: Console) -> None:
    if plan.is_empty:
        console.print(f"{escape(store.root)}: nothing to upgrade", soft_wrap=True)
    else:
        table = Table("artifact", "from", "to", "why", title=escape(store.root))
        for change in plan.changes:
            table.add_row(*(escape(text) for text in (change.name, change.before, change.after, change.why)))
        for address in plan.leftovers:
            table.add_row(escape(address), "files without a manifest", "deleted", "an earlier upgrade was interrupted")
        print_table(table, console)
    for problem in plan.problems:
        console.print(f"[red]cannot be upgraded[/]: {escape(problem)}", soft_wrap=True)
