"""`python -m post_training job.json`: the whole interface between an orchestrator and post-training."""

import logging
import os
import signal
import sys
from pathlib import Path

from lineage.jobs.job import read_job
from post_training.held_out import score_held_out
from post_training.stage import HELD_OUT, REWARD_CHECKPOINT
from post_training.train import train_on_rewards
from trainer.running import running_of
from trainer.signals import LEFT, PreemptedError, Stop

FAULT = "MARIN_REWARD_FAULT"
"""`PHASE@ITERATION`: SIGKILL at the start of a phase (rollout, reward, update, save). Tests set it."""


def main(arguments: list[str]) -> None:
    if not arguments or "=" in arguments[-1]:
        raise SystemExit("usage: python -m post_training [NAME=VALUE ...] job.json (lineage/jobs/job.py describes the file)")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX warns about every back-end that is absent.
    *settings, file = arguments
    job, stop = read_job(Path(file)), Stop()
    if job.spec.stage == HELD_OUT.name:
        score_held_out(job)
        return
    if job.spec.stage != REWARD_CHECKPOINT.name:
        raise SystemExit(
            f"{file} is a job of {job.spec.stage}; post_training runs {REWARD_CHECKPOINT.name} and {HELD_OUT.name}"
        )
    stop.listen()
    try:
        train_on_rewards(job, running_of(os.environ, settings), stop, _fault_at(os.environ.get(FAULT, "")))
    except PreemptedError as error:
        logging.getLogger("post_training").warning("%s", error)
        raise SystemExit(LEFT) from error


def _fault_at(wanted: str):
    """Return a function that kills this process at a phase of an iteration."""

    def alive(phase: str, iteration: int) -> None:
        if wanted == f"{phase}@{iteration}":
            os.kill(os.getpid(), signal.SIGKILL)

    return alive


if __name__ == "__main__":
    main(sys.argv[1:])
