"""Attacks on the sandbox, by what they are after (`sandbox_probes.txt`, `sandbox_forgeries.txt`), and right programs.

Each is the body of `attack()`, which gives something true if it got through.

A probe is refused when `attack()` gives something false or raises an OSError or a MemoryError, or when a limit ends the
program. Names in capitals stand for what the host has prepared (`sandbox_probe_run.Host`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import ctypes, mmap, os, resource, select, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
def opened(path, flags=os.O_RDONLY):
    fd = os.open(path, flags); os.close(fd); return True
def wrote(path):
    with open(path, "w") as out: out.write("x")
    return True
def call(number, *arguments): return libc.syscall(number, *arguments) >= 0
def children(count, work):
    made = 0
    for _ in range(count):
        try: pid = os.fork()
        except OSError: break
        if pid == 0:
            try: work()
            finally: os._exit(0)
        made += 1
    return made
def reached():
    try: return bool(attack())
    except (OSError, MemoryError): return False
    except ValueError as error: return "not allowed" not in str(error)
"""
TESTS = "assert not reached(), 'the attack got through'"


@dataclass(frozen=True)
class Probe:
    """`ends`: the attack may also be stopped by a limit, which ends the program."""

    subject: str
    name: str
    body: str
    ends: bool = False

    @property
    def program(self) -> str:
        lines = "\n".join(f"    {line}" for line in self.body.strip().splitlines())
        return f"{HEAD}\ndef attack():\n{lines}\n"


def _sections(file_name: str) -> Iterator[tuple[str, str]]:
    """Heading and text of each section of a file beside this one."""
    for section in Path(__file__).with_name(file_name).read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        yield heading, text.rstrip("\n")


def read_probes() -> list[Probe]:
    """All attacks."""
    probes = []
    for heading, body in _sections("sandbox_probes.txt"):
        subject, _, name = heading.partition(": ")
        probes.append(Probe(subject, name.removesuffix(" (ends)"), body, name.endswith(" (ends)")))
    return probes


PROBES = read_probes()
FORGED_HEAD = "import builtins, gc, inspect, json, os, socket, sys, threading\n"
FORGERIES = dict(_sections("sandbox_forgeries.txt"))
"""Programs whose answers are wrong, by name; their tests are `FORGED_TESTS`."""
FORGED_TESTS = """
assert abs(f(3)) == 9 and all(map(lambda x: f(x) == x * x, [4, 5]))
for found in map(f, [2]):
    assert found == 4
"""
GOLD = {
    "recursion": ("def f(n): return 1 if n < 2 else n * f(n - 1)", "assert f(20) == 2432902008176640000"),
    "standard library": (
        "import collections, heapq, itertools, math, random, re, statistics, string, datetime, decimal, fractions, json\n"
        "def f(words): return collections.Counter(words).most_common(1)[0][0]",
        "assert f(['a', 'b', 'a']) == 'a'",
    ),
    "objects": ("class A:\n    def __init__(self): self.x = 1\ndef f(): return A()", "assert f().x == 1"),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(n):\n    with ThreadPoolExecutor(2) as pool: return list(pool.map(abs, range(-n, 0)))",
        "assert f(3) == [3, 2, 1]",
    ),
    "asyncio": ("import asyncio\nasync def g(): return 4\ndef f(): return asyncio.run(g())", "assert f() == 4"),
    "much memory": ("def f(): return sum(bytearray(60 << 20)) + 1", "assert f() == 1"),
}
"""Right programs, with their tests."""
