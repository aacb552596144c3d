"""The edits of `benchmarks/edits.py`, and what must happen after each: written before the lab is asked."""

from benchmarks.edits_code import fixes, refactors, silent
from benchmarks.edits_declared import configs, packages, recipe_values, sources
from benchmarks.edits_row import Edit


def edits() -> tuple[Edit, ...]:
    """Every row, in the order in which they are printed."""
    return (*silent(), *refactors(), *fixes(), *configs(), *recipe_values(), *sources(), *packages())
