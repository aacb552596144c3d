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
from recipes.lab import default_line, other_lines
from recipes.lines import Line
from serving.tokenization import open_tokenizer


def print_spec(run: str, store: Store) -> None:
    """Print the spec of a declared run over a store. Raises: ValueError for a run that is not declared."""
    print(json.dumps(spec_record(_line_of(run), store.root), indent=1))


def print_heldout(run: str, store: Store, kib_per_domain: int) -> None:
    """Print held-out text of a declared run's corpora, a line of JSON a document, for `MARIN_EVAL`.

    Raises: ValueError for a run that is not declared, or a corpus or tokenizer that is not there.
    """
    line = _line_of(run)
    corpora = [locate([store], node.name) for node in recipes_data.corpora(line)]
    artifact = locate([store], recipes_data.tokenizer(line).name)
    tokenizer, start_token = open_tokenizer(artifact, line.run.model.vocab_size)
    task = TaskSpec("heldout", "perplexity", max_bytes_per_domain=kib_per_domain << 10)
    for record in heldout_lines(corpora, tokenizer, start_token, task):
        print(record)


def _line_of(run: str) -> Line:
    lines = {line.run.name: line for line in (default_line(), *other_lines())}
    if run not in lines:
        raise ValueError(f"no run {run!r} is declared; there are: {', '.join(lines)}")
    return lines[run]


def spec_record(line: Line, root: str) -> dict[str, object]:
    """A line's run as `trainer.spec_file.SpecFile` is written, its inputs by name."""
    start: Node | None = runs.start(line)
    record = {"root": root, "mixture": runs.mixture(line).name, "run": to_jsonable(line.run)}
    return record if start is None else record | {"start": start.name}
