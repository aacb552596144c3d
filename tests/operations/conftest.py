"""Fixtures that the tests of operations share with those of the shell."""

from small import own_day, sailed

__all__ = ["own_day", "sailed"]
