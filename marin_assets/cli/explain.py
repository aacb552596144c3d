"""What `marin help` prints: every command in one line."""

from marin_assets.cli.table import GROUPS


def explain() -> None:
    """Print every command in one line."""
    for group in GROUPS:
        print(f"\n{group.title}")
        for command in group.commands:
            print(f"  {command.name:<19}{command.summary}")
