"""Run one target: mutated inputs one after the other, each with a time limit; inputs that break the target are kept.

An attempt may return, or raise an error that names what is wrong: a `ValueError` of ours, or what the target lists. It breaks
the target by any other exception, by running over its time, by writing outside its folder, or by growing: the resident size
after the last input may exceed that after the first tenth by 64 MiB.
"""

import gc
import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from fuzz.mutate import mutated

FOUND = Path(__file__).with_name("found")
MOST_GROWTH_MIB = 64
SHOWN_FAULTS = 20
"""Faults of one kind count once; the run ends after this many kinds."""
UNNAMED = (UnicodeError, json.JSONDecodeError)
"""ValueErrors whose messages do not describe the input."""


class LateError(BaseException):
    """An attempt exceeds its time. Not an `Exception`, so that the code under test does not catch it."""


@dataclass(frozen=True)
class Target:
    """The code under test. `attempt(data, folder)` may write below the folder, which is emptied before each input."""

    name: str
    seeds: list[bytes]
    attempt: Callable[[bytes, Path], None]
    named: tuple[type[Exception], ...] = ()
    """Errors that are answers, beside `ValueError`."""
    seconds: float = 10.0
    """Seconds allowed for one attempt."""


@dataclass
class Report:
    """The result of a run."""

    target: str
    inputs: int = 0
    returned: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    """Kind of fault -> the kept file and the message."""
    longest_seconds: float = 0.0
    growth_mib: float = 0.0
    stopped: bool = False
    """Whether a person stopped it (Ctrl-C, SIGINT) before all inputs were tried."""

    @property
    def sound(self) -> bool:
        return not self.faults and self.growth_mib <= MOST_GROWTH_MIB and not self.stopped

    def __str__(self) -> str:
        refused = self.inputs - self.returned - len(self.faults)
        return ("stopped: " if self.stopped else "") + (
            f"{self.target}: {self.inputs} inputs, {self.returned} read, {refused} refused by name, {len(self.faults)} faults; "
            f"the longest took {self.longest_seconds:.2f} s; memory grew by {self.growth_mib:.1f} MiB after the first tenth"
        )


def run(target: Target, inputs: int, seed: int, keep: bool = True) -> Report:
    """Run the kept cases first, then `inputs` mutated ones. SIGINT stops it, and the report says of how many inputs it is."""
    report, draw = Report(target.name), random.Random(f"{target.name} {seed}")
    kept = [path.read_bytes() for path in sorted((FOUND / target.name).glob("*")) if path.is_file()]
    before = signal.signal(signal.SIGALRM, _late)
    try:
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top) / "inside"
            folder.mkdir()
            start = 0.0
            try:
                for number in range(len(kept) + inputs):
                    data = kept[number] if number < len(kept) else mutated(target.seeds, draw)
                    fault = _attempted(target, data, folder, report)
                    if escaped := [path.name for path in Path(top).iterdir() if path != folder]:
                        fault = ("a path escaped", f"it wrote {escaped} outside its folder")
                    if fault is not None and fault[0] not in report.faults:
                        report.faults[fault[0]] = f"{_kept(target.name, data) if keep else ''} {fault[1]}"
                    _empty(folder)
                    if number == len(kept) + inputs // 10:
                        start = resident_mib()
                    if len(report.faults) >= SHOWN_FAULTS:
                        break
            except KeyboardInterrupt:
                report.stopped = True
            report.growth_mib = resident_mib() - start if start else 0.0
    finally:
        signal.signal(signal.SIGALRM, before)
    return report


def _attempted(target: Target, data: bytes, folder: Path, report: Report) -> tuple[str, str] | None:
    """Return the fault and its message; None if the target handled the input."""
    report.inputs += 1
    began = time.monotonic()
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, target.seconds)
            target.attempt(data, folder)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        report.returned += 1
        fault = None
    except target.named:
        fault = None
    except ValueError as error:
        fault = None if not isinstance(error, UNNAMED) and str(error) else _where(error)
    except (Exception, LateError) as error:
        fault = _where(error)
    took = time.monotonic() - began
    report.longest_seconds = max(report.longest_seconds, took)
    if fault is None and took > 2 * target.seconds:
        # An error raised in a callback of the garbage collector is printed and lost, so LateError may not arrive.
        return "late", f"it took {took:.1f} s and was not stopped; at most {target.seconds:g} s are allowed"
    return fault


def _where(error: BaseException) -> tuple[str, str]:
    """Kind of a fault with the line of ours that it came through last, and what it says."""
    frames = traceback.extract_tb(error.__traceback__)
    foreign = ("site-packages", "/lib/python", "<frozen")
    ours = [frame for frame in frames if not any(part in frame.filename for part in foreign)]
    last = ours[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno} {last.name}", str(error)[:150]


def _kept(name: str, data: bytes) -> str:
    place = FOUND / name / blake2b(data, digest_size=6).hexdigest()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place.name


def _late(*_: object) -> None:
    raise LateError("it runs over its time")


def _empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
