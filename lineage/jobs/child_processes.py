"""The plain launcher: run a job as child processes of the step, one for each index."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lineage.jobs.job import Attempt, JobFailedError, LaunchRecord, LaunchRequest
from lineage.messages import ASKED
from lineage.project import IMPORT_ROOT, PREFIX, lab_folder

LOG_TAIL_LINES = 30
INDEX = "JOB_COMPLETION_INDEX"
"""Environment variable with the number of a process among several, as in Kubernetes' Indexed Jobs."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""For child processes: at every step XLA on CPU allocates its temporary memory again (236 MiB in the ferry), which takes 60,000
page faults of 4 KiB. With huge pages (glibc 2.35 and later; others ignore it) steps were 1.16 and 1.40 times faster in two
pairs, with bit-equal parameters (`benchmarks/huge_pages.py`, 2026-11-21)."""


def run_subprocess(launch: LaunchRequest, python: str = sys.executable) -> LaunchRecord:
    """Run `python -m module job.json` from the folder of the lab, once for each index, with output to stderr and the log.

    It runs on this machine's hardware; the hardware that a recipe names is for launchers that can choose. `python` is the
    interpreter, which may be that of another environment.
    """
    launch.log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", f"{PREFIX}{launch.module}", *launch.arguments, str(launch.job_path)]
    started = time.monotonic()
    with launch.log_path.open("a") as log_file, _children(command, launch.indices) as children:
        for line in _lines(children, launch):
            sys.stderr.write(line)
            log_file.write(line)
    seconds = round(time.monotonic() - started, 1)
    place = "child process" if len(children) == 1 else f"{len(children)} child processes"
    attempts = tuple(Attempt(1, f"process {child.pid}", seconds, _how_it_ended(child.returncode)) for child in children)
    launched = LaunchRecord(place, "this machine", attempts)
    failed = [child.returncode for child in children if child.returncode != 0]
    if failed:
        raise job_failed(launch, command, failed[0], launched)
    return launched


def job_failed(launch: LaunchRequest, command: Sequence[str], status: int, launched: LaunchRecord) -> JobFailedError:
    """Return the error of a job that ended with a status: its command and the end of its log."""
    tail = "\n".join(launch.log_path.read_text().splitlines()[-LOG_TAIL_LINES:])
    message = f"{launch.name}: `{' '.join(command)}` ended with status {status}; the end of {launch.log_path}:\n{tail}"
    return JobFailedError(message, launched)


def environment() -> dict[str, str]:
    """Return the environment of a job's process."""
    path = os.pathsep.join(filter(None, (str(IMPORT_ROOT), os.environ.get("PYTHONPATH"))))
    return {**HUGE_PAGES, **ASKED, **os.environ, "PYTHONPATH": path}


def _how_it_ended(status: int) -> str:
    return "done" if status == 0 else f"status {status}"


@contextmanager
def _children(command: Sequence[str], indices: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Yield the processes. At the end of the block they have ended; by SIGTERM if the block ends early."""
    root, base = lab_folder(), environment()
    children: list[subprocess.Popen[str]] = []
    try:
        for index in range(max(1, indices)):
            env: Mapping[str, str] = {**base, INDEX: str(index)} if indices else base
            pipe = subprocess.PIPE
            children.append(subprocess.Popen(command, cwd=root, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True))
        yield children
    except BaseException:
        for child in children:
            child.terminate()
        raise
    finally:
        for child in children:
            child.wait()


def _lines(children: Sequence[subprocess.Popen[str]], launch: LaunchRequest) -> Iterator[str]:
    """Yield the output of the children line by line until all have closed it; with several, each line starts with the index."""
    lines: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()

    def read(child: subprocess.Popen[str], prefix: str) -> None:
        assert child.stdout is not None  # Popen opened it as a pipe
        with child.stdout:
            for line in child.stdout:
                lines.put((prefix, line))
        lines.put(None)

    for index, child in enumerate(children):
        threading.Thread(target=read, args=(child, f"[{index}] " if launch.indices else ""), daemon=True).start()
    ended = 0
    while ended < len(children):
        next_line = lines.get()
        if next_line is None:
            ended += 1
        else:
            yield next_line[0] + launch.format_log_line(next_line[1])
