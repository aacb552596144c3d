"""Loops over characters and hashes, compiled by numba. One loop replaces many passes of array code over memory.

A compiled function is plain Python over numpy arrays; call or debug its `.python`. It is compiled at its first call
(half a second to two), never at import. The program is stored beside the source, or below the user's cache or
`NUMBA_CACHE_DIR` if that folder is read-only. The next process loads it in 5 ms, after 0.2 s of importing numba and 0.4
s in which numba sets up its types (65 MiB). A process that calls no compiled function pays nothing.

A compiled function calls no other function of ours, because numba only notices changes of the program's own file. Each
one has a slow obvious counterpart in tests/.
"""

import logging
from collections.abc import Callable
from functools import cached_property, update_wrapper

import numpy as np

from lineage.memory import without_collections

LOG = logging.getLogger(__name__)


class Compiled[**P, R]:
    """A function that is compiled at its first call. Other threads run meanwhile.

    Arguments are passed as read-only contiguous arrays, so each function has exactly one program. Processes that
    compile it at the same time then write the same file: numba distinguishes files of several programs by number only.
    """

    def __init__(self, python: Callable[P, R]) -> None:
        self.python = python
        update_wrapper(self, python)

    @cached_property
    def program(self) -> Callable[P, R]:
        """Return the compiled function; log a warning if no folder can keep it, so that every process compiles it
        again.
        """
        import numba  # Imported here, not above: see the module's docstring.

        try:
            return numba.njit(self.python, cache=True, nogil=True)
        except RuntimeError as error:
            LOG.warning("%s is compiled again in every process (set NUMBA_CACHE_DIR): %s", self.python.__qualname__, error)
            return numba.njit(self.python, nogil=True)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if "program" not in vars(self):  # numba sets up its types at the first call
            with without_collections():
                return self.program(*map(_read_only, args), **kwargs)  # pyrefly: ignore[invalid-param-spec]
        return self.program(*map(_read_only, args), **kwargs)  # pyrefly: ignore[invalid-param-spec]


def _read_only(value: object) -> object:
    if not isinstance(value, np.ndarray) or (value.flags.c_contiguous and not value.flags.writeable):
        return value
    view = np.ascontiguousarray(value).view()
    view.flags.writeable = False
    return view


def compiled[**P, R](python: Callable[P, R]) -> Compiled[P, R]:
    """Decorate a function over numpy arrays and numbers. Raises: numba's typing errors at the first call."""
    return Compiled(python)
