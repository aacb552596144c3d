"""The end of a command that fails: one line with the cause, status 1; `--debug` shows the traceback instead."""

import sys
from collections.abc import Iterator

from lineage.project import PREFIX

USER_MISTAKES = (ValueError, OSError, LookupError, RuntimeError, ImportError)
"""Errors that the engines raise for a mistake or a refusal. For any other, the line says that it is a defect of marin."""

MAKE_SETUP = f"the environment lacks it; run `{'pip install -r requirements.txt' if PREFIX else 'make setup'}`"


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first, each once: Dagster's chains may have cycles."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "user_exception", None) or current.__cause__
        current = inner if inner is not None or current.__suppress_context__ else current.__context__


def cause(error: BaseException) -> BaseException:
    """Return the outermost error that is not one of Dagster's wrappers, or the last of the chain if all are."""
    errors = list(chain(error))
    return next((each for each in errors if not type(each).__module__.startswith("dagster")), errors[-1])


def one_line(error: BaseException) -> str:
    """Return what a user reads about an error: its cause in one line, with what to do."""
    root_cause = cause(error)
    message = " ".join(str(root_cause).split())
    if isinstance(root_cause, ModuleNotFoundError):
        return f"{message}: {MAKE_SETUP}"
    if isinstance(root_cause, FileNotFoundError) and root_cause.filename is not None:
        return f"{root_cause.filename}: there is no such file; check the path"
    if isinstance(root_cause, OSError) and root_cause.strerror and root_cause.filename is not None:
        return f"{root_cause.filename}: {root_cause.strerror}; {_system_remedy(root_cause)}"
    if isinstance(root_cause, OSError) and root_cause.errno is not None:
        return f"{message}; {_system_remedy(root_cause)}"
    if isinstance(root_cause, MemoryError):
        return "out of memory; close other programs, or lower MARIN_WORKERS"
    if type(root_cause).__module__.lstrip("_").startswith("duckdb"):
        return f"the query is wrong: {message.partition(' LINE ')[0]}; `show tables` as a query lists the tables"
    if isinstance(root_cause, USER_MISTAKES) and not isinstance(root_cause, KeyError | IndexError):
        return message or f"{type(root_cause).__name__} without a message; run again with --debug"
    return f"{type(root_cause).__name__}: {message}; this is a defect of marin: run again with --debug and report the traceback"


def _system_remedy(error: OSError) -> str:
    import errno

    remedies = {
        errno.ENOSPC: "free some space there (`./marin status` shows what the stores hold), or set MARIN_ROOT to another disk",
        errno.EACCES: "give yourself the right to read and write it, or set MARIN_ROOT to a folder of yours",
        errno.EROFS: "set MARIN_ROOT to a folder that can be written",
        errno.EADDRINUSE: "another server has the port; give another one with --port",
        errno.ENOTDIR: "a part of the path is a file; check the path",
        errno.EISDIR: "it is a folder; give a file",
        errno.ENOENT: "there is no such file; check the path",
    }
    return remedies.get(error.errno or 0, "check the path and the network, then run it again")


def report(error: BaseException) -> None:
    """Print the line of an error to the standard error stream."""
    print(f"marin: {one_line(error)}", file=sys.stderr)
