"""Claims of units by processes that share a root: none is lost with its worker, none is recorded twice, no shard ends early."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from lineage.storage.root import Storage
from post_training.synthetic.claims import Claims, UnsealedError

UNITS = [f"unit-{number}" for number in range(6)]
WORKER = """
import sys, time
from lineage.storage.root import Storage
from post_training.synthetic.claims import Claims

def answer(unit):
    if unit == sys.argv[3]:
        print("holds", flush=True)
        time.sleep(600)
    return f"{sys.argv[2]} {unit}"

Claims(Storage(sys.argv[1]), "shard", sys.argv[2], float(sys.argv[4])).work([f"unit-{n}" for n in range(6)], answer)
"""


def claims(root: Path, who: str = "here", seconds: float = 0.5) -> Claims:
    return Claims(Storage(str(root)), "shard", who, seconds)


def held_by_a_worker(root: Path, unit: str, seconds: float) -> subprocess.Popen:
    """Start a worker that answers units until it reaches one, which it holds for ever."""
    command = [sys.executable, "-c", WORKER, str(root), "killed", unit, str(seconds)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "."})
    assert worker.stdout is not None and worker.stdout.readline() == "holds\n"
    return worker


def test_a_killed_worker_loses_its_claim_and_its_shard_is_not_sealed_before(tmp_path: Path) -> None:
    worker = held_by_a_worker(tmp_path, "unit-3", 0.5)
    try:
        assert claims(tmp_path).unfinished(UNITS) == UNITS[3:]
        with pytest.raises(UnsealedError, match="unit unit-3 and 2 others are not done"):
            claims(tmp_path).sealed(UNITS)
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
    assert claims(tmp_path).work(UNITS, lambda unit: f"here {unit}") == 3
    whole = claims(tmp_path).sealed(UNITS)
    assert whole == [f"{'killed' if number < 3 else 'here'} unit-{number}" for number in range(6)]


def test_a_live_claim_is_respected_however_long_it_lasts(tmp_path: Path) -> None:
    """The holder renews: six times the claim's seconds later another worker has every unit but that one."""
    worker = held_by_a_worker(tmp_path, "unit-0", 0.3)
    other = claims(tmp_path, seconds=0.3)
    thread = threading.Thread(target=other.work, args=(UNITS, lambda unit: f"here {unit}"))
    try:
        thread.start()
        while other.unfinished(UNITS) != UNITS[:1]:
            time.sleep(0.01)
        thread.join(1.8)
        assert thread.is_alive() and other.unfinished(UNITS) == UNITS[:1]
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
    thread.join()
    assert other.sealed(UNITS) == [f"here {unit}" for unit in UNITS]


def test_an_answer_after_the_claim_was_lost_changes_nothing(tmp_path: Path) -> None:
    """A worker that is stopped (SIGSTOP) past its claim and then goes on does not replace the other's record."""
    worker = held_by_a_worker(tmp_path, "unit-0", 0.3)
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        claims(tmp_path, seconds=0.3).work(UNITS, lambda unit: f"here {unit}")
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
    late = claims(tmp_path, "late")
    assert not late.finish("unit-0", "late")
    assert late.sealed(UNITS)[0] == "here unit-0"


def test_workers_share_the_units_and_each_is_recorded_once(tmp_path: Path) -> None:
    """Eight workers of which each answer may fail: the failed ones are answered by others."""
    answered, faults = Counter(), random.Random(3)

    def work(number: int) -> None:
        def answer(unit: str) -> str:
            if faults.random() < 0.3:
                raise ConnectionError("the server went away")
            answered[unit] += 1
            return unit

        own = claims(tmp_path, f"worker {number}", 5.0)
        while own.unfinished(units):
            try:
                own.work(units, answer)
            except ConnectionError:
                continue

    units = [f"unit-{number:02d}" for number in range(24)]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert claims(tmp_path).sealed(units) == units
    assert answered == Counter(units)  # live claims never expire, so nothing was answered twice
