"""Leases on a folder and in a bucket: one holder at a time, whatever dies, and no clock is compared with another's."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pytest
from gcs_server import Fault, GcsServer

from lineage.leases import HeldError, LostError, _acquire, lease
from lineage.storage import Storage

SHORT = 0.3
LONG = 1.5
"""Of holders that must live: their renewing thread may wait for a processor."""


@pytest.fixture(params=["local", "gs"])
def storage(request, tmp_path: Path) -> Storage:
    return Storage(str(tmp_path) if request.param == "local" else request.getfixturevalue("gcs").bucket(uuid.uuid4().hex))


def test_one_holds_it_and_the_other_is_told_who(storage: Storage) -> None:
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


def test_many_take_turns_and_never_two_at_once(storage: Storage) -> None:
    inside, most, lock = 0, 0, Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        with lease(storage, "x", f"worker {number}", seconds=2.0, wait_seconds=60):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.01)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == 1


def test_a_dead_holders_lease_is_taken_over_and_it_is_told(storage: Storage) -> None:
    dead = _acquire(storage, ".work/leases/x.json", "dead", SHORT, 0)
    with lease(storage, "x", "next", seconds=SHORT, wait_seconds=10) as held:
        held.check()
        dead.renew()
        assert dead.lost
        with pytest.raises(LostError, match="of dead is another's"):
            dead.check()
        held.check()


def test_a_living_holder_is_not_taken_over(storage: Storage) -> None:
    """It renews for twice as long as a dead holder's lease would stand."""
    with lease(storage, "x", "living", seconds=LONG) as held:
        with pytest.raises(HeldError), lease(storage, "x", "next", seconds=LONG, wait_seconds=2 * LONG):
            pass
        held.check()


def test_a_renewal_whose_answer_was_lost_keeps_the_lease(gcs: GcsServer) -> None:
    storage = Storage(gcs.bucket(uuid.uuid4().hex))
    gcs.counts.clear()
    held = _acquire(storage, ".work/leases/x.json", "holder", SHORT, 0)
    gcs.faults.append(Fault("upload", gcs.counts["upload"] + 1, "lost"))
    held.renew()
    assert not held.lost
    assert gcs.faults == []
    held.renew()
    assert not held.lost
