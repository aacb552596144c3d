"""Commands that ask where artifacts come from, what they have reached, and whether they can be made again."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by

app = typer.Typer()
command = partial(app.command, rich_help_panel="Lineage")


@command()
def lineage(
    artifact: Annotated[str | None, typer.Argument(help=ARTIFACT)] = None,
    down: Annotated[bool, typer.Option("--down/--up", help="What was made from it, or what it was made from.")] = False,
    graph: Annotated[str | None, typer.Option(help="Print a picture instead: mermaid or html (one file, no network).")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    check: Annotated[bool, typer.Option(help="Compare manifests and lineage tables, and name what disagrees.")] = False,
    rebuild: Annotated[bool, typer.Option(help="Make the lineage tables again from the manifests alone.")] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show what an artifact was made from, or what was made from it, from manifests alone."""
    from marin_assets.cli import show_lineage

    if check or rebuild:
        exit_by(show_lineage.check(root, rebuild=rebuild, as_json=as_json, console=Console()))
    elif artifact is None:
        raise typer.BadParameter("name an artifact, or give --check or --rebuild")
    else:
        shown = graph or ("json" if as_json else "text")
        show_lineage.show(artifact, root, direction="down" if down else "up", shown=shown, console=Console())


@command()
def exposure(
    checkpoint: Annotated[str, typer.Argument(help=ARTIFACT)],
    document: Annotated[list[str] | None, typer.Option(help="Document id (32 hex digits); give it again for more.")] = None,
    item: Annotated[str | None, typer.Option(help="Benchmark item: task/item_id, or suite/task/item_id.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show at which training steps a checkpoint saw documents, or the documents that hold a benchmark item."""
    from marin_assets.cli import exposure as exposure_cli

    if (not document) == (item is None):
        raise typer.BadParameter("give --document (once or more) or --item")
    exposure_cli.print_exposure(checkpoint, root, document or [], item, as_json=as_json, console=Console())


@command()
def affected(
    stage: Annotated[str | None, typer.Option(help="Stage, e.g. datakit.token_cache.")] = None,
    version: Annotated[str | None, typer.Option(help="Its version; any version unless told.")] = None,
    artifact: Annotated[str | None, typer.Option(help=ARTIFACT)] = None,
    document: Annotated[list[str] | None, typer.Option(help="Document id (32 hex digits), for a takedown.")] = None,
    source: Annotated[str | None, typer.Option(help="Name of a source, for a takedown.")] = None,
    licence: Annotated[str | None, typer.Option(help="Text of a licence, for a takedown.")] = None,
    field: Annotated[str | None, typer.Option(help="NAME=VALUE of documents' metadata (an author), for a takedown.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show what a bad artifact, stage version, document, source, licence or author has reached, and what mending costs."""
    from marin_assets.cli import affected as affected_cli

    given = [name for name in (stage, artifact, document, source, licence, field) if name]
    if len(given) != 1 or (version is not None and stage is None):
        raise typer.BadParameter("give one of --stage (with --version), --artifact, --document, --source, --licence, --field")
    if field is not None and "=" not in field:
        raise typer.BadParameter(f"--field is {field!r}; give NAME=VALUE, e.g. author=Someone")
    if stage or artifact:
        affected_cli.print_affected(root, stage, version, artifact, as_json=as_json, console=Console())
    else:
        affected_cli.print_takedown(root, document or [], source, licence, field, as_json=as_json, console=Console())


@command()
def consistency(as_json: Annotated[bool, AS_JSON] = False) -> None:
    """Compare manifests, lineage tables and Dagster's event log, and name what disagrees."""
    from marin_assets.cli import consistency as consistency_cli

    exit_by(consistency_cli.print_consistency(as_json=as_json, console=Console()))


@command()
def rebuild_event_log(
    fill_gaps: Annotated[
        bool, typer.Option("--fill-gaps", help="Report what is missing in a log with events of its own.")
    ] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make Dagster's event log again from manifests alone."""
    from marin_assets.cli import consistency as consistency_cli

    exit_by(consistency_cli.rebuild(root, fill_gaps=fill_gaps, console=Console()))


@command()
def reproduce(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    into: Annotated[
        str | None, typer.Option(help="An empty folder or URL to make it in; a new temporary folder unless told.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make an artifact and all its ancestors again from manifests alone, and compare their bytes."""
    from marin_assets.cli import show_lineage

    exit_by(show_lineage.reproduce_into(artifact, root, into, as_json=as_json, console=Console()))


@command()
def verify(
    artifact: Annotated[str | None, typer.Argument(help=ARTIFACT)] = None,
    all_drifted: Annotated[bool, typer.Option(help="The newest artifact of every name that has drifted.")] = False,
    shards: Annotated[int, typer.Option(min=1, help="Shards to make again, of an artifact that lists more.")] = 3,
    jobs: Annotated[bool, typer.Option(help="Make artifacts of training and evaluation jobs again too.")] = False,
    attested: Annotated[
        str | None, typer.Option(help="An exported folder instead: check its signatures, every byte, and all it was made from.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="With --attested: PEM file of a publisher's public key.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make drifted artifacts again with today's code in scratch space, compare their bytes, and record what came out.

    With --attested: verify a folder that somebody exported.
    """
    from marin_assets.cli import verify as verify_cli

    if attested is not None:
        from marin_assets.cli import signing

        if artifact is not None or all_drifted:
            raise typer.BadParameter("--attested names a folder; give no artifact with it")
        exit_by(signing.print_attested(attested, key or [], as_json=as_json, console=Console()))
        return
    if (artifact is not None) == all_drifted:
        raise typer.BadParameter("name an artifact, or give --all-drifted")
    exit_by(verify_cli.print_verified(artifact, root, num_shards=shards, jobs=jobs, as_json=as_json, console=Console()))


@command()
def upgrade(
    apply: Annotated[
        bool, typer.Option(help="Make the changes. Without it the plan is printed and nothing is written.")
    ] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Bring a store that older code made to today's formats and keys; no data file changes."""
    from marin_assets.cli import upgrade as upgrade_cli

    exit_by(upgrade_cli.print_upgrade(root, apply=apply, console=Console()))
