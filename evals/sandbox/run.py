"""Run an untrusted program, and report whether it reached its end: the tests of HumanEval and MBPP.

The walls (`evals/sandbox/child.py` builds them): namespaces for mounts, processes, network (without loopback) and IPC; a root
with the system's libraries and this Python read-only, and a few megabytes of `/tmp`; a user without capabilities; limits on
CPU, wall time, memory, processes, files and their size. When the first process ends, the kernel ends the others. If a machine
refuses namespaces, as a pod does, Landlock and a seccomp filter take their place. Then the program is one process that reads
libraries and writes no file (`docs/design/sandbox.md` compares the two).

The tests give the verdict. They run in an interpreter and a process of their own (`evals/sandbox/calls.py`), call the program's
functions over a socket, and compare plain data. So the program sees neither the asserts nor the expected values, and nothing in
its memory or files can be read as a pass; frames, `gc`, `/proc` and ptrace lead nowhere.

Limits of this design: where tests call a helper of the program to judge an answer (HumanEval's 32, 38 and 50 do), the program
judges itself. Of an object that is not plain data the tests see only identity and attributes. They do not see a change to an
argument in place. Faults of the kernel are out of scope.
If the machine refuses both kinds of walls, `run_program` raises and runs nothing: there is no weaker mode.
"""

import functools
import json
import logging
import subprocess
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

log = logging.getLogger("evals.sandbox")
CHILD = Path(__file__).with_name("child.py")
SETUP_SECONDS = 20.0
"""Seconds on top of the program's own wall time: a loaded machine needs long to start Python and build a root."""
REFUSED = 77
"""The child's exit status if it could not build its walls."""
SHOWN_CHARACTERS = 2_000

type Outcome = Literal["passed", "failed", "timeout", "memory"]
type Walls = Literal["namespaces", "landlock", ""]


class NoSandboxError(RuntimeError):
    """This machine does not allow the walls; nothing was run."""


@dataclass(frozen=True)
class Limits:
    """Limits of a program. Memory is that of all its processes together, and `/tmp` is part of it.

    CPU time decides. Wall time ends a program that sleeps, and leaves room for a loaded machine: a gold solution of MBPP takes
    5.4 CPU seconds, and took more than 10 seconds of wall time.
    """

    wall_seconds: float = 30.0
    cpu_seconds: int = 10
    memory_mib: int = 512
    processes: int = 16
    open_files: int = 64
    disk_mib: int = 16

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise ValueError(f"limits.{name} is {value}; it must be positive")


@dataclass(frozen=True)
class Run:
    """The result of a program. `detail` is the end of what it wrote or raised; `walls` is the kind of walls, if known."""

    outcome: Outcome
    detail: str
    walls: Walls = ""
    results: tuple[bool, ...] | None = None
    """The list of booleans named `results` that the tests of a passed program left, if any."""

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


def run_program(
    program: str,
    tests: str,
    limits: Limits | None = None,
    names: Collection[str] = (),
    libraries: Collection[Path] = (),
) -> Run:
    """Run Python source and then its tests. They pass only at their end; a limit may stop either.

    Names that the tests neither define nor find in Python are the program's; `names` are the program's although Python has
    them. `libraries`: folders that the program may read beside Python's own, under the same paths.
    Raises: ValueError for empty tests, NoSandboxError if the walls cannot be built.
    """
    if not tests.strip():
        raise ValueError("the tests are empty; nothing would be judged, give at least one assert")
    limits = limits or Limits()
    job = {"source": program, "names": sorted(names), "limits": asdict(limits)}
    head = json.dumps(job | {"libraries": [str(folder) for folder in libraries]})
    text = f"{len(head):8d}{head}{json.dumps(tests)}"
    command = [sys.executable, "-I", "-S", str(CHILD)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env={}
    )
    try:
        written, errors = process.communicate(text, timeout=limits.wall_seconds + SETUP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # the outermost process: when it dies, so do the first process inside and then all others
        process.communicate()
        return Run("timeout", f"no end within {limits.wall_seconds + SETUP_SECONDS:.0f} s, with the time to start it")
    if process.returncode == REFUSED:
        raise NoSandboxError(f"programs cannot be held here, so none was run: {errors.strip()[-SHOWN_CHARACTERS:]}")
    return _run_of(written, errors)


def _run_of(written: str, errors: str) -> Run:
    """Parse the supervisor's last line, its report. Without one, the supervisor was killed with everything in the sandbox."""
    try:
        report = json.loads(written.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return Run("failed", f"the supervisor gave no report: {errors[-SHOWN_CHARACTERS:]}")
    if report["walls"] == "landlock":
        _say_landlock()
    results = report.get("results")
    return Run(report["outcome"], report["detail"], report["walls"], None if results is None else tuple(results))


@functools.cache
def _say_landlock() -> None:
    """Warn once a process that the walls are of the other kind."""
    log.warning("programs run behind Landlock, as this machine refuses namespaces: no other processes, no files are written")
