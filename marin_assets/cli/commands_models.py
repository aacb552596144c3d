"""Commands that compare evaluation results and checkpoints."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import AS_JSON, ROOT

app = typer.Typer()
command = partial(app.command, rich_help_panel="Evaluation")


@command()
def leaderboard(
    policy: Annotated[str | None, typer.Option(help="One evaluation policy, e.g. 2026-11-22; all of them unless told.")] = None,
    task: Annotated[str | None, typer.Option(help="One task.")] = None,
    sql: Annotated[str | None, typer.Option(help="A DuckDB query over the views results, leaderboard and items.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page instead.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show every evaluation result, a board a policy, ranked by the bound of the interval that speaks against a model."""
    from marin_assets.cli import leaderboard as leaderboard_cli

    leaderboard_cli.print_leaderboard(root, policy=policy, task=task, sql=sql, html=html, json=as_json, console=Console())


@command()
def compare(
    first: Annotated[str, typer.Argument(help="Result, e.g. 'runs/tiny/eval_result[step-00000050|piqa]'.")],
    second: Annotated[str, typer.Argument(help="Another result under the same policy.")],
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Compare two results item by item: McNemar's or the sign test, and a paired bootstrap."""
    from marin_assets.cli import leaderboard as leaderboard_cli

    leaderboard_cli.print_comparison(first, second, root, Console())


@command()
def gap(
    first: Annotated[str, typer.Argument(help="Checkpoint, e.g. 'runs/tiny/checkpoint[step-00000050]'.")],
    second: Annotated[str, typer.Argument(help="Another checkpoint; its tokenizer may be another one.")],
    worst: Annotated[int, typer.Option(min=0, help="Documents to show, the largest gap first.")] = 10,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show where a second checkpoint finds held-out text harder than a first, byte by byte (the first one's corpora)."""
    from marin_assets.cli import leaderboard as leaderboard_cli

    leaderboard_cli.print_gap(first, second, root, worst=worst, console=Console())
