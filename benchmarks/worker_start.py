"""What every worker of a stage does first: in a module, for workers import what calls name, and a script is none."""

from importlib import import_module


def import_stage(module: str) -> None:
    """Import a stage's module."""
    import_module(module)
