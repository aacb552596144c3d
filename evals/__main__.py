"""`python -m evals job.json`: the whole interface between an orchestrator and the evaluator."""

import logging
import sys
from pathlib import Path

from evals.evaluate import evaluate
from lineage.jobs import read_job


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        raise SystemExit("usage: python -m evals job.json (lineage/jobs.py says what a job file holds)")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of every backend that is not there
    evaluate(read_job(Path(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
