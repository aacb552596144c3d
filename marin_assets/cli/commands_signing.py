"""Commands about signatures, and about what leaves the lab."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import ARTIFACT, ROOT, exit_by

app = typer.Typer()
command = partial(app.command, rich_help_panel="Signatures, and what leaves the lab")


@command()
def key(pem: Annotated[bool, typer.Option("--pem", help="As PEM, for cosign and others.")] = False) -> None:
    """Print the public key that this machine signs with, as `lab.yaml` names it."""
    from marin_assets.cli import signing

    signing.print_key(pem=pem)


@command()
def sign(artifact: Annotated[str, typer.Argument(help=ARTIFACT)], root: Annotated[str | None, ROOT] = None) -> None:
    """Sign an artifact that has no signature, or add yours (a waiver for everything needs two); its files are read first."""
    from marin_assets.cli import signing

    signing.sign(artifact, root, Console())


@command()
def log(root: Annotated[str | None, ROOT] = None) -> None:
    """Append the store's manifests and verdicts to the transparency log, and print its size and root."""
    from marin_assets.cli import signing

    signing.append_logs(root, Console())


@command()
def export(
    artifact: Annotated[str, typer.Argument(help="An exported model (hf_model) or a corpus: folder, address or name.")],
    into: Annotated[str, typer.Option(help="A folder that does not exist yet.")],
    licence: Annotated[
        str | None, typer.Option(help="Licence of the weights, an SPDX expression; 'not stated' unless told.")
    ] = None,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Write an artifact for others: its files, card, bill of materials or Croissant, and signed provenance."""
    from marin_assets.cli import signing

    exit_by(signing.export(artifact, root, into, licence, Console()))


@command()
def openlineage(artifact: Annotated[str, typer.Argument(help=ARTIFACT)], root: Annotated[str | None, ROOT] = None) -> None:
    """Send OpenLineage events of an artifact and its ancestors to OPENLINEAGE_URL, or print them."""
    from marin_assets.cli import signing

    exit_by(signing.send_events(artifact, root, Console()))
