"""How far a job is, told to whoever launched it: lines of its output in the wire form of Dagster Pipes.

    {"__dagster_pipes_version": "0.1", "method": "report_custom_message", "params": {"payload": {"progress": {...}}}}

A launcher that asks for them (`MARIN_MESSAGES` in the job's environment) takes these lines out of the output and hands them on.
They ride with the log, so a watcher that lost its connection or died finds them again, and any reader of Pipes messages in a
log understands them. Nothing depends on one: what a job made is in the store (manifest first), and every message may be lost.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

ASKED = {"MARIN_MESSAGES": "pipes"}
"""Environment of jobs whose launcher reads messages."""
PIPES_VERSION = "0.1"
SECONDS = 30.0
"""Between two messages of one piece of work; its first and its last are always told."""


@dataclass(frozen=True)
class Note:
    """`done` of `total` units of some work, and what is measured of it by now."""

    work: str
    done: int
    total: int
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value:,.4g}" for name, value in self.numbers.items())
        return f"{self.work}: {self.done:,} of {self.total:,}" + (f" ({told})" if told else "")


@dataclass
class Progress:
    """Tells notes of one piece of work, not too many. Without a launcher that asks, nothing."""

    work: str
    total: int
    asked: bool = field(default_factory=lambda: ASKED.items() <= os.environ.items())
    last: float = float("-inf")

    def at(self, done: int, numbers: Callable[[], Mapping[str, float]] = dict) -> None:
        """Say so where it is time to. `numbers` are only made then."""
        if not self.asked or (done < self.total and time.monotonic() - self.last < SECONDS):
            return
        self.last = time.monotonic()
        sys.stdout.write(line_of(Note(self.work, done, self.total, numbers())))
        sys.stdout.flush()


def line_of(note: Note) -> str:
    params = {"payload": {"progress": asdict(note)}}
    return json.dumps({"__dagster_pipes_version": PIPES_VERSION, "method": "report_custom_message", "params": params}) + "\n"


def note_of(line: str) -> Note | None:
    """The note that a line of output is, or None for any other line."""
    if not line.startswith('{"__dagster_pipes_version"'):
        return None
    try:
        return Note(**json.loads(line)["params"]["payload"]["progress"])
    except (ValueError, KeyError, TypeError):  # cut by a kill, or a message of another sender: it is shown as it came
        return None
