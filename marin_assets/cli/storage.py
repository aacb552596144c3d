"""What `marin storage report`, `mirror` and `lifecycle` do."""

import dataclasses
import datetime
import getpass
import json
import socket
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lineage.artifact.locate import locate
from lineage.artifact.store import Store
from lineage.upkeep import mirror as copies
from marin_assets.cli.console import print_json
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="What the roots hold, copies between roots, and rules of buckets (docs/design/storage.md).",
)


@app.command()
def mirror(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    into: Annotated[str, typer.Option(help="Root to copy to: a folder or gs:// URL.")],
    root: Annotated[str | None, ROOT] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Without its ancestors: what is built on the copy is refused without them.")
    ] = False,
    expect: Annotated[
        str | None, typer.Option(help="Data version that its owner has published; another one is refused.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Copy an artifact and its ancestors to another root: same identity, same bytes, and where it came from."""
    print_mirror(artifact, root, into, ancestors=not alone, expected=expect, console=Console(), as_json=as_json)


@app.command()
def lifecycle(
    root: Annotated[str, typer.Option(help="The lab's gs:// root.", envvar="MARIN_ROOT")],
    apply: Annotated[bool, typer.Option("--apply", help="Write them to the bucket, beside the rules of others.")] = False,
) -> None:
    """Print the bucket rules that delete what has a time to live, or write them."""
    print_lifecycle(root, apply=apply)


@app.command()
def report(root: Annotated[str | None, ROOT] = None, as_json: Annotated[bool, AS_JSON] = False) -> None:
    """Bytes by prefix, owner, storage class and age, when they were last read, and dollars a month."""
    from marin_assets.cli.query import ledger_of, print_rows
    from operations.storage.report import storage_report
    from recipes.prices import price_table

    today = datetime.datetime.now(datetime.UTC).date()
    rows = storage_report(stores_of(root), ledger_of(root), price_table(), today)
    print_rows(rows, Console(), as_json=as_json)


def print_mirror(
    text: str,
    root: str | None,
    into: str,
    *,
    ancestors: bool,
    expected: str | None = None,
    console: Console,
    as_json: bool = False,
) -> None:
    """Copy, and print a line for each artifact."""
    artifact = locate(stores_of(root), text)
    who = f"{getpass.getuser()} at {socket.gethostname()}"
    copied = 0
    copying = copies.mirror(artifact, Store(into), who, ancestors=ancestors, expected=expected)
    if as_json:
        print_json([dataclasses.asdict(each) for each in copying])
        return
    for each in copying:
        copied += each.bytes if each.outcome == "copied" else 0
        console.print(f"{each.outcome}: {escape(each.name)} ({each.bytes:,} bytes)", soft_wrap=True)
    console.print(f"{copied:,} bytes copied to {escape(into)}", soft_wrap=True)


def print_lifecycle(root: str, *, apply: bool) -> None:
    """Print the rules in the JSON form of the bucket; if they are written, also the rules of others."""
    if not root.startswith("gs://"):
        raise ValueError(f"--root is {root!r}; rules are for buckets: give the lab's gs:// root")
    from lineage.storage import lifecycle
    from resources.stores import EXPIRING, FERRY_TTL_DAYS

    rules = lifecycle.ttl_rules(root, dict.fromkeys(EXPIRING, FERRY_TTL_DAYS))
    print(json.dumps({"rule": lifecycle.apply(root, rules) if apply else rules}, indent=1))
