"""Leases: one holder of a name in a root at a time, which outlives no dead holder and trusts no clock but one's own.

    with lease(storage, "mirror/5b1c", who="host 7") as held:
        ...                       # renewed by a thread
        held.check()              # before what must not happen twice: raises when another took over

A lease is a small file that its holder swaps for a new one every third of `seconds` (a generation each). Who wants it watches:
a lease whose generation stood still for `seconds` *of the watcher's own monotonic clock* is taken over by swapping that very
generation. So neither a skewed clock nor a time zone can give a lease to two; a holder that was only paused loses it, and
`check` tells it so. Nothing that a lease protects may rely on it alone: artifacts stay safe by their manifest's precondition.
"""

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from lineage.storage import WORKING, Storage

log = logging.getLogger(__name__)

SECONDS = 60.0


class HeldError(RuntimeError):
    """Another holds the lease and renews it."""


class LostError(RuntimeError):
    """Another has taken the lease over."""


@dataclass
class Lease:
    """A lease that is held, renewed until its block ends."""

    storage: Storage
    address: str
    who: str
    seconds: float
    generation: str
    renewed: float
    """On our own clock, when the request was sent that last made or renewed it: whoever watches cannot have seen it before."""
    lost: bool = False

    def check(self) -> None:
        """Raises: LostError when another has it, or when it could not be renewed for so long that another may have it."""
        if self.lost or time.monotonic() - self.renewed > self.seconds:
            raise LostError(f"the lease {self.storage.uri(self.address)} of {self.who} is another's by now, or may be")

    def renew(self) -> None:
        """Swap it for a new one, once. A storage error is left to the next time."""
        began = time.monotonic()
        generation = self.storage.files.swap(self.address, _text(self.who), self.generation)
        if generation is None:
            self.lost = True
            log.warning("the lease %s of %s was taken over", self.storage.uri(self.address), self.who)
        else:
            self.generation, self.renewed = generation, began


@contextlib.contextmanager
def lease(storage: Storage, name: str, who: str, *, seconds: float = SECONDS, wait_seconds: float = 0.0) -> Iterator[Lease]:
    """Hold a lease for the block, waiting for it at most so long; a dead holder's is had after `seconds` of waiting.

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
        asked = time.monotonic()
        if storage.files.create(address, _text(who)):
            mine = storage.files.read_versioned(address)
            if mine is not None:
                return Lease(storage, address, who, seconds, mine.generation, asked)
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
