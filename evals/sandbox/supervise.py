"""The supervisor's watch over the two processes of a sandbox, and what it reports. Loaded by its path (`child.py`)."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable

POLL_SECONDS = 0.02
END = b"\n"
"""Of a verdict: without it, what was written is half of one."""

type Excess = Callable[[list[int]], tuple[str, str]]
type End = Callable[[list[int]], None]


def supervise(
    program: int, tests: int, answering: socket.socket, reports: int, seconds: float, excess: Excess, end: End
) -> dict:
    """Wait for the verdict within its wall time and memory; when this returns, nothing of either runs.

    `excess`: the outcome and its detail when these processes hold more than they may; two empty texts otherwise.
    `end`: leaves none of these, nor what they started.

    `answering` is a second hold on the program's end of the connection. So the tests do not see its end before we have seen
    the program's, and know how it ended; then we close it, though what the program forked may hold it still.
    """
    deadline = time.monotonic() + seconds
    outcome = detail = ""
    verdict, ends = b"", dict[int, int]()
    os.set_blocking(reports, False)
    while not outcome:
        look_at(ends, program, tests)
        verdict += read_report(reports)  # in this order: who has ended has written all that it ever will
        if verdict.endswith(END) or tests in ends:
            outcome = "ended"
        elif time.monotonic() > deadline:
            outcome, detail = "timeout", f"no end within {seconds} s"
        else:
            outcome, detail = excess([each for each in (program, tests) if each not in ends])
            if program in ends:
                answering.shutdown(socket.SHUT_RDWR)  # what it had said is still read
            if not outcome:
                select.select([reports], [], [], POLL_SECONDS)
    end([each for each in (program, tests) if each not in ends])
    verdict_fields = json.loads(verdict) if verdict.endswith(END) else {}
    if "refused" in verdict_fields:
        return verdict_fields
    return verdict_of(outcome, detail, verdict_fields, ends.get(program), ends.get(tests))


def verdict_of(outcome: str, detail: str, verdict_fields: dict, program: int | None, tests: int | None) -> dict:
    """What goes out, of the wait statuses of both processes (None: it was killed here)."""
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
    """Put down the wait statuses of those that have ended."""
    for child in children:
        if child not in ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                ends[child] = status


def read_report(reports: int) -> bytes:
    """What has come since of the verdict, which only the tests' process can write."""
    try:
        return os.read(reports, 1 << 16)
    except BlockingIOError:
        return b""
