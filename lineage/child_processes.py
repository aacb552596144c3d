"""The plain launcher: jobs as child processes of the step, one a job or one an index."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lineage.jobs import Attempt, Launch, Launched
from lineage.messages import ASKED

LOG_TAIL_LINES = 30
INDEX = "JOB_COMPLETION_INDEX"
"""Which of several processes this is, as Kubernetes' Indexed Jobs tell it."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""For the children of a launcher: XLA on CPU takes its temporary memory (236 MiB in the ferry's step) anew from the system at
every step, 60,000 page faults of 4 KiB. With huge pages (glibc from 2.35; others ignore it) steps are 1.16 and 1.40 times
faster in two pairs, and the parameters the same bits (`benchmarks/huge_pages.py`, 2026-11-21)."""


def run_subprocess(launch: Launch) -> Launched:
    """Run `python -m module job.json` from the repository's root, as often as there are indices; output to stderr and the log.

    It runs on whatever this machine has; hardware that a recipe names is for launchers that can choose.
    """
    launch.log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", launch.module, *launch.arguments, str(launch.job_path)]
    started = time.monotonic()
    with launch.log_path.open("a") as log_file, _children(command, launch.indices) as children:
        for line in _lines(children, launch):
            sys.stderr.write(line)
            log_file.write(line)
    failed = [child.returncode for child in children if child.returncode != 0]
    if failed:
        tail = "\n".join(launch.log_path.read_text().splitlines()[-LOG_TAIL_LINES:])
        raise RuntimeError(
            f"{launch.name}: `{' '.join(command)}` ended with status {failed[0]}; the end of {launch.log_path}:\n{tail}"
        )
    seconds = round(time.monotonic() - started, 1)
    attempts = tuple(Attempt(1, f"process {child.pid}", seconds, "done") for child in children)
    return Launched("child process" if len(children) == 1 else f"{len(children)} child processes", "this machine", attempts)


@contextmanager
def _children(command: Sequence[str], indices: int) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes; at the end of the block they have ended, by SIGTERM where it ends early."""
    root = Path(__file__).resolve().parent.parent
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    base = {**HUGE_PAGES, **ASKED, **os.environ, "PYTHONPATH": path}
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


def _lines(children: Sequence[subprocess.Popen[str]], launch: Launch) -> Iterator[str]:
    """What children say, line by line, until all have closed their output; of several, with their index in front."""
    lines: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()

    def read(child: subprocess.Popen[str], prefix: str) -> None:
        assert child.stdout is not None  # opened as a pipe
        with child.stdout:
            for line in child.stdout:
                lines.put((prefix, line))
        lines.put(None)

    for index, child in enumerate(children):
        threading.Thread(target=read, args=(child, f"[{index}] " if launch.indices else ""), daemon=True).start()
    ended = 0
    while ended < len(children):
        found = lines.get()
        if found is None:
            ended += 1
        else:
            yield found[0] + launch.said(found[1])
