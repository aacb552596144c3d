"""The console script `marin`: a few lines over the graph for every command (`commands_*.py`).

The graph is imported inside the commands: worker processes import this file again as their main module, and Dagster costs
each of them seconds that a shard of text does not (measured 2026-11-21: 6 s of a 7 s stage).
"""

import logging
import warnings

import typer

from marin_assets.cli import (
    commands_declared,
    commands_lineage,
    commands_make,
    commands_models,
    commands_signing,
    commands_storage,
    commands_trust,
)

app = typer.Typer(add_completion=False, no_args_is_help=True, help="An open language-model lab as one Dagster asset graph.")
for commands in (commands_make, commands_lineage, commands_trust, commands_signing, commands_models, commands_declared):
    app.add_typer(commands.app)
app.add_typer(commands_storage.app, name="storage", rich_help_panel="Storage")
TOLD = ("datakit", "evals", "lineage", "marin_assets", "serving", "trainer")
"""Packages whose progress the terminal shows; of libraries it shows warnings."""


@app.callback()
def set_up_logging() -> None:
    """An open language-model lab as one Dagster asset graph."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for package in TOLD:
        logging.getLogger(package).setLevel(logging.INFO)
    warnings.filterwarnings("ignore", message=".*is currently in beta")  # of Dagster, named in docs/dependencies.md


if __name__ == "__main__":
    app()
