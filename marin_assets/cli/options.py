"""Options that many commands share, and how a command ends."""

import typer

ARTIFACT = "Folder, address or name of an artifact, e.g. 'ferry/runs/smoke/checkpoint[2026-11-21]'."
ROOT = typer.Option(help="Root of one store, a folder or any fsspec URL; both of the lab's stores by default.")
ONE_ROOT = typer.Option(help="Root of one store, a folder or any fsspec URL; the store outside ferries by default.")
AS_JSON = typer.Option("--json", help="Print JSON.")


def exit_by(passed: bool) -> None:
    """End with status 1 if something did not pass."""
    if not passed:
        raise typer.Exit(1)
