"""The command `marin ui`: the Dagster UI, and beside it the pages that its links lead to."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import dagster as dg
import typer

from lineage.project import PREFIX, lab_folder
from marin_assets.searches import add_first_rounds
from recipes.lab import declarations


def ui(port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 3000) -> None:
    """Serve the Dagster UI on loopback; it starts no work until a schedule or sensor is switched on there."""
    folder = lab_folder()
    if not (folder / "workspace.yaml").is_file():
        raise ValueError(f"{folder} has no workspace.yaml, so it is no lab; run it in a lab's folder, or set MARIN_LAB")
    (folder / ".marin" / "dagster").mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    with dg.DagsterInstance.get() as instance:
        add_first_rounds(instance, declarations().searches)
    subprocess.Popen([sys.executable, "-m", f"{PREFIX}marin_assets.page_server", str(os.getpid())])  # it ends with the UI
    dagster = str(Path(sys.executable).with_name("dagster"))
    os.execv(dagster, [dagster, "dev", "-w", "workspace.yaml", "--host", "127.0.0.1", "--port", str(port)])
