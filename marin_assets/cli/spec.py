"""What `marin spec` and `marin heldout` print: a declared run as `python -m trainer` reads it, and text to score it on."""

import json

from evals.items.stage import TaskSpec
from evals.tasks.heldout_file import heldout_lines
from lineage.artifact.locate import locate
from lineage.artifact.store import Store
from lineage.build.plan import Node
from lineage.config import to_jsonable
from recipes import data as recipes_data
from recipes import runs
from recipes.lab import declarations
from recipes.records.run import Run
from serving.tokenization import open_tokenizer


def print_spec(run: str, store: Store) -> None:
    """Print the spec of a declared run over a store. Raises: ValueError for a run that is not declared."""
    print(json.dumps(spec_record(declarations().run(run), store.root), indent=1))


def print_heldout(run: str, store: Store, kib_per_domain: int) -> None:
    """Print held-out text of a declared run's corpora, a line of JSON a document, for `MARIN_EVAL`.

    Raises: ValueError for a run that is not declared, or a corpus or tokenizer that is not there.
    """
    declared = declarations().run(run)
    corpora = [locate([store], node.name) for node in recipes_data.corpora(declared.corpus)]
    artifact = locate([store], recipes_data.tokenizer(declared.tokens).name)
    tokenizer, start_token = open_tokenizer(artifact, declared.spec.model.vocab_size)
    task = TaskSpec("heldout", "perplexity", max_bytes_per_domain=kib_per_domain << 10)
    for record in heldout_lines(corpora, tokenizer, start_token, task):
        print(record)


def spec_record(run: Run, root: str) -> dict[str, object]:
    """A declared run as `trainer.spec_file.SpecFile` is written, its inputs by name."""
    start: Node | None = runs.start(run)
    record = {"root": root, "mixture": runs.mixture(run).name, "run": to_jsonable(run.spec)}
    return record if start is None else record | {"start": start.name}
