"""A slice of `make fuzz`: every target with few hostile inputs, the same in each run, and the runner's own promises."""

import importlib
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fuzz.__main__ import TARGETS
from fuzz.run import Target, run


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_hostile_inputs_are_read_or_refused_by_name(name):
    report = run(importlib.import_module(f"fuzz.targets.{name}").target(), inputs=150, seed=3, keep=False)
    assert report.faults == {}
    assert report.inputs >= 150


def test_a_run_that_is_stopped_says_of_how_many_inputs_it_tells():
    tried = []

    def attempt(data: bytes, folder: Path) -> None:
        tried.append(data)
        if len(tried) == 30:
            raise KeyboardInterrupt

    report = run(Target("stopped", [b"x"], attempt), inputs=100, seed=0, keep=False)
    assert (report.inputs, report.stopped, report.sound) == (30, True, False)
    assert str(report).startswith("stopped: stopped: 30 inputs")


def broken(data: bytes, folder: Path) -> None:
    """Breaks in each way that a target can."""
    match data[:1]:
        case b"k":
            raise KeyError("x")
        case b"u":
            b"\xff".decode()
        case b"s":
            time.sleep(60)
        case b"l":
            with suppress(BaseException):  # as a callback of the garbage collector loses what it raises
                time.sleep(60)
            time.sleep(0.5)
        case b"e":
            (folder.parent / "escaped").write_text("x")
        case b"v":
            raise ValueError("named")


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (b"k", "KeyError"),
        (b"u", "UnicodeDecodeError"),
        (b"s", "LateError"),
        (b"l", "late"),
        (b"e", "a path escaped"),
        (b"v", None),
        (b"o", None),
    ],
)
def test_the_runner_sees_each_way_to_break(seed, fault, monkeypatch):
    monkeypatch.setattr("fuzz.run.mutated", lambda seeds, draw: seeds[0])
    report = run(Target("broken", [seed], broken, seconds=0.2), inputs=1, seed=0, keep=False)
    assert [each.split(" at ")[0] for each in report.faults] == ([] if fault is None else [fault])
    assert report.sound == (fault is None)
