"""Summaries of attempts: how each attempt to make an artifact ran and ended. They are kept for ever, failures too.

    .operations/attempts/2026-11-25/20261125T063001-1f0c2d3e.json

A summary is written when the work starts (`running`) and replaced once when it ends. If the process is killed, the state stays
`running`. Nothing reads summaries to decide anything: they are for accounts (`operations.ledger`).
"""

import datetime
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from lineage.artifact.made_by import MadeBy, this_process
from lineage.artifact.manifest import ResourceUse
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.config import from_jsonable
from lineage.jobs.job import Attempt, JobFailedError, LaunchRecord
from lineage.shards.measure import measuring
from lineage.strangers import json_object, naming

SUMMARIES = ".operations/attempts"
"""Below the store's root; a key part cannot start with a dot, so no artifact lies there."""
THIS_MACHINE = "this machine"
MAX_WHY = 2_000
_FORMAT = "attempt/1"

type State = Literal["running", "done", "failed", "interrupted"]
"""`interrupted`: the step was stopped from outside, and a job that it launched on a cluster may go on."""


@dataclass(frozen=True)
class StepSummary:
    """One attempt to make an artifact. `seconds`, `cpu_seconds` and `peak_rss_bytes` are 0 while it runs.

    CPU seconds and memory are those of the process that started the attempt and of its children; a job on another machine has
    its own in the manifest.
    """

    id: str
    address: str
    process: str
    name: str
    stage: str
    run_id: str
    state: State
    why: str
    """Why it failed; empty if it did not."""
    started: str
    ended: str
    place: str
    hardware: str
    attempts: tuple[Attempt, ...]
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    made_by: MadeBy
    inputs: tuple[str, ...] = ()
    """Addresses of the inputs, which the attempt claims while it runs (`lineage.jobs.claims`)."""


@dataclass
class Running:
    """A running attempt. The caller sets where the job ran; the end of the block writes the summary."""

    summary: StepSummary
    launched: LaunchRecord | None = field(default=None)


@contextmanager
def summarizing(store: Store, spec: ArtifactSpec, run_id: str, hardware: str = "") -> Iterator[Running]:
    """Record the attempt that the block makes. `hardware`: what its job asks for, should the attempt fail before it runs."""
    running = Running(begin(store, spec, run_id, hardware))
    with measuring() as meter:
        try:
            yield running
        except BaseException as error:  # a cancelled or interrupted attempt costs what it has used
            if isinstance(error, JobFailedError):
                running.launched = error.launched
            end(store, running.summary, meter.use(), running.launched, error)
            raise
    end(store, running.summary, meter.use(), running.launched)


def begin(store: Store, spec: ArtifactSpec, run_id: str, hardware: str = "") -> StepSummary:
    """Write the summary of an attempt that starts, and return it. From now on the attempt claims its inputs."""
    now = datetime.datetime.now(datetime.UTC)
    started = StepSummary(
        id=f"{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}",
        address=spec.address,
        process=spec.process,
        name=spec.name,
        stage=spec.stage,
        run_id=run_id,
        state="running",
        why="",
        started=now.isoformat(timespec="seconds"),
        ended="",
        place="",
        hardware=hardware or THIS_MACHINE,
        attempts=(),
        seconds=0.0,
        cpu_seconds=0.0,
        peak_rss_bytes=0,
        made_by=this_process(),
        inputs=tuple(dict.fromkeys(ref.address for ref in spec.inputs)),
    )
    _write(store, started)
    return started


def end(
    store: Store, summary: StepSummary, use: ResourceUse, launched: LaunchRecord | None, error: BaseException | None = None
) -> None:
    """Write the end of an attempt: what it used, where it ran, and the error that ended it."""
    state: State = "done" if error is None else "failed" if isinstance(error, Exception) else "interrupted"
    ended = replace(
        summary,
        state=state,
        why="" if error is None else f"{type(error).__name__}: {error}"[:MAX_WHY],
        ended=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=use.wall_seconds,
        cpu_seconds=use.cpu_seconds,
        peak_rss_bytes=use.peak_rss_bytes,
    )
    if launched is not None:
        ended = replace(ended, place=launched.place, hardware=launched.hardware, attempts=launched.attempts)
    try:
        _write(store, ended)
    except OSError as unwritten:
        if error is None:
            raise
        # the disk is full, and that is what the attempt failed of
        error.add_note(f"the summary of this attempt stays `running`: {unwritten}")


def summaries_of_day(store: Store, day: str) -> list[str]:
    """Return the names of the summaries of the attempts that started on a day (`2026-11-25`)."""
    folder = f"{SUMMARIES}/{day}"
    return [f"{folder}/{name}" for name in store.storage.records(folder) if name.endswith(".json")]


def read_summary(text: str, where: str) -> StepSummary:
    """Read a summary. Raises: ValueError naming `where` for anything else."""
    with naming(where):
        record = json_object(text, where)
        if (form := record.pop("format")) != _FORMAT:
            raise ValueError(f"{where} has format {form!r}; this checkout reads {_FORMAT}")
        return from_jsonable(StepSummary, record, where)


def _write(store: Store, summary: StepSummary) -> None:
    text = json.dumps({"format": _FORMAT, **asdict(summary)}, ensure_ascii=False)
    store.storage.replace(f"{SUMMARIES}/{summary.started[:10]}/{summary.id}.json", text.encode())
