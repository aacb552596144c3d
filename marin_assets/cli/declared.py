"""Commands that print what recipes declare: sources, and a run as `python -m trainer` reads it, with text to score it on."""

import json
from typing import Annotated

import typer

from evals.items.stage import TaskSpec
from evals.tasks.heldout_file import heldout_lines
from lineage.artifact.locate import locate
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.config import to_jsonable
from marin_assets.cli.console import print_json
from marin_assets.cli.options import AS_JSON, ONE_ROOT
from marin_assets.cli.show_lineage import stores_of
from recipes import data as recipes_data
from recipes import runs, tokenized
from recipes.catalogue_table import markdown
from recipes.lab import declarations
from recipes.records.run import Run
from recipes.sources import catalogue
from serving.tokenization import open_tokenizer


def sources(as_json: Annotated[bool, AS_JSON] = False) -> None:
    """Print the source catalogue as a Markdown table: pins, licences, and what of them is unverified."""
    if as_json:
        print_json({name: to_jsonable(source) for name, source in catalogue().items()})
    else:
        typer.echo(markdown(catalogue()), nl=False)


def spec(run: Annotated[str, typer.Argument(help="A declared run: tiny, tiny_packed, ...")]) -> None:
    """Print a declared run as the file that `python -m trainer` reads (docs/recipes/add_a_run.md)."""
    print_spec(run, stores_of(None)[0])


def heldout(
    run: Annotated[str, typer.Argument(help="A declared run: its corpora and its tokenizer.")],
    kib_per_domain: Annotated[int, typer.Option(help="Text of each domain, at most.", min=1)] = 64,
    root: Annotated[str | None, ONE_ROOT] = None,
) -> None:
    """Print held-out text by tag as the file that `MARIN_EVAL` names (docs/recipes/add_a_run.md)."""
    print_heldout(run, stores_of(root)[0], kib_per_domain)


def print_spec(run: str, store: Store) -> None:
    """Print the spec of a declared run over a store. Raises: ValueError for a run that is not declared."""
    print(json.dumps(spec_record(declarations().run(run), store.root), indent=1))


def print_heldout(run: str, store: Store, kib_per_domain: int) -> None:
    """Print held-out text of a declared run's corpora, a line of JSON a document, for `MARIN_EVAL`.

    Raises: ValueError for a run that is not declared, or a corpus or tokenizer that is not there.
    """
    declared = declarations().run(run)
    corpora = [locate([store], node.name) for node in recipes_data.corpora(declared.corpus)]
    artifact = locate([store], tokenized.tokenizer(declared.tokens).name)
    tokenizer, start_token = open_tokenizer(artifact, declared.spec.model.vocab_size)
    task = TaskSpec("heldout", "perplexity", max_bytes_per_domain=kib_per_domain << 10)
    for record in heldout_lines(corpora, tokenizer, start_token, task):
        print(record)


def spec_record(run: Run, root: str) -> dict[str, object]:
    """Return a declared run in the form of `trainer.spec_file.SpecFile`, its inputs by name."""
    start: Node | None = runs.start(run)
    record = {"root": root, "mixture": runs.mixture(run).name, "run": to_jsonable(run.spec)}
    return record if start is None else record | {"start": start.name}
