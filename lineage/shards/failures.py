"""The record of a failed shard, and which failures are worth another try.

A failure is plain text, because a worker may be dead and its exception may not be picklable. It holds what a person needs to
investigate: the error, the traceback, the shard's arguments, and a command that runs just this shard.
"""

import errno
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

type FailureKind = Literal["permanent", "transient", "memory", "killed", "disk"]

PERMANENT = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    ImportError,
    NotImplementedError,
    SyntaxError,
)
"""Errors of the data or the code. The shard would fail in the same way, so it is not tried again."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large")
"""Texts of a full disk in errors of Arrow and polars, which keep the system's message but not always its number."""

GIVEN_CHARS = 300


@dataclass(frozen=True)
class ShardFailure:
    """One shard that failed. `peak_rss_bytes` is the highest sampled resident memory of its process."""

    name: str
    kind: FailureKind
    error: str
    traceback: str
    given: tuple[str, ...]
    attempts: int = 1
    peak_rss_bytes: int | None = None
    command: str = ""
    """A command that runs this shard alone in the foreground; empty if the stage was not started from a node."""

    def __str__(self) -> str:
        tried = "once" if self.attempts == 1 else f"{self.attempts} times"
        failure = f"{self.name} ({self.kind}, tried {tried}): {self.error}"
        return f"{failure}\n    alone: {self.command}" if self.command else failure


class IncompleteError(RuntimeError):
    """A stage ended with shards missing. Finished shards are kept; the next attempt runs only the missing ones."""

    def __init__(self, artifact: str, failures: Sequence[ShardFailure], num_shards: int, num_finished: int):
        named = "\n  ".join(str(failure) for failure in failures)
        untried = num_shards - num_finished - len(failures)
        stopped = f"; {untried} were not tried after so many failures" if untried else ""
        super().__init__(
            f"{artifact} is incomplete: {len(failures)} of {num_shards} shards failed and are quarantined{stopped}\n  {named}\n"
            f"{num_finished} shards are finished and kept; materializing it again runs only the missing ones"
        )
        self.artifact, self.failures = artifact, tuple(failures)
        self.num_shards, self.num_finished = num_shards, num_finished

    def with_commands(self, command: Callable[[str], str]) -> "IncompleteError":
        """Return the same error with a command for every failed shard."""
        failures = [replace(failure, command=command(failure.name)) for failure in self.failures]
        return IncompleteError(self.artifact, failures, self.num_shards, self.num_finished)


class DiskFullError(OSError):
    """The disk is full. That is no failure of one shard, so the stage stops. Finished shards are kept."""


def failure_of(name: str, error: BaseException, arguments: Sequence[object], peak_rss_bytes: int | None) -> ShardFailure:
    """Make the record of a failure from an exception that was caught where the shard ran."""
    text = str(error)
    return ShardFailure(
        name=name,
        kind=kind_of(error),
        error=f"{type(error).__name__}: {text}" if text else type(error).__name__,
        traceback="".join(traceback.format_exception(error)),
        given=tuple(_shortened(argument) for argument in arguments),
        peak_rss_bytes=peak_rss_bytes,
    )


def kind_of(error: BaseException) -> FailureKind:
    """Return the kind of failure. A memory or disk error among the causes of the exception decides.

    >>> kind_of(ValueError("not JSON")), kind_of(ConnectionResetError()), kind_of(OSError(28, "No space left on device"))
    ('permanent', 'transient', 'disk')
    """
    chain = list(_causes(error))
    if any(isinstance(cause, MemoryError) for cause in chain):
        return "memory"
    if any(_is_disk_full(cause) for cause in chain):
        return "disk"
    return "permanent" if isinstance(error, PERMANENT) else "transient"


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, DiskFullError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL
    return not isinstance(error, PERMANENT) and any(text in str(error) for text in DISK_FULL_TEXTS)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its chain of causes, each once: an error that is raised again while its cause is handled is its own
    cause."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _shortened(argument: object) -> str:
    text = repr(argument)
    return text if len(text) <= GIVEN_CHARS else f"{text[:GIVEN_CHARS]}... ({len(text)} characters)"
