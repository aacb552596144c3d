"""`python -m trainer job.json`: the whole interface between an orchestrator and the trainer."""

import logging
import os
import sys
from pathlib import Path

from lineage.jobs import read_job
from trainer.processes import join
from trainer.running import running_of
from trainer.signals import LEFT, PreemptedError, Stop
from trainer.train import train


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        raise SystemExit("usage: python -m trainer job.json (lineage/jobs.py says what a job file holds)")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of every backend that is not there
    running = running_of(os.environ)
    join(os.environ)
    stop = Stop()
    stop.listen()
    try:
        train(read_job(Path(arguments[0])), running, stop)
    except PreemptedError as told:
        logging.getLogger("trainer").warning("%s", told)
        raise SystemExit(LEFT) from told


if __name__ == "__main__":
    main(sys.argv[1:])
