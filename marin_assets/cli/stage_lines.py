"""One line for each stage that a command makes; all other output goes to a log file."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import dagster as dg

WIDTH = 78
BAR = 24
DONE, LEFT = "━", "╌"


class Terminal:
    """Lines that stay and, on a terminal, one line below them that says what is in progress."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._live = out, out.isatty()

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self._out.write(f"\r\033[K{text}\n" if self._live else f"{text}\n")
        self._out.flush()

    def note(self, text: str) -> None:
        """Show what is in progress, in place of the note before it; on a terminal only."""
        if self._live:
            width = min(WIDTH, os.get_terminal_size(self._out.fileno()).columns or WIDTH)
            self._out.write(f"\r\033[K  {' '.join(text.split())[: width - 3]}")
            self._out.flush()

    def clear(self) -> None:
        """Remove the note."""
        if self._live:
            self._out.write("\r\033[K")
            self._out.flush()


class StageEvents:
    """Listens to the events of Dagster runs and shows what is in progress. Subclasses print lines for what was made."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._started: dict[str, float] = {}

    def __call__(self, entry: dg.EventLogEntry, cursor: object = None) -> None:
        """Take one event of a run."""
        event = entry.dagster_event
        if event is None:
            return
        if event.event_type is dg.DagsterEventType.STEP_START and event.step_key:
            self._started[event.step_key] = entry.timestamp
            self.terminal.note(event.step_key.replace("__", "/"))
        elif event.event_type is dg.DagsterEventType.ASSET_OBSERVATION:
            self.terminal.note(progress_bar(event.asset_observation_data.asset_observation))
        elif event.is_step_materialization:
            materialization = event.step_materialization_data.materialization
            self.materialized(materialization, entry.timestamp - self._started.get(str(event.step_key), entry.timestamp))

    def materialized(self, materialization: dg.AssetMaterialization, seconds: float) -> None:
        """Take what a step has made, and the seconds since the step began."""
        raise NotImplementedError


class StageLines(StageEvents):
    """Prints a line for each asset made."""

    def __init__(self, terminal: Terminal, total: int, done: int = 0) -> None:
        super().__init__(terminal)
        self._total, self._done = total, done

    def reused(self, name: str) -> None:
        """Print that an artifact exists already."""
        self._done += 1
        self.terminal.line(f"{self._count()} {name:<48} {'reused':>8}")

    def materialized(self, materialization: dg.AssetMaterialization, seconds: float) -> None:
        name = materialization.asset_key.to_user_string() + (
            f"[{materialization.partition}]" if materialization.partition else ""
        )
        if _is_reused(materialization):
            self.reused(name)
            return
        self._done += 1
        self.terminal.line(f"{self._count()} {name:<48} {seconds:6.1f} s{_rows([materialization])}")

    def _count(self) -> str:
        return f"[{self._done:>2}/{self._total}]"


@dataclass
class _Members:
    """The assets of one stage that a run has made so far."""

    materializations: list[dg.AssetMaterialization] = field(default_factory=list)
    seconds: float = 0.0


class CampaignLines(StageEvents):
    """Prints a line for each stage of a campaign when the last of its assets is made."""

    def __init__(self, terminal: Terminal, stages: Mapping[dg.AssetKey, str]) -> None:
        """`stages`: asset of the campaign -> name of its stage."""
        super().__init__(terminal)
        self._stages, self._sizes = stages, Counter(stages.values())
        self._members: dict[str, _Members] = {stage: _Members() for stage in self._sizes}
        self._finished = 0

    def materialized(self, materialization: dg.AssetMaterialization, seconds: float) -> None:
        stage = self._stages.get(materialization.asset_key)
        if stage is None:  # an input that a step makes on its way
            self.terminal.note(materialization.asset_key.to_user_string())
            return
        members = self._members[stage]
        members.materializations.append(materialization)
        members.seconds += seconds
        if len(members.materializations) == self._sizes[stage]:
            self._finished += 1
            self.terminal.line(f"[{self._finished:>2}/{len(self._sizes)}] {self._line(stage, members)}")

    def _line(self, stage: str, members: _Members) -> str:
        there = [each for each in members.materializations if "left_out" not in each.metadata]
        title = stage + (f" x{len(there)}" if self._sizes[stage] > 1 else "")
        took = "reused" if there and all(_is_reused(each) for each in there) else f"{members.seconds:6.1f} s"
        left_out = len(members.materializations) - len(there)
        return f"{title:<36} {took:>8}{_rows(there)}" + (f", {left_out} left out" if left_out else "")


def progress_bar(message: dg.AssetObservation) -> str:
    """Return a bar with the counts and the numbers of a job's message; its words alone if it counts nothing."""
    words, counts = (
        str(message.description),
        [message.metadata[each].value for each in ("done", "total") if each in message.metadata],
    )
    if len(counts) < 2 or not all(isinstance(count, int) and count >= 0 for count in counts):
        return words
    done, total = (int(str(count)) for count in counts)
    filled = round(BAR * min(1.0, done / max(1, total)))
    return f"{DONE * filled}{LEFT * (BAR - filled)} {words}"


def _is_reused(materialization: dg.AssetMaterialization) -> bool:
    return "reused" in materialization.metadata and bool(materialization.metadata["reused"].value)


def _rows(materializations: list[dg.AssetMaterialization]) -> str:
    """Return the rows that went into a stage and came out of it, summed over its assets."""
    counts = []
    for name in ("rows_in", "rows_out"):
        values = [each.metadata[name].value for each in materializations if name in each.metadata]
        if values and all(isinstance(value, int) for value in values):
            counts.append(sum(int(str(value)) for value in values))
    return "  " + " > ".join(f"{count:,}" for count in dict.fromkeys(counts)) + " rows" if counts else ""


@contextmanager
def quiet(log_file: Path, *, errors: bool = False, titled: bool = True) -> Iterator[Terminal]:
    """Send what this process and its children print to a log file; yield the terminal, for the lines of stages.

    With `errors` the lines go to standard error, because standard output is for the answer (`--json`). With `titled` the
    first line names the log file.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log_file.open("a") as log, os.fdopen(os.dup(2 if errors else 1), "w") as out:
        terminal = Terminal(out)
        if titled:
            terminal.line(f"stages  details are in {log_file}")
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv)}\n")
        log.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield terminal
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            terminal.clear()
            for target, source in zip((1, 2), kept, strict=True):
                os.dup2(source, target)
                os.close(source)
