"""Commands over roots of storage: copies, and rules of buckets."""

from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import ARTIFACT, ROOT

app = typer.Typer(no_args_is_help=True, help="Copies between roots, and rules of buckets (docs/design/storage.md).")


@app.command()
def mirror(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    into: Annotated[str, typer.Option(help="Root to copy to: a folder or gs:// URL.")],
    root: Annotated[str | None, ROOT] = None,
    alone: Annotated[
        bool, typer.Option(help="Without its ancestors: what is built on the copy is refused without them.")
    ] = False,
) -> None:
    """Copy an artifact and its ancestors to another root: same identity, same bytes, and where it came from."""
    from marin_assets.cli import storage

    storage.print_mirror(artifact, root, into, ancestors=not alone, console=Console())


@app.command()
def lifecycle(
    root: Annotated[str, typer.Option(help="The lab's gs:// root.", envvar="MARIN_ROOT")],
    apply: Annotated[bool, typer.Option(help="Write them to the bucket, beside the rules of others.")] = False,
) -> None:
    """Print the bucket rules that delete what has a time to live, or write them."""
    from marin_assets.cli import storage

    storage.print_lifecycle(root, apply=apply)
