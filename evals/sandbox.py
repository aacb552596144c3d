"""Run a program that nobody trusts, and say whether it came to its end: the tests of HumanEval and MBPP.

What holds it: namespaces of its own (mounts, processes, network without even loopback, IPC), a root of its own that has the
system's libraries and this Python read-only and a few megabytes of `/tmp`, a user that is nobody and has no capabilities, and
limits on CPU, wall time, memory, processes, files and their size (`evals/sandbox_child.py` sets them up). When its first
process ends, the kernel ends the others. It passes only by coming to the end of its text: the child then repeats a number
that it was given on its standard input, so `os._exit(0)`, a printed "ok" or an exception in place of an answer is no pass.

What it is not: a program that looks through its own interpreter's memory can find that number. Answers of models that are
trained to cheat need their tests in another process; the kernel's own faults are nobody's here. The tests were run as root
and as a user without rights (benchmarks/notes/2026-11-22-evals.md).

Where namespaces are refused (some containers), `run_program` raises and runs nothing: there is no weaker mode.
"""

import json
import secrets
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

CHILD = Path(__file__).with_name("sandbox_child.py")
SETUP_SECONDS = 20.0
"""On top of the program's own wall time: a loaded machine takes long to start a Python and to build a root."""
REFUSED = 77
"""The child's exit status when it could not build its walls."""
SHOWN_CHARACTERS = 2_000

type Outcome = Literal["passed", "failed", "timeout", "memory"]


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
    """What became of a program. `detail` is the last of what it wrote or raised."""

    outcome: Outcome
    detail: str

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


def run_program(source: str, limits: Limits | None = None) -> Run:
    """Run Python source to its end, or until a limit stops it.

    Raises: NoSandboxError where the walls cannot be built.
    """
    limits = limits or Limits()
    proof = secrets.token_hex(16)
    job = json.dumps({"source": source, "proof": proof, "limits": asdict(limits)})
    command = [sys.executable, "-I", "-S", str(CHILD)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env={}
    )
    try:
        written, errors = process.communicate(job, timeout=limits.wall_seconds + SETUP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # the outermost: with it dies the first process inside, and with that all the others
        process.communicate()
        return Run("timeout", f"no end within {limits.wall_seconds + SETUP_SECONDS:.0f} s, with the time to start it")
    if process.returncode == REFUSED:
        raise NoSandboxError(f"programs cannot be held here, so none was run: {errors.strip()[-SHOWN_CHARACTERS:]}")
    return _judged(written, errors, proof)


def _judged(written: str, errors: str, proof: str) -> Run:
    """The supervisor's last line is its report; without one it was killed with all it watched."""
    try:
        report = json.loads(written.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return Run("failed", f"the supervisor gave no report: {errors[-SHOWN_CHARACTERS:]}")
    if report["outcome"] != "ended":
        return Run(report["outcome"], report["detail"])
    passed = report["proof"] == proof
    return Run("passed" if passed else "failed", report["detail"] or ("" if passed else "it ended before its last line"))
