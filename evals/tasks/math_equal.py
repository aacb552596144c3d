"""Compare normalized answers of MATH: by text, else by SymPy in the sandbox with limits.

The program that is run is `math_inside.py`. Pairs go in batches, since a sandbox with SymPy takes a second to start; a batch
that hits a limit runs again pair by pair, so one endless answer does not affect the others.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

from evals.sandbox.run import Limits, Run, run_program

INSIDE = Path(__file__).with_name("math_inside.py")
BATCH = 50
BATCH_LIMITS = Limits(wall_seconds=240.0, cpu_seconds=200, memory_mib=1024)
PAIR_LIMITS = Limits(wall_seconds=60.0, cpu_seconds=20, memory_mib=1024)
"""`math_inside.PAIR_SECONDS` ends most pairs; these limits end operations that block the interpreter."""
MOST_CHARACTERS = 1_000
"""Longest answer, in characters, that SymPy compares; the longest gold answer of MATH has 159."""

type Pair = tuple[str, str]


def equal_pairs(pairs: Sequence[Pair]) -> list[bool]:
    """Whether each pair of normalized answers is equal. Raises: NoSandboxError if this machine cannot build a sandbox."""
    equal = [one == other for one, other in pairs]
    unequal_places = [place for place, pair in enumerate(pairs) if not equal[place] and all(map(_is_askable, pair))]
    for start in range(0, len(unequal_places), BATCH):
        batch = unequal_places[start : start + BATCH]
        for place, verdict in zip(batch, _compare([pairs[place] for place in batch]), strict=True):
            equal[place] = verdict
    return equal


def _is_askable(answer: str) -> bool:
    return 0 < len(answer) <= MOST_CHARACTERS


def _compare(batch: list[Pair]) -> list[bool]:
    run = _run(batch, BATCH_LIMITS)
    if run.results is not None and len(run.results) == len(batch):
        return list(run.results)
    if len(batch) == 1:
        return [False]  # a limit ended it, so equality was not shown
    return [(_run([pair], PAIR_LIMITS).results or (False,))[0] for pair in batch]


def _run(batch: list[Pair], limits: Limits) -> Run:
    folders = _library_folders()
    source = f"import sys\nsys.path.append({str(folders[0].parent)!r})\n{INSIDE.read_text()}"
    return run_program(source, f"results = equal_all({batch!r})", limits, libraries=folders)


@functools.cache
def _library_folders() -> list[Path]:
    """Folders of SymPy's libraries. They are imported here once, so that compiled files exist beside them. A sandbox cannot
    write, so without these files it compiles the libraries each time (8 s)."""
    import mpmath
    import sympy

    return [Path(str(library.__file__)).parent for library in (sympy, mpmath)]
