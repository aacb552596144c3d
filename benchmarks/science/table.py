"""Seconds that the table of a sweep takes, and the law: `python -m benchmarks.science.table --trials 500`.

The trials and results are written as a law says; the table and the law are made from their manifests as in the lab.
"""

import argparse
import tempfile
import time
from dataclasses import replace

from benchmarks.science.isoflop_data import HELDOUT
from benchmarks.science.isoflop_study import REHEARSAL, mixture, named, run_of
from lineage.artifact.store import Store
from lineage.build.nodes import Node, ancestors_first, resolve, spec_of
from lineage.build.plan import build
from lineage.writing.write import writing
from science.forecasts.table import TABLE, Expected, TableConfig
from trainer.spec.stage import TRIAL, CheckpointConfig

BUDGETS = (2e10, 4e10, 8e10, 1.6e11, 3.2e11)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    options = parser.parse_args()
    study = replace(REHEARSAL, text_bytes=400_000)
    with tempfile.TemporaryDirectory() as folder:
        store, results, expected = Store(folder), [], []
        for number in range(options.trials):
            budget = BUDGETS[number % len(BUDGETS)]
            run = run_of(study, named(budget, 16, f"s{number}"), 16, budget, number, 1.0)
            inputs = {"mixture": mixture(study, False, number % 3)}
            trial = Node(("sweeps", "s", "trial"), run.name, TRIAL, CheckpointConfig(run, run.num_steps), inputs)
            result = Node(("sweeps", "s", "result"), run.name, HELDOUT, {}, {"trial": trial})
            for node in ancestors_first([result]):
                if node.stage.job is None and node is not result:
                    build(store, node)
            for node in (trial, result):
                with writing(store, spec_of(store, node)) as out:
                    scores = [{"task": "python", "metric": "nats", "value": 4.0 + number / 1e4}]
                    out.extra["result"] = {"policy": "p", "diverged": None, "scores": scores}
            results.append(result)
            expected.append(Expected(run.name, budget))
        table = Node(
            ("sweeps", "s", "table"), None, TABLE, TableConfig(tuple(expected), "python", "nats"), {"results": tuple(results)}
        )
        started, cpu = time.perf_counter(), time.process_time()
        build(store, table)
        print(f"{options.trials} trials: {time.perf_counter() - started:.2f} s, {time.process_time() - cpu:.2f} CPU s")
        print(f"rows: {resolve(store, table).manifest.statistics['rows_out']}")


if __name__ == "__main__":
    main()
