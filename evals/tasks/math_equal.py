"""Equality of normalized answers of MATH: by text, else by SymPy in the sandbox, within its limits.

The program that is run is `math_inside.py`. Pairs go in batches, since a sandbox with SymPy takes a second to start; a batch
that hits a limit is asked again pair by pair, so one answer that never ends costs the others nothing.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

from evals.sandbox.run import Limits, Run, run_program

INSIDE = Path(__file__).with_name("math_inside.py")
BATCH = 50
BATCH_LIMITS = Limits(wall_seconds=240.0, cpu_seconds=200, memory_mib=1024)
PAIR_LIMITS = Limits(wall_seconds=60.0, cpu_seconds=20, memory_mib=1024)
"""`math_inside.PAIR_SECONDS` ends most pairs; these limits end what holds the interpreter."""
MOST_CHARACTERS = 1_000
"""Of an answer that SymPy is asked about; the longest gold answer of MATH has 159."""

type Pair = tuple[str, str]


def equal_pairs(pairs: Sequence[Pair]) -> list[bool]:
    """For each pair of normalized answers whether they are equal. Raises: NoSandboxError where programs cannot be held."""
    found = [one == other for one, other in pairs]
    asked = [place for place, pair in enumerate(pairs) if not found[place] and all(map(_is_askable, pair))]
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        for place, verdict in zip(batch, _asked([pairs[place] for place in batch]), strict=True):
            found[place] = verdict
    return found


def _is_askable(answer: str) -> bool:
    return 0 < len(answer) <= MOST_CHARACTERS


def _asked(batch: list[Pair]) -> list[bool]:
    run = _run(batch, BATCH_LIMITS)
    if run.results is not None and len(run.results) == len(batch):
        return list(run.results)
    if len(batch) == 1:
        return [False]  # it hit a limit: nobody showed that they are equal
    return [(_run([pair], PAIR_LIMITS).results or (False,))[0] for pair in batch]


def _run(batch: list[Pair], limits: Limits) -> Run:
    folders = _library_folders()
    source = f"import sys\nsys.path.append({str(folders[0].parent)!r})\n{INSIDE.read_text()}"
    return run_program(source, f"results = equal_all({batch!r})", limits, libraries=folders)


@functools.cache
def _library_folders() -> list[Path]:
    """Where the libraries lie. They are imported here once, so that compiled files lie beside them: without these a sandbox,
    which writes nothing, compiles them each time (8 s)."""
    import mpmath
    import sympy

    return [Path(str(library.__file__)).parent for library in (sympy, mpmath)]
