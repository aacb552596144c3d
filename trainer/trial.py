"""A trial of a sweep: training that ends with a checkpoint, or with the record of its divergence."""

import json
import logging
from collections.abc import Callable

import jax

from lineage.artifact.store import Artifact
from lineage.jobs.job import Job
from lineage.shards.measure import measuring
from trainer.progress import Show
from trainer.running import Running
from trainer.signals import Stop
from trainer.train import train

log = logging.getLogger("trainer")

DIVERGED_FILE = "diverged.json"


def run_trial(job: Job, running: Running, stop: Stop, watchdog: Callable[[float], None], show: Show) -> Artifact:
    """Train; if the loss stops being finite or the guard stops the run, commit that as the trial's artifact.

    Divergence is a function of the spec and the data, so it is a result and not a failure. Whatever else training raises is
    raised.
    """
    try:
        return train(job, running, stop, watchdog, show)
    except FloatingPointError as error:
        log.warning("%s diverged: %s", job.spec.name, error)
        if jax.process_index() > 0:
            raise
        return _committed(job, str(error))


def _committed(job: Job, why: str) -> Artifact:
    with measuring() as cost, job.writing(job.spec, cost) as out:
        record = {"why": why}
        (out.folder / DIVERGED_FILE).write_text(json.dumps(record, indent=1) + "\n")
        out.extra["diverged"] = record
    return out.artifact
