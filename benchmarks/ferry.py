"""The ferry's stage times and peak memory, and the overhead of orchestration.

    PYTHONPATH=. .venv/bin/python benchmarks/ferry.py --pairs 2

Each pair runs the same day's ferry twice in fresh processes and fresh stores, once through Dagster (the job, in process,
events in SQLite, checks, metadata, pictures) and once as plain function calls over the same nodes, in alternating order;
the download cache is shared and warm. The bar is 15 % more wall time at most.

Most of a ferry is training in a child process, the same work on both sides, and its speed on a shared machine differs by a
tenth and more from run to run. So the time between the stages is printed too: Dagster's cost lies there, and little noise.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from evals.reports.report import stage_rows
from lineage.artifact.store import Artifact
from lineage.build.nodes import resolve
from lineage.project import CODE as REPOSITORY
from lineage.shards.execution import Execution
from marin_assets.cli.ferry import stage_table
from recipes import ferry as recipe
from recipes.smoke import smoke_ferry
from resources.lab import Lab

DAY = "2026-11-21"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    console = Console(width=180)
    with tempfile.TemporaryDirectory(prefix="ferry-bench-") as scratch:
        _share_downloads(Path(scratch))
        ratios, shares = [], []
        for pair in range(options.pairs):
            order = ("dagster", "direct") if pair % 2 == 0 else ("direct", "dagster")
            seconds = {kind: _timed(Path(scratch), f"{pair}-{kind}", kind, options.workers) for kind in order}
            ratios.append(seconds["dagster"] / seconds["direct"])
            between = {
                kind: seconds[kind] - _stage_seconds(Path(scratch) / f"{pair}-{kind}", options.workers) for kind in order
            }
            shares.append((between["dagster"] - between["direct"]) / seconds["direct"])
            console.print(
                f"pair {pair}: through Dagster {seconds['dagster']:.1f} s ({between['dagster']:.1f} s between stages), "
                f"direct {seconds['direct']:.1f} s ({between['direct']:.1f} s), ratio {ratios[-1]:.3f}; "
                f"between stages Dagster adds {shares[-1]:.3f} of the direct ferry"
            )
        artifacts = _artifacts(Path(scratch) / "0-direct", options.workers)
        console.print(stage_table(stage_rows(artifacts), title="stages (direct, first pair)"))
    console.print(
        f"between stages Dagster adds: median {statistics.median(shares):.3f}, {min(shares):.3f} to {max(shares):.3f}"
    )
    console.print(
        f"orchestration overhead: median ratio {statistics.median(ratios):.3f}, "
        f"spread {min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} pairs (bar 1.15)"
    )


def _artifacts(root: Path, workers: int) -> list[Artifact]:
    """What a ferry below `root` has made."""
    lab = Lab.at(str(root), execution=Execution(workers))
    line = recipe.rostered_run(smoke_ferry(), lab.ferry_store, DAY)
    return [resolve(lab.ferry_store, node) for node in recipe.nodes(line)]


def _stage_seconds(root: Path, workers: int) -> float:
    return sum(artifact.manifest.resources.wall_seconds for artifact in _artifacts(root, workers))


def _share_downloads(scratch: Path) -> None:
    """Hard to fault, slow to repeat: every run sees the downloads that the repository's own lab has, if any."""
    known = REPOSITORY / ".marin" / "work" / "downloads"
    if known.is_dir():
        shutil.copytree(known, scratch / "downloads")


def _timed(scratch: Path, name: str, kind: str, workers: int) -> float:
    """Wall seconds of one ferry in a fresh process, store and Dagster home."""
    root = scratch / name
    if (scratch / "downloads").is_dir():
        shutil.copytree(scratch / "downloads", root / "work" / "downloads")
    home = root / "dagster-home"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {
        **os.environ,
        "MARIN_ROOT": str(root),
        "MARIN_WORKERS": str(workers),
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, "-m", "marin_assets.cli", "ferry", "--day", DAY]
    started = time.perf_counter()
    with (root / "log.txt").open("w") as log:
        subprocess.run(
            command + (["--direct"] if kind == "direct" else []),
            cwd=REPOSITORY,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
