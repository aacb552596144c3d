"""The gold solutions of HumanEval and MBPP in the sandbox: every one must pass, or models are judged for its faults.

    PYTHONPATH=. .venv/bin/python benchmarks/gold_programs.py [--root .marin]

Reads the suites `humaneval` and `math_code` of the default line (`./marin materialize eval_suite/humaneval`, then
`eval_suite/math_code`), runs each solution with its item's tests as `evals.tasks.generation` runs a model's program, then
each item's tests behind a program that does nothing: none of those may pass. Prints counts, and what did not go as it
must.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from evals.items.item import Item, items_of, read_items
from evals.items.tasks.registry import task_named
from evals.sandbox.run import Limits, Run, run_program
from evals.tasks.generation import SANDBOXES, redefined_builtins
from lineage.build.nodes import resolve
from lineage.shards.execution import Execution
from recipes.data import suites
from recipes.studies.default import default_evaluation
from resources.lab import Lab


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=".marin")
    options = parser.parse_args()
    store = Lab.at(options.root, execution=Execution(1)).store
    nodes = [node for node in suites(default_evaluation().suites) if node.key[-1] in ("humaneval", "math_code")]
    items = [item for node in nodes for item in read_items(resolve(store, node))]
    held = True
    for task in ("humaneval", "mbpp"):
        held &= report(task, items_of(items, task))
    sys.exit(0 if held else 1)


def report(task: str, items: list[Item]) -> bool:
    """Run both kinds of programs of a task, and say whether all gold ones passed and no empty one did."""
    start = time.perf_counter()
    with ThreadPoolExecutor(SANDBOXES) as pool:
        gold = list(pool.map(lambda item: run(solution(item), item), items))
        empty = list(pool.map(lambda item: run("pass", item), items))
    passed, fooled = sum(run.passed for run in gold), sum(run.passed for run in empty)
    spent = (time.perf_counter() - start) / (2 * len(items))
    print(f"{task}: {passed} of {len(items)} gold solutions pass, {fooled} empty programs do; {spent:.2f} s a program")
    for item, run in zip(items, gold, strict=True):
        if not run.passed:
            print(f"  {item.item_id}: {description(run)}")
    return passed == len(items) and not fooled


def run(program: str, item: Item) -> Run:
    return run_program(program, item.code, Limits(), redefined_builtins(task_named(item.task), item))


def solution(item: Item) -> str:
    """Return the program of the gold solution. HumanEval's continues the prompt; MBPP's is complete."""
    return task_named(item.task).program_start(item) + item.solution


def description(run: Run) -> str:
    return f"{run.outcome}: {run.detail.strip().splitlines()[-1] if run.detail.strip() else 'nothing said'}"


if __name__ == "__main__":
    main()
