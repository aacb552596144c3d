"""The console script `marin`: a few lines over the graph for every command.

The graph is imported inside the commands: worker processes import this file again as their main module, and Dagster costs
each of them seconds that a shard of text does not (measured 2026-11-21: 6 s of a 7 s stage).
"""

import datetime
import logging
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(add_completion=False, no_args_is_help=True, help="An open language-model lab as one Dagster asset graph.")
TOLD = ("datakit", "evals", "lineage", "marin_assets", "trainer")
"""Packages whose progress the terminal shows; of libraries it shows warnings."""
DAY = typer.Option(help="Day to materialize, YYYY-MM-DD; today in UTC unless told.")


@app.callback()
def set_up_logging() -> None:
    """An open language-model lab as one Dagster asset graph."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for package in TOLD:
        logging.getLogger(package).setLevel(logging.INFO)
    warnings.filterwarnings("ignore", message=".*is currently in beta")  # of Dagster, named in docs/dependencies.md


@app.command()
def ferry(
    day: Annotated[str | None, DAY] = None,
    direct: Annotated[bool, typer.Option(help="Build the same nodes without Dagster (to measure its overhead).")] = False,
) -> None:
    """Materialize a day's smoke ferry and show what it did."""
    from marin_assets import summary

    _exit(summary.run_ferry(day or _today(), direct=direct, console=Console()))


@app.command()
def canary(hardware: Annotated[str, typer.Option()] = "cpu", day: Annotated[str | None, DAY] = None) -> None:
    """Materialize a day's canary: its fixed run and the verdict on it."""
    from marin_assets import summary

    _exit(summary.run_canary(hardware, day or _today()))


@app.command()
def materialize(
    asset: Annotated[str, typer.Argument(help="Asset key, e.g. runs/tiny/training or corpus/default.")],
    partition: Annotated[str | None, typer.Option(help="Partition, for an asset that has partitions.")] = None,
) -> None:
    """Materialize one canonical asset and whatever is missing above it, one Dagster run each."""
    from marin_assets import summary

    artifact = summary.materialize_with_ancestors(asset, partition)
    Console().print(f"{artifact.name} is at {artifact.uri}", soft_wrap=True)


@app.command()
def lineage(folder: Annotated[Path, typer.Argument(help="Folder of an artifact, as the UI shows it.")]) -> None:
    """Print what an artifact was made from, up to the files fetched, from manifests alone."""
    from marin_assets import summary

    summary.print_lineage(folder, Console())


@app.command()
def sources() -> None:
    """Print the source catalogue as a Markdown table: pins, licences, and what of them is unverified."""
    from recipes.catalogue_table import markdown
    from recipes.sources import catalogue

    typer.echo(markdown(catalogue()), nl=False)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of a checkpoint, as the UI shows it.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 8000,
) -> None:
    """Serve a checkpoint over OpenAI's API on loopback (`python -m evals.serve --help` has every option)."""
    from evals.serve.__main__ import serve as run_server
    from evals.serve.engine import EngineSettings

    run_server(folder, port, None, None, EngineSettings())


@app.command()
def status() -> None:
    """Show the latest ferries and canaries, and how many passed."""
    from marin_assets import summary

    summary.print_status(Console())


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")


def _exit(passed: bool) -> None:
    if not passed:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
