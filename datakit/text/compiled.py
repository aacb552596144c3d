"""Loops over characters and hashes, compiled by numba: what array code would do in many passes over memory is done in one.

A compiled function is plain Python over numpy arrays, and `.python` of it can be called and debugged as such. It is compiled at
its first call (half a second to two), never at import, and the program is kept beside the source, or below the user's cache or
`NUMBA_CACHE_DIR` where that cannot be written, for the next process: that one loads it in 5 ms, after .2 s of importing numba
and .4 s in which numba learns its own types (65 MiB). A process that calls nothing compiled does neither. A compiled function
calls no other function of ours: numba sees only that a program's own file has changed. Every one has a slow obvious counterpart
in tests/.
"""

import logging
from collections.abc import Callable
from functools import cached_property, update_wrapper

import numpy as np

LOG = logging.getLogger(__name__)


class Compiled[**P, R]:
    """A function that is compiled when it is first called. Other threads run meanwhile.

    Arrays come to it read-only and in one piece, whatever they were. So there is one program for a function, and processes that
    compile it at the same time write the same file: numba names files of several programs by their number alone.
    """

    def __init__(self, python: Callable[P, R]) -> None:
        self.python = python
        update_wrapper(self, python)

    @cached_property
    def program(self) -> Callable[P, R]:
        """The compiled function. Says so where it must be compiled anew in every process, because no folder keeps it."""
        import numba  # here, not above: see the module's docstring

        try:
            return numba.njit(self.python, cache=True, nogil=True)
        except RuntimeError as error:
            LOG.warning("%s is compiled again in every process (set NUMBA_CACHE_DIR): %s", self.python.__qualname__, error)
            return numba.njit(self.python, nogil=True)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.program(*map(_read_only, args), **kwargs)  # pyrefly: ignore[invalid-param-spec]


def _read_only(value: object) -> object:
    if not isinstance(value, np.ndarray):
        return value
    view = np.ascontiguousarray(value).view()
    view.flags.writeable = False
    return view


def compiled[**P, R](python: Callable[P, R]) -> Compiled[P, R]:
    """Decorates a function over numpy arrays and numbers. Raises at its first call what numba says of what it cannot type."""
    return Compiled(python)
