"""Fixtures that the tests of operations share with those of the shell."""

from small import finished_ferry, own_day

__all__ = ["finished_ferry", "own_day"]
