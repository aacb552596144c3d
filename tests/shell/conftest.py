"""Session fixtures of the shell's tests."""

from small import real_definitions, sailed

__all__ = ["real_definitions", "sailed"]
