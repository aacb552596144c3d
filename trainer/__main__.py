"""`python -m trainer FILE`: run a job file of an orchestrator, or a spec file of a person (`trainer.spec_file`)."""

import faulthandler
import logging
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
from rich.console import Console

from lineage.artifact.store import Artifact
from lineage.jobs.job import job_folder
from trainer.determinism import ask
from trainer.processes import INDEX, NotMetError, join
from trainer.progress import shown
from trainer.running import running_of
from trainer.signals import LEFT, PreemptedError, Stop
from trainer.spec.stage import TRIAL
from trainer.spec_file import open_job
from trainer.train import train
from trainer.trial import run_trial


def main(arguments: list[str]) -> None:
    if not arguments or "=" in arguments[-1]:
        raise SystemExit(
            "usage: python -m trainer [NAME=VALUE ...] FILE, settings (trainer/running.py), then a spec "
            "(docs/recipes/add_a_run.md) or a job (lineage/jobs/job.py)"
        )
    *settings, file = arguments
    ask(os.environ)
    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX warns about every missing back-end
    # A thread in C: it prints all stacks and ends the process even if the interpreter is blocked or a peer hangs.
    watchdog = partial(faulthandler.dump_traceback_later, exit=True)
    console = Console(stderr=True)
    stop = Stop()
    stop.listen()  # before the processes meet, which may take minutes
    try:
        with shown(console, is_first=os.environ.get(INDEX, "0") == "0") as show:
            running = running_of(os.environ, settings)
            join(os.environ, stop)
            job = open_job(Path(file))
            run = run_trial if job.spec.stage == TRIAL.name else train
            checkpoint = run(job, running, stop, watchdog, show)
    except PreemptedError as error:
        logging.getLogger("trainer").warning("%s", error)
        raise SystemExit(LEFT) from error
    except NotMetError as error:
        logging.getLogger("trainer").error("%s", error)
        logging.shutdown()
        os._exit(error.code)  # not through JAX's shutdown, which waits for the thread that waits for the peers
    except Exception:
        if not jax.distributed.is_initialized():
            raise
        logging.getLogger("trainer").exception("this process failed; it ends at once so that its peers end too")
        logging.shutdown()
        os._exit(1)  # jax.distributed shutdown blocks for five minutes (measured): peers wait for this process in a collective
    if jax.process_index() == 0 and "diverged" not in checkpoint.manifest.extra:
        report(checkpoint, job_folder(job) / "loss.png", draw=console.is_terminal)


def report(checkpoint: Artifact, picture: Path, *, draw: bool) -> None:
    """Log where a checkpoint is, and on a terminal draw its loss curve; the UI draws its own.

    Another process draws, so that the code of a checkpoint does not depend on the version of a plotting package.
    """
    folder = checkpoint.folder() if checkpoint.store.storage.is_local else picture.with_suffix("")
    checkpoint.store.storage.fetch(
        f"{checkpoint.spec.address}/{checkpoint.manifest.data_folder}", ("metrics.parquet", "spec.json"), folder
    )
    command = [sys.executable, "-m", "trainer.picture", str(folder), str(picture)]
    logging.getLogger("trainer").info(
        "%s is at %s; its loss curve: %s", checkpoint.name, checkpoint.uri, picture if draw else shlex.join(command)
    )
    if draw:
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
