"""`python -m evals job.json`: the whole interface between an orchestrator and the evaluator."""

import logging
import sys
from pathlib import Path

from evals.audit.contamination_scores import score_contamination
from evals.items.stage import CONTAMINATION_SCORES, EVAL_RESULT, EXPORT_CANARY, GAP, TRIAL_RESULT
from evals.reports.gap import measure_gap
from evals.tasks.evaluate import evaluate
from evals.tasks.export_check import check_export
from evals.tasks.trial_result import score_trial
from lineage.jobs.job import read_job


def main(arguments: list[str]) -> None:
    """Run the job of a job file; its stage decides which evaluation it is."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m evals job.json (lineage/jobs/job.py says what a job file holds)")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX warns about every back-end that is absent.
    job = read_job(Path(arguments[0]))
    engines = {
        EVAL_RESULT.name: evaluate,
        CONTAMINATION_SCORES.name: score_contamination,
        GAP.name: measure_gap,
        EXPORT_CANARY.name: check_export,
        TRIAL_RESULT.name: score_trial,
    }
    if job.spec.stage not in engines:
        raise SystemExit(f"{arguments[0]} is a job of {job.spec.stage}; the evaluator runs {', '.join(engines)}")
    engines[job.spec.stage](job)


if __name__ == "__main__":
    main(sys.argv[1:])
