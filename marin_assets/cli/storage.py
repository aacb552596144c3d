"""What `marin storage mirror` and `marin storage lifecycle` do."""

import getpass
import json
import socket

from rich.console import Console
from rich.markup import escape

from lineage.artifact.locate import locate
from lineage.artifact.store import Store
from lineage.upkeep.mirror import mirror
from marin_assets.cli.show_lineage import stores_of


def print_mirror(text: str, root: str | None, into: str, *, ancestors: bool, console: Console) -> None:
    """Copy, a line an artifact."""
    artifact = locate(stores_of(root), text)
    who = f"{getpass.getuser()} at {socket.gethostname()}"
    copied = 0
    for each in mirror(artifact, Store(into), who, ancestors=ancestors):
        copied += each.bytes if each.outcome == "copied" else 0
        console.print(f"{each.outcome}: {escape(each.name)} ({each.bytes:,} bytes)", soft_wrap=True)
    console.print(f"{copied:,} bytes copied to {escape(into)}", soft_wrap=True)


def print_lifecycle(root: str, *, apply: bool) -> None:
    """Print the rules as the bucket's JSON has them, those of others too where they are written."""
    from lineage.storage import lifecycle
    from resources.lab import FERRY_TTL_DAYS

    rules = lifecycle.ttl_rules(root, {f"ttl-{FERRY_TTL_DAYS}d": FERRY_TTL_DAYS})
    print(json.dumps({"rule": lifecycle.apply(root, rules) if apply else rules}, indent=1))
