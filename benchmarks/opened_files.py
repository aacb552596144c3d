"""Files that the joins open: planned by the planner of `./marin plan-data`, and counted while the stages run.

    PYTHONPATH=. .venv/bin/python -m benchmarks.opened_files --mb 2000
    PYTHONPATH=. .venv/bin/python -m benchmarks.opened_files --mb 250 --range-mib 2     # as many ranges as at 2 GB

One process normalizes generated text (`generated_text.py`), signs it, and finds duplicates and repeated paragraphs. Counted
are all calls of `pyarrow.memory_map`, the only way in which the local engine opens what a shuffle wrote: `rows`, which the
plan names, and results of ranges that a later step opens once each, which it does not. Files that are written stand beside
them. Exit status 1 if a planned number differs from the counted one.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.generated_text import SPEECHES, learnt, write
from benchmarks.plan_data import MEGABYTE, scope_of, stage_nodes
from benchmarks.process_use import cpu_seconds
from datakit.costs.joins import Join, Scope, joins
from lineage.artifact.store import Store
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables import shuffle
from lineage.tables.local import LocalEngine

JOINING = ("raw", "normalized", "minhash", "duplicates", "paragraphs")
SEED = 3


@dataclass
class Opened:
    """Calls `function` with a path, and counts the paths that lie in a shuffle's folder, by shuffle and kind of file."""

    function: Callable[..., Any]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {"rows": Counter(), "ranges": Counter()})

    def __call__(self, path: Any, *arguments: Any, **options: Any) -> Any:
        *_, step, kind, _ = str(path).split("/")
        if kind in self.counts:
            self.counts[kind][step] += 1
        return self.function(path, *arguments, **options)


@dataclass(frozen=True)
class Counted:
    """What a run of the joins opened and wrote."""

    scope: Scope
    read: Opened
    written: Opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=250.0, help="megabytes of text")
    parser.add_argument("--range-mib", type=float, default=shuffle.RANGE_BYTES / 2**20, help="bytes of a range, in MiB")
    parser.add_argument("--folder", type=Path, help="where text and stores lie; the system's temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = Path(scratch).resolve()
        write(folder / "documents", learnt(SPEECHES), int(options.mb * MEGABYTE), SEED)
        with patch.object(shuffle, "RANGE_BYTES", int(options.range_mib * 2**20)):
            counted = run_joins(folder)
            planned = list(joins(counted.scope))
    print(f"{counted.scope.documents:,} documents, {options.mb:g} MB, ranges of {options.range_mib:g} MiB")
    print(f"{cpu_seconds():.0f} CPU s with the text, load {os.getloadavg()[0]:.1f}")
    sys.exit(print_table(planned, counted) != 0)


def run_joins(folder: Path) -> Counted:
    """Build the stages over the documents of a folder, with one worker, which is this process."""
    engine, store = LocalEngine(SCRATCH_FOLDER, 1), Store(str(folder / "store"))
    read, written = Opened(pa.memory_map), Opened(pa.ipc.new_file)
    with patch.object(pa, "memory_map", read), patch.object(pa.ipc, "new_file", written):
        nodes = [node for node in stage_nodes(folder) if node.key[0] in JOINING]
        made = {node.key[0]: build(store, node, execution=Execution(1, tables=engine)).artifact for node in nodes}
    return Counted(scope_of(made["normalized"], made["duplicates"], engine), read, written)


def print_table(planned: Sequence[Join], counted: Counted) -> int:
    """Print planned and counted opens of each join, and return the sum of the differences without their signs."""
    rows, results = counted.read.counts["rows"], counted.read.counts["ranges"]
    files = counted.written.counts["rows"] + counted.written.counts["ranges"]
    names = dict.fromkeys((*(join.name for join in planned), *rows, *files))
    of_plan = Counter({join.name: join.opens for join in planned})
    print("\n| join | planned opens | counted opens | difference | results opened | files written |\n|---|---|---|---|---|---|")
    for name in names:
        print(f"| {name} | {of_plan[name]} | {rows[name]} | {of_plan[name] - rows[name]} | {results[name]} | {files[name]} |")
    totals = (of_plan.total(), rows.total(), of_plan.total() - rows.total(), results.total(), files.total())
    print(f"| all | {' | '.join(map(str, totals))} |")
    return sum(abs(of_plan[name] - rows[name]) for name in names)


if __name__ == "__main__":
    main()
