"""`python -m trainer FILE...`: run job files of an orchestrator, or spec files of a person (`trainer.spec_file`)."""

import faulthandler
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path

import jax
from rich.console import Console

from lineage.artifact.store import Artifact
from lineage.jobs.child_processes import HUGE_PAGES
from lineage.jobs.given_jobs import run_each, takes_many
from lineage.jobs.job import job_folder
from lineage.jobs.job_list import job_files
from trainer.determinism import ask
from trainer.pair_scores import score_pairs
from trainer.processes import INDEX, NotMetError, join
from trainer.progress import Show, shown
from trainer.running import Running, running_of
from trainer.shared_programs import PublishesFirst, sharing_programs
from trainer.signals import LEFT, PreemptedError, Stop
from trainer.spec.pair_stage import PAIR_SCORES
from trainer.spec.stage import TRIAL
from trainer.spec_file import open_job
from trainer.train import train
from trainer.trial import run_trial


def main(arguments: list[str]) -> None:
    """Run specs or jobs with settings from the command line."""
    settings = list(takewhile(lambda argument: "=" in argument, arguments))
    given = arguments[len(settings) :]
    if not given or any("=" in file for file in given):
        raise SystemExit(
            "usage: python -m trainer [NAME=VALUE ...] FILE..., settings (trainer/running.py), then specs "
            "(docs/recipes/add_a_run.md) or jobs (lineage/jobs/job.py), or - for files named on standard input"
        )
    ask(os.environ)
    logging.getLogger("jax").setLevel(logging.WARNING)  # JAX warns about every missing back-end
    console = Console(stderr=True)
    stop = Stop()
    stop.listen()  # before the processes meet, which may take minutes
    try:
        with job_files(given) as files, shown(console, is_first=os.environ.get(INDEX, "0") == "0") as show:
            running = running_of(os.environ, settings)
            join(os.environ, stop)
            if takes_many(files) and jax.distributed.is_initialized():
                raise SystemExit(f"{len(files)} files for several processes; give one, so that all processes have the same job")
            how = _How(running, stop, show, takes_many(files), console.is_terminal)
            run_each(files, partial(_run, how=how), leave=(PreemptedError, NotMetError))
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


@dataclass(frozen=True)
class _How:
    """How a process runs the files that it is given."""

    running: Running
    stop: Stop
    show: Show
    many: bool
    draws: bool


def _run(file: Path, how: _How) -> None:
    # A thread in C: it prints all stacks and ends the process even if the interpreter is blocked or a peer hangs.
    watchdog = partial(faulthandler.dump_traceback_later, exit=True)
    job = open_job(file)
    if how.many and job.is_made():  # by a process before this one
        logging.getLogger("trainer").info("%s is there already", job.spec.name)
        return
    with sharing_programs(job, jax.default_backend(), many=how.many) as shared:
        show = how.show if shared is None else PublishesFirst(how.show, shared)
        try:
            if job.spec.stage == PAIR_SCORES.name:
                score_pairs(job)
                return
            run = run_trial if job.spec.stage == TRIAL.name else train
            checkpoint = run(job, how.running, how.stop, watchdog, show)
        finally:
            if how.many:  # a process that waits for the next file has not stalled
                faulthandler.cancel_dump_traceback_later()
    if jax.process_index() == 0 and "diverged" not in checkpoint.manifest.extra:
        report(checkpoint, job_folder(job) / "loss.png", draw=how.draws)


def with_huge_pages(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process by itself with the allocator that launchers ask for, unless GLIBC_TUNABLES is set already.

    glibc reads it when a program starts. Without it, steps on a CPU are 1.16 to 1.4 times slower (`HUGE_PAGES`).
    """
    if not environment.keys() >= HUGE_PAGES.keys():
        os.execve(sys.executable, list(command), {**HUGE_PAGES, **environment})


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
    with_huge_pages(sys.orig_argv, os.environ)
    main(sys.argv[1:])
