"""What every worker of a stage does first: in a module, for workers import what calls name, and a script is none."""

import sys
from importlib import import_module


def import_stage(module: str) -> None:
    """Import a stage's module and, where it calls compiled loops, load them: .7 s a process, whatever the source's size."""
    import_module(module)
    if "datakit.text.compiled" in sys.modules:
        import_module("datakit.compile_ahead").compile_ahead()
