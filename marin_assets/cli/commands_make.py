"""Commands that make artifacts, serve them, and say how the day went."""

import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import exit_by

app = typer.Typer()
command = partial(app.command, rich_help_panel="Make and look")
DAY = typer.Option(help="Day to materialize, YYYY-MM-DD; today in UTC unless told.")


@command()
def ferry(
    day: Annotated[str | None, DAY] = None,
    direct: Annotated[bool, typer.Option(help="Build the same nodes without Dagster (to measure its overhead).")] = False,
) -> None:
    """Materialize a day's smoke ferry and show what it did."""
    from marin_assets.cli import summary

    exit_by(summary.run_ferry(day or _today(), direct=direct, console=Console()))


@command()
def canary(hardware: Annotated[str, typer.Option()] = "cpu", day: Annotated[str | None, DAY] = None) -> None:
    """Materialize a day's canary: its fixed run and the verdict on it."""
    from marin_assets.cli import summary

    exit_by(summary.run_canary(hardware, day or _today()))


@command()
def materialize(
    asset: Annotated[str, typer.Argument(help="Asset key, e.g. runs/tiny/training or corpus/default.")],
    partition: Annotated[str | None, typer.Option(help="Partition, for an asset that has partitions.")] = None,
) -> None:
    """Materialize one canonical asset and whatever is missing above it, one Dagster run each."""
    from marin_assets.cli import summary

    artifact = summary.materialize_with_ancestors(asset, partition)
    Console().print(f"{artifact.name} is at {artifact.uri}", soft_wrap=True)


@command()
def status() -> None:
    """Show the latest ferries and canaries, and how many passed."""
    from marin_assets.cli import summary

    summary.print_status(Console())


@command()
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of a checkpoint, as the UI shows it.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 8000,
) -> None:
    """Serve a checkpoint over OpenAI's API on loopback (`python -m serving.server --help` has every option)."""
    from serving.server.__main__ import Listening
    from serving.server.__main__ import serve as run_server
    from serving.server.engine import EngineSettings

    run_server(folder, Listening(port), None, None, EngineSettings())


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
