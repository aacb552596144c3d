"""Definitions of a lab with many runs and sweeps: assets, jobs, sensors and the CPU seconds beyond the lab's own.

    PYTHONPATH=. .venv/bin/python benchmarks/graph_scale.py [--runs 60] [--sweeps 3] [--trials 500]

Each side is built in a separate process, in alternating order; imports are not counted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

from marin_assets.definitions import build_defs
from recipes.lab import Declarations, declarations
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.smoke import smoke_ferry
from recipes.studies.default import tiny
from resources.lab import LabResource


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=("lab", "scaled"), help="measure one side here and print JSON")
    options = parser.parse_args()
    if options.side:
        declare = declarations if options.side == "lab" else lambda: scaled(options.runs, options.sweeps, options.trials)
        print(json.dumps(measured(declare)))
        return
    command = [sys.executable, __file__, *sys.argv[1:], "--side"]
    by_side: dict[str, list[dict[str, float]]] = {"lab": [], "scaled": []}
    for _ in range(options.rounds):
        for side, results in by_side.items():
            done = subprocess.run([*command, side], check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
    for side, results in by_side.items():
        print(side, results[0])
    added = [large["seconds"] - small["seconds"] for small, large in zip(by_side["lab"], by_side["scaled"], strict=True)]
    print(f"CPU seconds added: {statistics.median(added):.2f} ({min(added):.2f} to {max(added):.2f})")


def scaled(runs: int, sweeps: int, trials: int) -> Declarations:
    """The lab's declarations with more runs, in all `runs`, and with sweeps over the default corpus."""
    declared = declarations()
    more = tuple(variant(f"r{i}", i) for i in range(runs - len(declared.runs)))
    sets = tuple(Sweep(f"s{i}", tuple(variant(f"t{j}", j, last_only=True) for j in range(trials))) for i in range(sweeps))
    return replace(declared, runs=(*declared.runs, *more), sweeps=(*declared.sweeps, *sets))


def variant(name: str, seed: int, *, last_only: bool = False) -> Run:
    base = tiny()
    every = None if last_only else base.spec.save_every_steps
    return replace(base, spec=replace(base.spec, name=name, seed=seed, save_every_steps=every))


def measured(declare: Callable[[], Declarations]) -> dict[str, float]:
    """Counts of the definitions, and the CPU seconds of declaring and building them with their graph."""
    with tempfile.TemporaryDirectory(prefix="graph-scale-") as root:
        begin = time.process_time()
        definitions = build_defs(LabResource(root=root, workers=1), ferry=smoke_ferry(), declared=declare())
        definitions.resolve_asset_graph()
        seconds = time.process_time() - begin
    specs = list(definitions.resolve_all_asset_specs())
    return {
        "assets": len(specs),
        "jobs": len(list(definitions.jobs or ())),
        "sensors": len(list(definitions.sensors or ())),
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    main()
