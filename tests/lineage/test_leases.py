"""Leases in a folder and a bucket: one holder at a time whatever dies, without comparing clocks."""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import pytest
from gcs_server import Fault, GcsServer

from lineage.storage.leases import SECONDS, HeldError, LostError, _acquire, lease
from lineage.storage.root import Storage

ADDRESS = ".work/leases/x.json"


@dataclass
class Clock:
    """A clock that moves only when a test sleeps, and actions during a sleep. A pause of the machine does not count as time."""

    now: float = 0.0
    meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("lineage.storage.leases.time", clock)
    return clock


@pytest.fixture(params=["local", "gs"])
def storage(request, tmp_path: Path) -> Storage:
    return Storage(str(tmp_path) if request.param == "local" else request.getfixturevalue("gcs").bucket(uuid.uuid4().hex))


def test_one_holds_it_and_the_other_learns_who(storage: Storage) -> None:
    with lease(storage, "x", "first") as held:
        held.check()
        with pytest.raises(HeldError, match="is held by first"), lease(storage, "x", "second"):
            pass
        with lease(storage, "y", "second"):
            held.check()
    with lease(storage, "x", "second") as held:
        held.check()
    assert storage.find("", "x.json") == [], "leases are no artifacts"
    assert storage.files.read(".work/leases/x.json") is None, "released"


def test_many_take_turns_and_never_two_at_once(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lineage.storage.leases.time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: time.sleep(0.01)))
    inside, most, lock = 0, 0, Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        with lease(storage, "x", f"worker {number}"):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == 1


def test_a_dead_holders_lease_is_taken_over_and_it_is_reported(storage: Storage, clock: Clock) -> None:
    dead = _acquire(storage, ADDRESS, "dead", SECONDS, 0)
    with lease(storage, "x", "next", wait_seconds=2 * SECONDS) as held:
        assert SECONDS < clock.now < 2 * SECONDS
        held.check()
        dead.renew()
        assert dead.lost
        with pytest.raises(LostError, match="of dead is another's"):
            dead.check()
        held.check()


def test_a_living_holder_is_not_taken_over(storage: Storage, clock: Clock) -> None:
    """It renews for three times as long as a dead holder's lease would stand."""
    living = _acquire(storage, ADDRESS, "living", SECONDS, 0)
    clock.meanwhile = lambda: living.renew() if clock.now % (SECONDS / 3) == 0 else None
    with pytest.raises(HeldError), lease(storage, "x", "next", wait_seconds=3 * SECONDS):
        pass
    living.check()


def test_a_holder_renews_its_lease_by_itself(storage: Storage) -> None:
    with lease(storage, "x", "living", seconds=0.3) as held:
        first = held.generation
        for _ in range(6_000):  # late, but no other process wants it
            if held.generation != first:
                break
            time.sleep(0.01)
        there = storage.files.read_versioned(ADDRESS)
        assert there is not None and there.generation != first


@pytest.mark.parametrize("fails", [False, True])
def test_who_could_not_renew_for_so_long_does_not_trust_its_lease(storage: Storage, clock: Clock, fails: bool) -> None:
    """Another process may have begun to watch when the request arrived, so the time counts from when it was sent."""
    held = _acquire(storage, ADDRESS, "slow", SECONDS, 0)
    clock.sleep(SECONDS)
    held.check()
    if not fails:
        held.renew()
        held.check()
        clock.sleep(SECONDS)
    clock.sleep(1)
    with pytest.raises(LostError, match="is another's by now, or may be"):
        held.check()


def test_the_time_that_making_it_took_counts(tmp_path: Path, clock: Clock) -> None:
    storage = Storage(str(tmp_path))
    files = SimpleNamespace(
        create=lambda *given: (storage.files.create(*given), clock.sleep(SECONDS + 1))[0],
        read_versioned=storage.files.read_versioned,
    )
    held = _acquire(SimpleNamespace(files=files, uri=storage.uri), ADDRESS, "slow", SECONDS, 0)  # type: ignore[arg-type]
    with pytest.raises(LostError):
        held.check()


def test_a_renewal_whose_answer_was_lost_keeps_the_lease(gcs: GcsServer) -> None:
    storage = Storage(gcs.bucket(uuid.uuid4().hex))
    gcs.counts.clear()
    held = _acquire(storage, ADDRESS, "holder", SECONDS, 0)
    gcs.faults.append(Fault("upload", gcs.counts["upload"] + 1, "lost"))
    held.renew()
    assert not held.lost
    assert gcs.faults == []
    held.renew()
    assert not held.lost
