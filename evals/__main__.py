"""`python -m evals job.json...`: the whole interface between an orchestrator and the evaluator."""

import logging
import sys
from functools import partial
from pathlib import Path

import jax

from evals.audit.contamination_scores import score_contamination
from evals.items.stage import CONTAMINATION_SCORES, EVAL_RESULT, EXPORT_CANARY, GAP, TRIAL_RESULT
from evals.reports.gap import measure_gap
from evals.tasks.evaluate import evaluate
from evals.tasks.export_check import check_export
from evals.tasks.trial_result import score_trial
from lineage.jobs.given_jobs import run_each, takes_many
from lineage.jobs.job import read_job
from lineage.jobs.job_list import job_files
from trainer.inference import sharing_programs


def main(arguments: list[str]) -> None:
    """Run the jobs of job files; the stage of each decides which evaluation it is."""
    if not arguments:
        raise SystemExit(
            "usage: python -m evals FILE..., jobs (lineage/jobs/job.py) or lists of jobs (job_list.py), or - for files "
            "named on standard input"
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX warns about every back-end that is absent.
    with job_files(arguments) as files:
        run_each(files, partial(_run, many=takes_many(files)))


def _run(file: Path, many: bool) -> None:
    job = read_job(file)
    engines = {
        EVAL_RESULT.name: evaluate,
        CONTAMINATION_SCORES.name: score_contamination,
        GAP.name: measure_gap,
        EXPORT_CANARY.name: check_export,
        TRIAL_RESULT.name: score_trial,
    }
    if job.spec.stage not in engines:
        raise ValueError(f"{file} is a job of {job.spec.stage}; the evaluator runs {', '.join(engines)}")
    if many and job.is_made():  # by a process before this one
        logging.getLogger("evals").info("%s is there already", job.spec.name)
        return
    with sharing_programs(job, jax.default_backend(), many=many):
        engines[job.spec.stage](job)


if __name__ == "__main__":
    main(sys.argv[1:])
