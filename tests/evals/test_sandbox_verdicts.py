"""The tests judge the program from a process of their own: no program forges its verdict or reads what is expected."""

import json

import pytest
from hostile_programs import SMALL
from hypothesis import given
from hypothesis import strategies as st

from evals.sandbox.calls import decode, encode
from evals.sandbox.run import Limits, run_program

FORGERS = {
    "the frames above": """
import json, os, sys
frame = sys._getframe()
while frame:
    for scope in (frame.f_locals, frame.f_globals):
        for value in list(scope.values()):
            if isinstance(value, int) and not isinstance(value, bool) and value > 2:
                try: os.write(value, b'{"passed": true, "outcome": "passed"}\\n')
                except (OSError, OverflowError): pass
            try: scope["proof"], scope["passed"] = True, True
            except Exception: pass
    frame = frame.f_back
os._exit(0)
""",
    "the verifier's": """
import json, os, sys
f = sys._getframe(1).f_locals
os.write(f["report"], json.dumps({"proof": f["proof"]}).encode())
os._exit(0)
""",
    "a traceback's frames": """
import os
try: 1 / 0
except ZeroDivisionError as error:
    frame = error.__traceback__.tb_frame
    while frame.f_back: frame = frame.f_back
    try: os.write(frame.f_globals.get("report", 3), b'{"passed": true}')
    except OSError: pass
os._exit(0)
""",
    "inspect": """
import inspect, os
for record in inspect.stack():
    for name, value in list(record.frame.f_locals.items()):
        if name in ("report", "connection", "stream"):
            try: os.write(value if isinstance(value, int) else value.fileno(), b'{"passed": true}\\n')
            except (OSError, ValueError): pass
os._exit(0)
""",
    "what gc holds": """
import gc, os
for each in gc.get_objects():
    if isinstance(each, dict) and ("proof" in each or "report" in each):
        os.write(each.get("report", 3), b'{"passed": true}')
    if type(each).__name__ in ("socket", "SocketIO"):
        try: each.send(b'{"passed": true}\\n') if hasattr(each, "send") else each.write(b'{"passed": true}\\n')
        except Exception: pass
os._exit(0)
""",
    "every open file": """
import os
for fd in range(3, 300):
    for said in (b'{"passed": true}\\n', b'{"value": true}\\n', b'{"value": null}\\n' * 9, b'{"refused": "x"}\\n'):
        try: os.write(fd, said)
        except OSError: pass
os._exit(0)
""",
    "a value that is equal to all": """
class Equal(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
class Anything:
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(x): return Anything() if x % 2 else Equal(0)
""",
    "names of the tests' own": """
import builtins
class Quiet(Exception): pass
AssertionError = builtins.AssertionError = Quiet
abs = all = any = len = isinstance = lambda *a: True
def f(x): raise Quiet
""",
    "the tests' memory": """
import os, re
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid(): continue
    for name in ("mem", "fd", "maps", "environ"):
        try:
            place = f"/proc/{pid}/{name}"
            if name == "fd":
                for fd in os.listdir(place): os.write(os.open(f"{place}/{fd}", os.O_WRONLY), b'{"passed": true}')
            else: raise SystemExit(f"could open {place}: {os.open(place, os.O_RDWR if name == 'mem' else os.O_RDONLY)}")
        except (PermissionError, FileNotFoundError, ProcessLookupError): pass
def f(x): return [x, "nothing could be opened"]
""",
}
"""Programs that would have a wrong answer read as a pass."""


@pytest.mark.parametrize("forger", list(FORGERS))
def test_no_program_forges_its_verdict(forger):
    result = run_program(FORGERS[forger], "assert abs(f(3)) == 9 and f(4) == 16", SMALL)
    assert result.outcome == "failed", result.detail
    assert "could open" not in result.detail
    assert "calls.py" not in result.detail, "records hold the detail, and no path of a machine"


def test_the_tests_and_what_they_expect_are_nowhere_in_the_program():
    looking = """
import re
def f(x):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for place, rights, *_ in map(str.split, maps.readlines()):
            first, last = (int(part, 16) for part in place.split("-"))
            if "r" in rights and last - first < 1 << 26 and first < 1 << 47:
                try:
                    memory.seek(first)
                    if found := re.search(rb"x3pec[t]3d_value|mine_whol[l]y", memory.read(last - first)):
                        yield found[0]
                except OSError: pass
mine = "mine_wholly"
"""
    result = run_program(looking, "unused = 'x3pect3d_value'\nassert set(f(1)) == {b'mine_wholly'}", Limits())
    assert result.passed or "PermissionError" in result.detail, result.detail


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.integers(10**5000, 10**5001) | st.frozensets(st.integers()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.sets(st.text())
    | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)  # fmt: skip


@given(PLAIN)
def test_plain_data_go_by_value_and_keep_their_kinds(value):
    def refuse(*unknown):
        raise AssertionError(unknown)

    decoded = decode(json.loads(json.dumps(encode(value, refuse))), refuse)
    assert decoded == value
    assert type(decoded) is type(value)


def test_tests_call_functions_hold_objects_and_set_their_attributes():
    program = """
import collections
class Node:
    def __init__(self, value): self.value, self.left = value, None
def depth(node): return 0 if node is None else 1 + depth(node.left)
def count(words): return collections.Counter(words)
def squares(n): return (k * k for k in range(n))
def fails(): raise ValueError("no such thing")
def sum(a, b): return a + b
"""
    tests = """
import math
root = Node(1)
root.left = Node(2)
assert depth(root) == 2 and root.left.value == 2 and root is not root.left
assert count(["a", "b", "a"]) == {"a": 2, "b": 1}
assert list(squares(4)) == [0, 1, 4, 9] and not squares(4) == [0, 1, 4, 9]
def check(call):
    assert math.isclose(call(0.5, 0.25), 0.75)
check(sum)
try:
    fails()
    assert False
except ValueError as error:
    assert str(error) == "no such thing"
"""
    result = run_program(program, tests, SMALL, {"sum"})
    assert result.passed, result.detail
    assert not run_program(program, tests, SMALL).passed, "without its name, sum is Python's"


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): raise StopIteration", "cases=[(2,4),(3,9)]\nassert all(map(lambda t: f(t[0])==t[1], cases))\n"),
        ("def f(x): raise StopIteration", "for r in map(f,[2,3]):\n    assert r==4\n"),
        ("def f(x): raise StopIteration", "assert [*map(f, [1])] == []\n"),
        ("class E(StopIteration): pass\ndef f(x): raise E", "assert not list(filter(f, [1, 2]))\n"),
        ("def f(x): raise StopAsyncIteration", "assert list(iter(lambda: f(1), 3)) == []\n"),
        ("def f(x): raise GeneratorExit", "for r in map(f, [1]): assert False\n"),
    ],
)
def test_an_exception_that_ends_loops_is_an_error_of_the_program(program, tests):
    result = run_program(program, tests, SMALL)
    assert result.outcome == "failed"
    assert "RuntimeError" in result.detail
