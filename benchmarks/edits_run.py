"""The run of `benchmarks/edits.py`: real stages over two small sources, to a tiny checkpoint, its evaluation and audit."""

import sys
from dataclasses import replace
from pathlib import Path

from recipes.records.placement import Daily
from recipes.records.run import Run

SOURCES = ("python_topics", "bucket")
DAY = "2026-11-20"


def edits_run() -> Run:
    """The small ferry of the tests over sources of its own, six steps instead of forty."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "shell"))
    from small_runs import small_run

    small = small_run("edits", *SOURCES)
    return replace(small, spec=replace(small.spec, num_steps=6, save_every_steps=3), place=Daily("ferry", DAY))
