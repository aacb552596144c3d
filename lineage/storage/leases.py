"""Leases: one holder of a name in a root at a time. A dead holder loses its lease, and clocks are never compared.

    with lease(storage, "mirror/5b1c", who="host 7") as held:
        ...                       # renewed by a thread
        held.check()              # before an action that must not happen twice: raises if another took over

A lease is a small file that its holder replaces every third of `seconds`, which gives it a new generation. A process that wants
the lease watches it: if the generation does not change for `seconds` *of the watcher's own monotonic clock*, it takes over by
swapping that generation. So a skewed clock cannot give a lease to two processes. A holder that was only paused loses it, and
`check` raises. Correctness must not depend on a lease alone: artifacts are safe by their manifest's precondition.
"""

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from lineage.storage.root import WORKING, Storage

log = logging.getLogger(__name__)

SECONDS = 60.0


class HeldError(RuntimeError):
    """Another process holds the lease and renews it."""


class LostError(RuntimeError):
    """Another process has taken the lease over."""


@dataclass
class Lease:
    """A lease that is held, renewed until its block ends."""

    storage: Storage
    address: str
    who: str
    seconds: float
    generation: str
    renewed: float
    """When the last successful request to make or renew it was sent, on our own clock: no watcher can have seen it earlier."""
    lost: bool = False

    def check(self) -> None:
        """Raise LostError if another process has it, or may have it because it could not be renewed in time."""
        if self.lost or time.monotonic() - self.renewed > self.seconds:
            raise LostError(f"the lease {self.storage.uri(self.address)} of {self.who} is another's by now, or may be")

    def renew(self) -> None:
        """Renew it once. After a storage error the next renewal tries again."""
        began = time.monotonic()
        generation = self.storage.files.swap(self.address, _text(self.who), self.generation)
        if generation is None:
            self.lost = True
            log.warning("the lease %s of %s was taken over", self.storage.uri(self.address), self.who)
        else:
            self.generation, self.renewed = generation, began


@contextlib.contextmanager
def lease(storage: Storage, name: str, who: str, *, seconds: float = SECONDS, wait_seconds: float = 0.0) -> Iterator[Lease]:
    """Hold a lease during the block; wait for it for a limited time. A dead holder's lease is taken over after `seconds`.

    Raises: HeldError naming the holder.
    """
    held = _acquire(storage, f"{WORKING}leases/{name}.json", who, seconds, wait_seconds)
    ended = threading.Event()
    renewer = threading.Thread(target=_keep, args=(held, ended), name=f"lease {name}", daemon=True)
    renewer.start()
    try:
        yield held
    finally:
        ended.set()
        renewer.join()
        if not held.lost:
            storage.files.swap(held.address, None, held.generation)


def _acquire(storage: Storage, address: str, who: str, seconds: float, wait_seconds: float) -> Lease:
    began = seen_at = time.monotonic()
    seen = ""
    while True:
        started = time.monotonic()
        if storage.files.create(address, _text(who)):
            own_lease = storage.files.read_versioned(address)
            if own_lease is not None:
                return Lease(storage, address, who, seconds, own_lease.generation, started)
        there = storage.files.read_versioned(address)
        if there is None:  # released just now
            continue
        now = time.monotonic()
        if there.generation != seen:
            seen, seen_at = there.generation, now
        elif now - seen_at > seconds:
            generation = storage.files.swap(address, _text(who), seen)
            if generation is not None:
                log.warning("%s took over the lease %s of %s", who, storage.uri(address), _holder(there.data))
                return Lease(storage, address, who, seconds, generation, now)
        if now - began > wait_seconds:
            raise HeldError(f"{storage.uri(address)} is held by {_holder(there.data)}; waited {wait_seconds:g} s")
        time.sleep(min(seconds / 10, 1.0))


def _keep(held: Lease, ended: threading.Event) -> None:
    while not held.lost and not ended.wait(held.seconds / 3):
        try:
            held.renew()
        except Exception:  # of any storage; `check` counts the time since the last success
            log.exception("could not renew the lease %s", held.address)


def _text(who: str) -> bytes:
    return json.dumps({"who": who, "renewal": uuid.uuid4().hex}).encode()


def _holder(data: bytes) -> str:
    return json.loads(data)["who"]
