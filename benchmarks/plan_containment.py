"""Measure what `./marin plan-data --containment` needs: the stage `datakit.containment` over generated text of several sizes.

    PYTHONPATH=. .venv/bin/python -m benchmarks.plan_containment --sizes 60 120 240

Texts, processes and stages before it are those of `plan_data.py`, which measures the stages that are on by default. A quarter
of the documents are copies, which leave before; excerpts are not planted, so few pairs are verified.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.generated_text import SPEECHES, learnt, write
from benchmarks.pipeline import ONE_THREAD
from benchmarks.plan_data import MEGABYTE, stage_nodes, text_given
from benchmarks.process_use import cpu_seconds
from datakit.costs.contained import Contained, ContainmentRates, ContainmentRun
from datakit.dedup.containment import CONTAINMENT
from datakit.dedup.containment_candidates import ContainmentConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine

BEFORE = ("raw", "normalized", "minhash", "duplicates")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[60, 120, 240], help="megabytes of text, at least three")
    parser.add_argument("--folder", type=Path, help="where text and stores lie; the system's temporary folder by default")
    parser.add_argument("--out", type=Path, default=Path("data/rates/containment.json"))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run_stage(options.child)))
        return
    model, runs = learnt(SPEECHES), []
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            write(Path(folder) / "documents", model, int(size * MEGABYTE), 0)
            command = [sys.executable, "-m", "benchmarks.plan_containment", "--child", folder]
            done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True, check=True)
        run = json.loads(done.stdout.splitlines()[-1])
        runs.append(ContainmentRun(**(run | {"counts": Contained(**run["counts"])}), load=os.getloadavg()[0]))
        print(f"{size:g} MB: {runs[-1]}", flush=True)
    rates = ContainmentRates(
        command=f"python -m benchmarks.plan_containment --sizes {' '.join(f'{size:g}' for size in options.sizes)}",
        commit=subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip(),
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        runs=tuple(runs),
    )
    options.out.write_text(json.dumps(asdict(rates), indent=1) + "\n")


def run_stage(folder: Path) -> dict[str, Any]:
    """Build the stage over the documents of a folder; return the bytes of all texts, CPU seconds and counts."""
    engine, nodes = LocalEngine(SCRATCH_FOLDER, 1), {node.key[0]: node for node in stage_nodes(folder)}
    inputs = {"normalized": (nodes["normalized"],), "duplicates": nodes["duplicates"]}
    with tempfile.TemporaryDirectory(dir=folder) as root:
        store = Store(root)
        for name in BEFORE:
            build(store, nodes[name], execution=Execution(1))
        started = cpu_seconds()
        node = Node(("containment",), None, CONTAINMENT, ContainmentConfig(), inputs)
        made = build(store, node, execution=Execution(1, tables=engine)).artifact
    seconds, moved = cpu_seconds() - started, {each.name: each for each in engine.moved}
    counts = Contained.of(moved, made.manifest.extra["containment"]["compared_bytes"])
    return {"bytes": text_given(folder), "cpu_seconds": seconds, "counts": asdict(counts)}


if __name__ == "__main__":
    main()
