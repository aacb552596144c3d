"""The job files that a process is given: `python -m module FILE...`, or `-` for files whose paths come on standard input."""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lineage.messages import ProgressMessage, is_asked, send

FROM_INPUT = "-"
ENDED = "marin: this job ended with status "
"""Start of the line that says that a job of `-` is over; the next path may come."""
_STARTED = "job "
log = logging.getLogger(__name__)


def takes_many(files: Sequence[str]) -> bool:
    """Whether a process runs more than one job."""
    return len(files) > 1 or FROM_INPUT in files


def run_each(files: Sequence[str], run: Callable[[Path], None], leave: tuple[type[Exception], ...] = ()) -> None:
    """Run job files one after another. With several, a job that fails is logged and leaves the others their turn.

    Raises: what `run` raises, for one file, and always what is in `leave`; SystemExit naming the files that failed.
    """
    if not takes_many(files):
        run(Path(files[0]))
        return
    failed = []
    for number, file in enumerate(_given(files)):
        status = 0
        if len(files) > 1 and is_asked():
            send(ProgressMessage(f"{_STARTED}{Path(file).stem}", number, len(files), {"failed": len(failed)}))
        try:
            run(Path(file))
        except leave:
            raise
        except Exception:
            log.exception("%s failed", file)
            failed.append(file)
            status = 1
        if FROM_INPUT in files:
            sys.stderr.flush()
            print(f"{ENDED}{status}", flush=True)
    if failed and FROM_INPUT not in files:
        raise SystemExit(f"{len(failed)} of {len(files)} jobs failed: {', '.join(failed)}")


def started_job(note: ProgressMessage) -> str | None:
    """Return the name of the job whose start a message of a process with several files says; `done` jobs ended before it."""
    return note.work.removeprefix(_STARTED) if note.work.startswith(_STARTED) else None


def status_of(line: str) -> int | None:
    """Return the status that a line of output reports, or None for any other line."""
    status = line.removeprefix(ENDED).strip()
    return int(status) if line.startswith(ENDED) and status.isdecimal() else None


def _given(files: Sequence[str]) -> Iterator[str]:
    for file in files:
        if file == FROM_INPUT:
            yield from (line.rstrip("\n") for line in iter(sys.stdin.readline, ""))
        else:
            yield file
