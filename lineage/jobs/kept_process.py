"""A launcher for many small jobs: one child process takes them one after another.

A start of the trainer takes seconds (Python, JAX, the first compilation of a shape), and the trial of a sweep may take less.
The child is `python -m module -` (`lineage.jobs.given_jobs`): it reads the path of a job file, runs it, says that it is over,
and reads the next. It leaves when its input closes.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lineage.jobs.child_processes import environment, job_failed, run_subprocess
from lineage.jobs.given_jobs import FROM_INPUT, status_of
from lineage.jobs.job import Attempt, Launcher, LaunchRecord, LaunchRequest
from lineage.project import PREFIX, lab_folder

PLACE = "kept child process"


class KeptProcess:
    """A launcher. At most one child is alive, because it may hold the memory of an accelerator: a job of another module, or
    with other arguments, ends it first. After a child that died the next job gets a new one."""

    def __init__(self) -> None:
        self._command: list[str] = []
        self._child: subprocess.Popen[str] | None = None

    def __call__(self, launch: LaunchRequest) -> LaunchRecord:
        """Run a job to its end, its output copied to stderr and the log. Raises: JobFailedError."""
        if launch.indices:  # processes that know their number; none of them takes a second job
            return run_subprocess(launch)
        child = self._child_for([sys.executable, "-m", f"{PREFIX}{launch.module}", *launch.arguments, FROM_INPUT])
        started = time.monotonic()
        status = None
        try:
            launch.log_path.parent.mkdir(parents=True, exist_ok=True)
            with launch.log_path.open("a") as log_file:
                for line in _output(child, str(launch.job_path)):
                    if (status := status_of(line)) is not None:
                        break
                    shown = launch.format_log_line(line)
                    sys.stderr.write(shown)
                    log_file.write(shown)
        except BaseException:  # the step is cancelled: the child saves what it has, and leaves
            child.terminate()
            self.end()
            raise
        if status is None:
            status = self.end() or 1  # it died, and a job that said nothing has not succeeded
        how = "done" if status == 0 else f"status {status}"
        attempt = Attempt(1, f"process {child.pid}", round(time.monotonic() - started, 1), how)
        launched = LaunchRecord(PLACE, "this machine", (attempt,))
        if status:
            raise job_failed(launch, [*self._command[:-1], str(launch.job_path)], status, launched)
        return launched

    def end(self) -> int:
        """Let the child leave; its exit status, 0 if there is none."""
        if self._child is None:
            return 0
        child, self._child = self._child, None
        assert child.stdin is not None and child.stdout is not None  # Popen opened them as pipes
        with suppress(BrokenPipeError):  # it died before it read the last path
            child.stdin.close()
        for _ in child.stdout:  # so that it never waits for a reader
            pass
        child.stdout.close()
        return child.wait()

    def _child_for(self, command: list[str]) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None or command != self._command:
            self.end()
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(
                command, cwd=lab_folder(), env=environment(), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
            )
            self._command = command
        return self._child


def _output(child: subprocess.Popen[str], path: str) -> Iterator[str]:
    """Give a child a path, and yield its lines from then on until it closes its output."""
    assert child.stdin is not None and child.stdout is not None
    with suppress(BrokenPipeError):  # it died after its last job; its output says why
        child.stdin.write(path + "\n")
        child.stdin.flush()
    yield from iter(child.stdout.readline, "")  # not from the pipe: it would be closed when the caller stops reading


@contextmanager
def keeping_process(launcher: Launcher) -> Iterator[Launcher]:
    """Yield a launcher that gives many jobs to one child process, if the given launcher starts a child for each."""
    if launcher is not run_subprocess:
        yield launcher
        return
    kept = KeptProcess()
    try:
        yield kept
    finally:
        kept.end()


def runs_here(launcher: Launcher | None) -> bool:
    """Whether a launcher starts jobs on this machine, with the hardware that it has."""
    return launcher is None or launcher is run_subprocess or isinstance(launcher, KeptProcess)
