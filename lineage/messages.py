"""Progress messages from a job to its launcher: lines of its output in the wire format of Dagster Pipes.

    {"__dagster_pipes_version": "0.1", "method": "report_custom_message", "params": {"payload": {"progress": {...}}}}

A launcher that asks for them (`MARIN_MESSAGES` in the job's environment) takes these lines out of the output and passes them
on. They are in the log, so a watcher that lost its connection or died finds them again, and any reader of Pipes messages
understands them. Every message may be lost: the result of a job is in the store.
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
"""Seconds between two messages of one piece of work; the first and the last are always sent."""


@dataclass(frozen=True)
class ProgressMessage:
    """`done` of `total` units of some work, and numbers measured so far."""

    work: str
    done: int
    total: int
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:,.4g}" for name, value in self.numbers.items())
        return f"{self.work}: {self.done:,} of {self.total:,}" + (f" ({numbers})" if numbers else "")


@dataclass
class Progress:
    """Send messages of one piece of work at limited rate. Does nothing if no launcher asks for messages."""

    work: str
    total: int
    wanted: bool = field(default_factory=lambda: is_asked())
    last: float = float("-inf")

    def at(self, done: int, numbers: Callable[[], Mapping[str, float]] = dict) -> None:
        """Send a message if it is due. `numbers` is called only then."""
        if not self.wanted or (done < self.total and time.monotonic() - self.last < SECONDS):
            return
        self.last = time.monotonic()
        send(ProgressMessage(self.work, done, self.total, numbers()))


def is_asked() -> bool:
    """Whether the launcher of this process reads messages."""
    return ASKED.items() <= os.environ.items()


def send(note: ProgressMessage) -> None:
    """Write a message to the output, at once."""
    sys.stdout.write(line_of(note))
    sys.stdout.flush()


def line_of(note: ProgressMessage) -> str:
    """Return a progress message as a line of Dagster Pipes, with its line feed."""
    params = {"payload": {"progress": asdict(note)}}
    return json.dumps({"__dagster_pipes_version": PIPES_VERSION, "method": "report_custom_message", "params": params}) + "\n"


def note_of(line: str) -> ProgressMessage | None:
    """Return the message that a line of output holds, or None for any other line."""
    if not line.startswith('{"__dagster_pipes_version"'):
        return None
    try:
        return ProgressMessage(**json.loads(line)["params"]["payload"]["progress"])
    except (ValueError, KeyError, TypeError):  # cut by a kill, or a message of another sender: shown as it is
        return None
