"""What `marin spec` prints: a declared run as the file that `python -m trainer` reads."""

import json

from lineage.config import to_jsonable
from lineage.plan import Node
from lineage.store import Store
from recipes import runs
from recipes.lab import default_line, other_lines
from recipes.lines import Line


def print_spec(run: str, store: Store) -> None:
    """Print the spec of a declared run over a store. Raises: ValueError for a run that is not declared."""
    lines = {line.run.name: line for line in (default_line(), *other_lines())}
    if run not in lines:
        raise ValueError(f"no run {run!r} is declared; there are: {', '.join(lines)}")
    print(json.dumps(spec_record(lines[run], store.root), indent=1))


def spec_record(line: Line, root: str) -> dict[str, object]:
    """A line's run as `trainer.spec_file.SpecFile` is written, its inputs by name."""
    start: Node | None = runs.start(line)
    record = {"root": root, "mixture": runs.mixture(line).name, "run": to_jsonable(line.run)}
    return record if start is None else record | {"start": start.name}
