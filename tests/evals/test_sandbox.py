"""Programs in the sandbox end at their limits, and what they do on their way out does not change the verdict."""

from dataclasses import replace

import pytest
from hostile_programs import END, SMALL, run

from evals.sandbox.run import Limits, run_program


def test_a_program_that_is_right_passes_with_the_standard_library_and_a_scratch_folder():
    source = "import math, collections, json\nopen('/tmp/a', 'w').write('x')\nassert math.gcd(4, 6) == 2\nprint('hello')"
    assert run(source).outcome == "passed"


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("assert 1 == 2, 'no'", "AssertionError: no"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("import os; os._exit(0)", "ended before its tests did"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("import atexit, os; print('{\"passed\": true}'); os._exit(0)", "ended before its tests did"),
    ],
)
def test_what_does_not_come_to_its_end_does_not_pass(source, detail):
    result = run(source)
    assert result.outcome == "failed"
    assert detail in result.detail


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("while True: pass", "timeout"),
        ("x = bytearray(10 * 2**30)", "memory"),
        ("x = []\nwhile True: x.append(bytearray(2**20))", "memory"),
        ("import os\nfor _ in range(5):\n  if os.fork() == 0:\n    x = bytearray(60 * 2**20)\n    x[:] = b'1' * len(x)\n"
         "    import time; time.sleep(600)\nimport time; time.sleep(600)", "memory"),
    ],
)  # fmt: skip
def test_time_and_memory_end_a_program(source, outcome):
    """A program that fills memory gets time to do so: on a busy machine a second is over first."""
    limits = SMALL if outcome == "timeout" else replace(SMALL, cpu_seconds=30)
    assert run(source, limits).outcome == outcome


def test_wall_time_ends_what_sleeps():
    assert run("import time; time.sleep(600)", replace(SMALL, wall_seconds=2.0)).outcome == "timeout"


def test_a_verdict_that_is_written_stands_however_long_the_tests_take_to_end():
    """They close everything, so that the program ends, and are held up on their own way out."""
    held_up = "import os, time\nleave = os._exit\nos._exit = lambda code: (os.closerange(3, 300), time.sleep(3), leave(code))"
    assert run_program(END, f"assert answer() == 42\n{held_up}", SMALL).passed
    result = run_program(END, f"{held_up}\nassert answer() == 43", SMALL)
    assert (result.outcome, "AssertionError" in result.detail) == ("failed", True)


def test_how_a_program_died_is_reported_however_long_that_took():
    """It lets go of the connection long before its end: the tests could take that for its end."""
    slow = "import os, signal, time\nos.closerange(3, 300)\ntime.sleep(2)\nos.kill(os.getpid(), signal.SIGKILL)"
    result = run(slow)
    assert (result.outcome, "ended by signal 9" in result.detail) == ("failed", True)


def test_what_a_program_leaves_behind_does_not_hold_its_tests_up():
    """It has the connection too, and never says anything."""
    result = run("import os, time\nif os.fork() == 0: time.sleep(600)\nos._exit(0)")
    assert (result.outcome, "ended before its tests did" in result.detail) == ("failed", True)


def test_bad_limits_are_refused():
    with pytest.raises(ValueError, match=r"limits.memory_mib is 0; it must be positive"):
        Limits(memory_mib=0)


def test_open_files_are_bounded():
    few = replace(SMALL, open_files=12)
    assert "Too many open files" in run("held = [open('/dev/null') for _ in range(20)]", few).detail
    assert run("held = [open('/dev/null') for _ in range(5)]", few).passed


def test_tests_that_hold_nothing_are_refused():
    with pytest.raises(ValueError, match="the tests are empty; nothing would be judged"):
        run_program("x = 1", " \n", SMALL)
