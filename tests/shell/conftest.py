"""Session fixtures of the shell's tests."""

from small import finished_ferry, own_day, real_definitions

__all__ = ["finished_ferry", "own_day", "real_definitions"]
