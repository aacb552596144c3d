"""One line for each stage that a command makes; all other output goes to a log file."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import dagster as dg

WIDTH = 78


class StageLines:
    """Listens to the events of Dagster runs. Prints a line for each asset made, and on a terminal what is in progress."""

    def __init__(self, out: TextIO, total: int, made: int = 0) -> None:
        self._out, self._total, self._made = out, total, made
        self._started: dict[str, float] = {}
        self._live = out.isatty()

    def __call__(self, entry: dg.EventLogEntry, cursor: object = None) -> None:
        """Take one event of a run."""
        event = entry.dagster_event
        if event is None:
            self.note(entry.user_message)
        elif event.event_type is dg.DagsterEventType.STEP_START and event.step_key:
            self._started[event.step_key] = entry.timestamp
            self.note(event.step_key.replace("__", "/"))
        elif event.event_type is dg.DagsterEventType.ASSET_OBSERVATION:
            self.note(str(event.asset_observation_data.asset_observation.description))
        elif event.is_step_materialization:
            self._finished(event, entry.timestamp)

    def note(self, text: str) -> None:
        """Show what is in progress, in place of the note before it; on a terminal only."""
        if self._live:
            shown = " ".join(text.split())[: WIDTH - 2]
            self._out.write(f"\r\033[K  {shown}")
            self._out.flush()

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self._out.write(f"\r\033[K{text}\n" if self._live else f"{text}\n")
        self._out.flush()

    def reused(self, name: str) -> None:
        """Print that an artifact exists already."""
        self._made += 1
        self.line(f"{self._count()} {name:<48} {'reused':>8}")

    def _finished(self, event: dg.DagsterEvent, now: float) -> None:
        made = event.step_materialization_data.materialization
        name = made.asset_key.to_user_string() + (f"[{made.partition}]" if made.partition else "")
        reused = made.metadata.get("reused")
        seconds = now - self._started.get(str(event.step_key), now)
        if reused is not None and reused.value:
            self.reused(name)
            return
        self._made += 1
        self.line(f"{self._count()} {name:<48} {seconds:6.1f} s{_rows(made.metadata)}")

    def _count(self) -> str:
        return f"[{self._made:>2}/{self._total}]"


def _rows(metadata) -> str:
    rows = [metadata[name].value for name in ("rows_in", "rows_out") if name in metadata]
    if not rows or not all(isinstance(count, int) for count in rows):
        return ""
    return "  " + " > ".join(f"{count:,}" for count in dict.fromkeys(rows)) + " rows"


@contextmanager
def quiet(log_file: Path) -> Iterator[TextIO]:
    """Send what this process and its children print to a log file; yield the terminal, for the lines of stages."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log_file.open("a") as log, os.fdopen(os.dup(1), "w") as terminal:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv)}\n")
        log.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            terminal.flush()
            for target, source in zip((1, 2), kept, strict=True):
                os.dup2(source, target)
                os.close(source)
