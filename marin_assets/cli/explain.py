"""What `marin help` prints: every command in one line."""

from typing import Annotated

from marin_assets.cli.console import print_json
from marin_assets.cli.options import AS_JSON
from marin_assets.cli.table import GROUPS


def explain(as_json: Annotated[bool, AS_JSON] = False) -> None:
    """Print every command in one line."""
    if as_json:
        print_json(
            [{"group": group.title, "name": each.name, "does": each.summary} for group in GROUPS for each in group.commands]
        )
        return
    for group in GROUPS:
        print(f"\n{group.title}")
        for command in group.commands:
            print(f"  {command.name:<19}{command.summary}")
