"""Commands that print what recipes declare: sources, runs, plans."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from marin_assets.cli.options import AS_JSON, ROOT

app = typer.Typer()
command = partial(app.command, rich_help_panel="What is declared")


@command()
def sources() -> None:
    """Print the source catalogue as a Markdown table: pins, licences, and what of them is unverified."""
    from recipes.catalogue_table import markdown
    from recipes.sources import catalogue

    typer.echo(markdown(catalogue()), nl=False)


@command()
def spec(run: Annotated[str, typer.Argument(help="A declared run: tiny, tiny_packed, ...")]) -> None:
    """Print a declared run as the file that `python -m trainer` reads (docs/recipes/add_a_run.md)."""
    from marin_assets.cli import show_lineage
    from marin_assets.cli import spec as spec_cli

    spec_cli.print_spec(run, show_lineage.stores_of(None)[0])


@command()
def heldout(
    run: Annotated[str, typer.Argument(help="A declared run: its corpora and its tokenizer.")],
    kib_per_domain: Annotated[int, typer.Option(help="Text of each domain, at most.", min=1)] = 64,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Print held-out text by tag as the file that `MARIN_EVAL` names (docs/recipes/add_a_run.md)."""
    from marin_assets.cli import show_lineage
    from marin_assets.cli import spec as spec_cli

    spec_cli.print_heldout(run, show_lineage.stores_of(root)[0], kib_per_domain)


@command()
def histories(
    name: Annotated[str | None, typer.Argument(help="One of them, with every share: marin_8b, marin_32b_bison, ...")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show the declared runs of the retrospectives: phases, steps, tokens that add up, mixes."""
    from marin_assets.cli import histories as histories_cli

    histories_cli.print_histories(name, as_json=as_json, console=Console())


@command()
def plan_run(
    name: Annotated[str | None, typer.Argument(help="A paper run: 1e23 or june; all of them unless told.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Other hardware than its own, e.g. v5p-512.")] = None,
    remat: Annotated[str | None, typer.Option(help="Another choice of what backward makes again: none, named, full.")] = None,
    manifest: Annotated[bool, typer.Option("--manifest", help="Print the Kubernetes manifest of its training.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of docs/design/scale.md.")] = False,
) -> None:
    """Plan a large run on paper: memory of a device, time, checkpoints, storage operations and dollars a day."""
    from marin_assets.cli import show_run_plan

    show_run_plan.print_plans(
        name, hardware=hardware, remat=remat, as_manifest=manifest, as_markdown=markdown, console=Console()
    )
