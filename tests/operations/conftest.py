"""Fixtures that the tests of operations share with those of the shell."""

from small import sailed

__all__ = ["sailed"]
