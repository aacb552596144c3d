"""`python -m trainer FILE`: a job that an orchestrator wrote, or a spec that a person did (`trainer.spec_file`)."""

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

from lineage.jobs import job_folder
from lineage.store import Artifact
from trainer.determinism import ask
from trainer.processes import INDEX, NotMetError, join
from trainer.progress import shown
from trainer.running import running_of
from trainer.signals import LEFT, PreemptedError, Stop
from trainer.spec_file import open_job
from trainer.train import train


def main(arguments: list[str]) -> None:
    if not arguments or "=" in arguments[-1]:
        raise SystemExit(
            "usage: python -m trainer [NAME=VALUE ...] FILE, settings (trainer/running.py), then a spec "
            "(docs/recipes/add_a_run.md) or a job (lineage/jobs.py)"
        )
    *settings, file = arguments
    ask(os.environ)
    logging.getLogger("jax").setLevel(logging.WARNING)  # it tells of every backend that is not there
    # A thread in C: it ends the process, with the stack of every thread, whatever holds the interpreter or waits for a peer.
    watchdog = partial(faulthandler.dump_traceback_later, exit=True)
    console = Console(stderr=True)
    stop = Stop()
    stop.listen()  # before processes meet, which may take many minutes
    try:
        with shown(console, is_first=os.environ.get(INDEX, "0") == "0") as show:
            running = running_of(os.environ, settings)
            join(os.environ, stop)
            job = open_job(Path(file))
            made = train(job, running, stop, watchdog, show)
    except PreemptedError as told:
        logging.getLogger("trainer").warning("%s", told)
        raise SystemExit(LEFT) from told
    except NotMetError as told:
        logging.getLogger("trainer").error("%s", told)
        logging.shutdown()
        os._exit(told.code)  # not by way of JAX's farewell, which waits for the thread that waits for the peers
    except Exception:
        if not jax.distributed.is_initialized():
            raise
        logging.getLogger("trainer").exception("this process fails, and ends at once so that its peers do")
        logging.shutdown()
        os._exit(1)  # JAX's farewell waits five minutes for peers that wait for this process in a collective (measured)
    if jax.process_index() == 0:
        tell(made, job_folder(job) / "loss.png", draw=console.is_terminal)


def tell(made: Artifact, picture: Path, *, draw: bool) -> None:
    """Say where a run's checkpoint is, and draw its loss for whoever looks; the UI draws its own.

    A process of its own does it: what a checkpoint is made by must not follow the version of a package that draws.
    """
    folder = made.folder() if made.store.storage.is_local else picture.with_suffix("")
    made.store.storage.fetch(f"{made.spec.address}/{made.manifest.data_folder}", ("metrics.parquet", "spec.json"), folder)
    command = [sys.executable, "-m", "trainer.picture", str(folder), str(picture)]
    logging.getLogger("trainer").info(
        "%s is at %s; its loss curve: %s", made.name, made.uri, picture if draw else shlex.join(command)
    )
    if draw:
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
