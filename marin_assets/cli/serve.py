"""The command `marin serve`."""

from pathlib import Path
from typing import Annotated

import typer

from lineage.artifact.locate import locate
from marin_assets.cli.options import ARTIFACT, ROOT
from marin_assets.cli.show_lineage import stores_of
from serving.server.__main__ import Listening
from serving.server.__main__ import serve as run_server
from serving.server.engine import EngineSettings
from trainer.hf.folder import is_hf_folder


def serve(
    checkpoint: Annotated[str, typer.Argument(help=f"{ARTIFACT} Or a folder in Hugging Face's form.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 8000,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Serve a checkpoint over OpenAI's API on loopback (`python -m serving.server --help` has every option)."""
    run_server(_folder(checkpoint, root), Listening(port), None, None, EngineSettings())


def _folder(text: str, root: str | None) -> Path:
    if is_hf_folder(Path(text)):
        return Path(text)
    artifact = locate(stores_of(root), text)
    if "://" in artifact.uri:
        raise ValueError(
            f"{artifact.name} lies at {artifact.uri}; copy it here first: `./marin storage mirror {text} --into FOLDER`"
        )
    return Path(artifact.uri)
