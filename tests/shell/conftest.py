"""Session fixtures of the shell's tests."""

from small import own_day, real_definitions, sailed

__all__ = ["own_day", "real_definitions", "sailed"]
