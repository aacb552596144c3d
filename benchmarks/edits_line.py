"""The line of `benchmarks/edits.py`: real stages over two small sources, to a tiny checkpoint, its evaluation and audit."""

import sys
from dataclasses import replace
from pathlib import Path

from recipes.lines import Line

SOURCES = ("python_topics", "bucket")
DAY = "2026-11-20"


def edits_line() -> Line:
    """The small ferry of the tests over sources of its own, six steps instead of forty."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "shell"))
    from small_lines import small_line

    line = small_line("edits")
    run = replace(line.run, num_steps=6, save_every_steps=3)
    return replace(line, sources=SOURCES, prefix=("ferry",), day=DAY, run=run)
