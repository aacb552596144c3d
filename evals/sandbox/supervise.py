"""The supervisor's watch over the two processes of a sandbox, and its report. `child.py` loads this file by its path."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable

POLL_SECONDS = 0.02
END = b"\n"
"""The end of a verdict: a text without it is incomplete."""

type Excess = Callable[[list[int]], tuple[str, str]]
type End = Callable[[list[int]], None]


def supervise(
    program: int, tests: int, answering: socket.socket, reports: int, seconds: float, excess: Excess, end: End
) -> dict:
    """Wait for the verdict within its wall time and memory. On return no process of either side runs.

    `excess`: returns the outcome and its detail if these processes hold more than they may, else two empty texts. `end`: ends
    all of these processes and what they started. `answering`: a second descriptor of the program's end of the connection. It
    keeps the tests from seeing the end of the connection before we know how the program ended. Then we close it, although
    children of the program may still hold it.
    """
    deadline = time.monotonic() + seconds
    outcome = detail = ""
    verdict, ends = b"", dict[int, int]()
    os.set_blocking(reports, False)
    while not outcome:
        look_at(ends, program, tests)
        verdict += read_report(reports)  # in this order: a process that has ended writes nothing more
        if verdict.endswith(END) or tests in ends:
            outcome = "ended"
        elif time.monotonic() > deadline:
            outcome, detail = "timeout", f"no end within {seconds} s"
        else:
            outcome, detail = excess([each for each in (program, tests) if each not in ends])
            if program in ends:
                answering.shutdown(socket.SHUT_RDWR)  # the text that it wrote before is still read
            if not outcome:
                select.select([reports], [], [], POLL_SECONDS)
    end([each for each in (program, tests) if each not in ends])
    verdict_fields = json.loads(verdict) if verdict.endswith(END) else {}
    if "refused" in verdict_fields:
        return verdict_fields
    return verdict_of(outcome, detail, verdict_fields, ends.get(program), ends.get(tests))


def verdict_of(outcome: str, detail: str, verdict_fields: dict, program: int | None, tests: int | None) -> dict:
    """Return the verdict by the wait statuses of both processes (None: we killed it)."""
    signals = [os.WTERMSIG(status) for status in (program, tests) if status is not None and os.WIFSIGNALED(status)]
    if outcome in ("timeout", "memory", "failed"):
        return {"outcome": outcome, "detail": detail}
    if verdict_fields.get("memory"):
        return {"outcome": "memory", "detail": "MemoryError"}
    if verdict_fields.get("passed") is True:
        return {"outcome": "passed", "detail": "", "results": verdict_fields.get("results")}
    if signal.SIGXCPU in signals:
        return {"outcome": "timeout", "detail": "its CPU time was over"}
    raised = verdict_fields.get("raised", "the program ended before its tests did")
    return {"outcome": "failed", "detail": f"{raised}; ended by signal {signals[0]}" if signals else raised}


def look_at(ends: dict[int, int], *children: int) -> None:
    """Record the wait statuses of processes that have ended."""
    for child in children:
        if child not in ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                ends[child] = status


def read_report(reports: int) -> bytes:
    """Read the new part of the verdict, which only the tests' process can write."""
    try:
        return os.read(reports, 1 << 16)
    except BlockingIOError:
        return b""
