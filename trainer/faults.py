"""Inject faults, to test what a run survives: `MARIN_FAULTS=kill@37,kill-in-save@40/1,disk-full@20`.

Each fault happens once, at a step, in every process or in the process after the slash, and is logged. Only tests set them.
"""

import errno
import logging
import os
import re
import signal
import time
from dataclasses import dataclass

import jax

log = logging.getLogger("trainer")

KINDS = {
    "kill": ("step", "SIGKILL before a step"),
    "term": ("step", "SIGTERM before a step"),
    "hang": ("step", "a process that waits forever and still answers heartbeats"),
    "kill-in-save": ("save", "SIGKILL when a checkpoint's arrays are written and its manifest is not"),
    "disk-full": ("save", "OSError ENOSPC in a save"),
}


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, the step, and the process (None: all)."""

    kind: str
    step: int
    process: int | None = None


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Faults of an environment variable. Raises: ValueError listing the known kinds."""
    faults = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([a-z-]+)@(\d+)(?:/(\d+))?", part)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"MARIN_FAULTS has {part!r}; faults are KIND@STEP or KIND@STEP/PROCESS with {', '.join(KINDS)}")
        faults.append(Fault(match[1], int(match[2]), None if match[3] is None else int(match[3])))
    return tuple(faults)


def inject_fault(faults: tuple[Fault, ...], place: str, step: int) -> None:
    """Cause the faults of a place (`step` or `save`) at a step."""
    for fault in faults:
        if KINDS[fault.kind][0] != place or fault.step != step or fault.process not in (None, jax.process_index()):
            continue
        log.warning("fault injected at step %d: %s", step, KINDS[fault.kind][1])
        if fault.kind == "disk-full":
            raise OSError(errno.ENOSPC, "No space left on device (injected)")
        while fault.kind == "hang":
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM if fault.kind == "term" else signal.SIGKILL)
