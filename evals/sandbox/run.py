"""Run a program that nobody trusts, and say whether it came to its end: the tests of HumanEval and MBPP.

What holds it: namespaces of its own (mounts, processes, network without even loopback, IPC), a root of its own that has the
system's libraries and this Python read-only and a few megabytes of `/tmp`, a user that is nobody and has no capabilities, and
limits on CPU, wall time, memory, processes, files and their size (`evals/sandbox/child.py` sets them up). When its first
process ends, the kernel ends the others. Where a machine refuses namespaces, as a pod does: Landlock and a seccomp filter,
behind which the program is one process that reads libraries and writes no file (`docs/design/sandbox.md` compares the two).

Who says that it passed: the tests, from an interpreter and a process of their own (`evals/sandbox/calls.py`). They call the
program's functions over a socket and compare plain data, so the program sees neither the asserts nor what they expect, and
has nothing in its memory or among its files that would read as a pass; frames, `gc`, `/proc` and ptrace lead nowhere. What a
program can still do: answer rightly. Where tests call a helper of the program's own to judge an answer (HumanEval's 32, 38 and
50 do), it judges itself; of an object that is no plain data the tests know identity and attributes alone, and a change to an
argument in place is not seen by them. The kernel's own faults are nobody's here.

Where both are refused, `run_program` raises and runs nothing: there is no weaker mode.
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
"""On top of the program's own wall time: a loaded machine takes long to start a Python and to build a root."""
REFUSED = 77
"""The child's exit status when it could not build its walls."""
SHOWN_CHARACTERS = 2_000

type Outcome = Literal["passed", "failed", "timeout", "memory"]
type Walls = Literal["namespaces", "landlock", ""]


class NoSandboxError(RuntimeError):
    """This machine does not let us build the walls; nothing was run."""


@dataclass(frozen=True)
class Limits:
    """What a program may use. Memory is of all its processes together, and `/tmp` is part of it.

    CPU time judges; wall time ends what sleeps, and leaves room for a loaded machine (a gold solution of MBPP takes 5.4 CPU
    seconds, and took more than 10 by the clock).
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
    """What became of a program. `detail` is the last of what it wrote or raised; `walls` is what held it, if that is known."""

    outcome: Outcome
    detail: str
    walls: Walls = ""
    results: tuple[bool, ...] | None = None
    """What the tests of a program that passed said by a list of booleans named `results`."""

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
    """Run Python source and then its tests, which pass at their end alone, or until a limit stops either.

    Names that the tests neither define nor find in Python are the program's; `names` are its own although Python has them.
    `libraries`: folders that it may read beside Python's own, under the same paths.
    Raises: ValueError for tests that hold nothing, NoSandboxError where the walls cannot be built.
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
        process.kill()  # the outermost: with it dies the first process inside, and with that all the others
        process.communicate()
        return Run("timeout", f"no end within {limits.wall_seconds + SETUP_SECONDS:.0f} s, with the time to start it")
    if process.returncode == REFUSED:
        raise NoSandboxError(f"programs cannot be held here, so none was run: {errors.strip()[-SHOWN_CHARACTERS:]}")
    return _run_of(written, errors)


def _run_of(written: str, errors: str) -> Run:
    """The supervisor's last line is its report; without one it was killed with all it watched."""
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
    """Once a process: the walls are another kind than on most machines."""
    log.warning("programs run behind Landlock, as this machine refuses namespaces: no other processes, no files are written")
