"""Definitions of a lab with many runs, sweeps and sources: assets, jobs, sensors and the CPU seconds beyond the lab's own.

    PYTHONPATH=. .venv/bin/python -m benchmarks.graph_scale [--runs 60] [--sweeps 3] [--trials 500]
    PYTHONPATH=. .venv/bin/python -m benchmarks.graph_scale --sources 500 --runs 100 [--apart]

`--sources` writes a recipe file as a lab would (`MARIN_RECIPES`): that many folders as sources, and the runs over one corpus of
all of them; with `--apart` each run has a corpus of its own over an equal part. Each side is built in a separate process, in
alternating order; imports are not counted.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from marin_assets.definitions import build_defs
from recipes.lab import Declarations, declarations
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.smoke import smoke_ferry
from recipes.studies.default import tiny
from resources.lab import LabResource

RECIPE = """
from dataclasses import replace

from datakit.sources.source import FolderFiles, Records, Source, Unverified
from recipes.pipeline import cleaned_of_benchmarks, pipeline
from recipes.records.run import Evaluation, Run
from recipes.studies.default import tiny
from recipes.study import Study

NAMES = tuple(f"folder{{number:03}}" for number in range({sources}))
PART = {part}


def sources():
    listing = Unverified("", "nobody has listed the folder")
    return tuple(
        Source(name=name, loader=FolderFiles(url=f"/data/{{name}}", globs=("*.jsonl",), listing=listing),
               format=Records("jsonl", text="text"), domain="prose", licence="CC0-1.0", terms="own text", mixture_weight=1.0)
        for name in NAMES
    )


def declared(number):
    def run():
        cleaned = cleaned_of_benchmarks()
        first = number * PART % len(NAMES)
        of = "many" if PART == len(NAMES) else f"many{{number:03}}"
        mix = pipeline(of, NAMES[first : first + PART], cleaned.suites, vocab_size=2048, cleaned=cleaned)
        model = replace(tiny().spec.model, vocab_size=mix.tokens.vocab_size)
        return Run(replace(tiny().spec, name=run.__name__, model=model, seed=number), mix, Evaluation(cleaned.suites))

    run.__name__ = f"many{{number:03}}"
    return run


def study():
    return Study("How long does a large lab take to load?", runs=tuple(declared(number) for number in range({runs})))
"""
"""The file of a lab with many sources, as docs/recipes/add_a_source.md describes it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--sources", type=int, default=0, help="declare sources and runs in a recipe file of the lab's own")
    parser.add_argument("--apart", action="store_true", help="a corpus for each run, not one for all")
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=("lab", "scaled"), help="measure one side here and print JSON")
    options = parser.parse_args()
    if options.side:
        is_own = options.side == "lab" or options.sources
        declare = declarations if is_own else lambda: scaled(options.runs, options.sweeps, options.trials)
        print(json.dumps(measured(declare)))
        return
    command = [sys.executable, "-m", "benchmarks.graph_scale", *sys.argv[1:], "--side"]  # `serving.py` here hides a package
    by_side: dict[str, list[dict[str, float]]] = {"lab": [], "scaled": []}
    with tempfile.TemporaryDirectory(prefix="graph-scale-") as folder:
        environments = {"lab": dict(os.environ), "scaled": dict(os.environ)}
        if options.sources:
            write_recipe(Path(folder), options.sources, options.runs, apart=options.apart)
            environments["scaled"]["MARIN_RECIPES"] = folder
        for _ in range(options.rounds):
            for side, results in by_side.items():
                done = subprocess.run([*command, side], check=True, stdout=subprocess.PIPE, text=True, env=environments[side])
                results.append(json.loads(done.stdout.splitlines()[-1]))
    for side, results in by_side.items():
        print(side, results[0])
    added = [large["seconds"] - small["seconds"] for small, large in zip(by_side["lab"], by_side["scaled"], strict=True)]
    print(f"CPU seconds added: {statistics.median(added):.2f} ({min(added):.2f} to {max(added):.2f})")


def write_recipe(folder: Path, sources: int, runs: int, *, apart: bool) -> None:
    """Write the recipe file of a lab with many sources."""
    part = max(1, sources // runs) if apart else sources
    (folder / "many.py").write_text(RECIPE.format(sources=sources, runs=runs, part=part))


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
        seconds, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    keys = [spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()]
    return {
        "assets": len(keys),
        "jobs": len(list(definitions.jobs or ())),
        "sensors": len(list(definitions.sensors or ())),
        "broken": sum(key.startswith("broken/") for key in keys),
        "seconds": round(seconds, 2),
        "peak_mib": peak,
    }


if __name__ == "__main__":
    main()
