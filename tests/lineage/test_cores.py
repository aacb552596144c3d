"""Workers pinned to cores: one each when workers equal cores; fewer may move."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.shards.cores import own_core
from lineage.shards.worker_pool import WorkerPool
from lineage.shards.workers import WorkerDied

ALL = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
needs_affinity = pytest.mark.skipif(not ALL, reason="this system cannot keep a process to a core")


def cores_when_all_are_here(folder: str, number: int, of: int) -> frozenset[int]:
    """Return the cores of a worker. It ends only when this many calls run at once."""
    Path(folder, str(number)).touch()
    while len(list(Path(folder).iterdir())) < of:
        time.sleep(0.01)
    return frozenset(os.sched_getaffinity(0))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cores_of(pool: WorkerPool, folder: Path, workers: int) -> list[frozenset[int]]:
    """Return the cores on which each of this many workers may run."""
    folder.mkdir()
    answers = pool.map(cores_when_all_are_here, [(str(folder), i, workers) for i in range(workers)], workers, None)
    return [frozenset(answer) for answer in answers if isinstance(answer, frozenset)]


@needs_affinity
def test_as_many_workers_as_cores_keep_to_one_each(tmp_path: Path) -> None:
    with WorkerPool() as pool:
        assert sorted(map(sorted, cores_of(pool, tmp_path / "all", len(ALL)))) == [[core] for core in sorted(ALL)]


@needs_affinity
def test_twice_as_many_workers_share_the_cores_evenly(tmp_path: Path) -> None:
    with WorkerPool() as pool:
        assert Counter(cores_of(pool, tmp_path / "twice", 2 * len(ALL))) == {frozenset({core}): 2 for core in ALL}


@needs_affinity
@pytest.mark.skipif(len(ALL) < 2, reason="one core: there are no fewer workers")
def test_fewer_workers_than_cores_may_run_on_each_of_them(tmp_path: Path) -> None:
    with WorkerPool() as pool:
        assert set(cores_of(pool, tmp_path / "fewer", len(ALL) - 1)) == {ALL}


@needs_affinity
def test_who_takes_the_place_of_a_dead_worker_takes_its_core(tmp_path: Path) -> None:
    with WorkerPool() as pool:
        before = cores_of(pool, tmp_path / "before", len(ALL))
        ((_, death),) = pool.run({"die": (die, ())}, len(ALL), None)
        assert isinstance(death, WorkerDied)
        assert sorted(map(sorted, cores_of(pool, tmp_path / "after", len(ALL)))) == sorted(map(sorted, before))


@needs_affinity
@given(st.integers(1, 64))
def test_no_core_has_two_workers_more_than_another(workers: int) -> None:
    taken: list[int | None] = []
    for _ in range(workers):
        taken.append(own_core(workers, taken))
    if workers < len(ALL):
        assert set(taken) == {None}
    else:
        held = Counter(taken)
        assert held.keys() == ALL and max(held.values()) - min(held.values()) <= 1


def test_no_worker_keeps_to_a_core_where_the_system_cannot_do_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert own_core(64, []) is None
