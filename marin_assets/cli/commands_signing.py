"""Commands about signatures, and about what leaves the lab."""

from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli import signing
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by


def key(
    pem: Annotated[bool, typer.Option("--pem", help="As PEM, for cosign and others.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Print the public key that this machine signs with, as `lab.yaml` names it."""
    signing.print_key(pem=pem, as_json=as_json)


def sign(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    keyless: Annotated[str | None, typer.Option(help="A Sigstore bundle over the manifest, in place of a key.")] = None,
    identity: Annotated[str | None, typer.Option(help="The name of its signer in lab.yaml.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Sign an artifact that has no signature, or add yours (a waiver for everything needs two); its files are read first."""
    if (keyless is None) != (identity is None):
        raise typer.BadParameter("give --keyless and --identity together")
    if keyless is not None and identity is not None:
        signing.add_keyless(artifact, root, keyless, identity, as_json=as_json, console=Console())
        return
    signing.sign(artifact, root, as_json=as_json, console=Console())


def log(as_json: Annotated[bool, AS_JSON] = False, root: Annotated[str | None, ROOT] = None) -> None:
    """Append the store's manifests and verdicts to the transparency log, and print its size and root."""
    signing.append_logs(root, as_json=as_json, console=Console())


def export(
    artifact: Annotated[str, typer.Argument(help="A checkpoint, an hf_model or a corpus: folder, address or name (tiny@150).")],
    into: Annotated[str, typer.Option(help="A folder (hf) or a file (gguf) that does not exist yet.")],
    licence: Annotated[
        str | None, typer.Option(help="Licence of the weights, an SPDX expression; 'not stated' by default.")
    ] = None,
    form: Annotated[str, typer.Option(help="hf: for transformers and vLLM; gguf: one file for llama.cpp.")] = "hf",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Write an artifact for others: its files, card, bill of materials or Croissant, and signed provenance."""
    if form not in ("hf", "gguf"):
        raise typer.BadParameter(f"--form is {form!r}; give hf or gguf")
    exit_by(signing.export(artifact, root, into, licence, form=form, as_json=as_json, console=Console()))


def openlineage(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Send OpenLineage events of an artifact and its ancestors to OPENLINEAGE_URL, or print them."""
    exit_by(signing.send_events(artifact, root, as_json=as_json, console=Console()))
