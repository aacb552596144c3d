"""Scheduling of calls to workers: each call starts once; neighbouring calls go to one worker."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lineage.shards.work_queue import WorkQueue


def began(turns: WorkQueue, free: list[int]) -> dict[int, list[str]]:
    """Return the calls of each worker when they become free in this order, and then in turn until all calls have started."""
    got: dict[int, list[str]] = {worker: [] for worker in free}
    rounds = 0
    while True:
        worker = free[rounds % len(free)]
        if (name := turns.next(worker)) is None:
            return got
        got[worker].append(name)
        rounds += 1


@given(st.integers(0, 60), st.lists(st.integers(0, 5), min_size=1, max_size=40), st.booleans())
def test_every_call_is_started_once(calls: int, free: list[int], in_runs: bool) -> None:
    names = [f"{i:02d}" for i in range(calls)]
    got = began(WorkQueue(names, in_runs=in_runs), free)
    assert sorted(name for mine in got.values() for name in mine) == names


@given(st.integers(0, 60), st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_in_their_order_to_whoever_is_free(calls: int, free: list[int]) -> None:
    names = [f"{i:02d}" for i in range(calls)]
    turns = WorkQueue(names, in_runs=False)
    assert [turns.next(free[i % len(free)]) for i in range(calls + 1)] == [*names, None]


@given(st.integers(2, 200), st.integers(1, 6))
def test_neighbours_fall_to_one_worker(calls: int, workers: int) -> None:
    """Workers that take turns: each has its share in one piece but for the ends, which are halved and halved again."""
    names = [f"{i:03d}" for i in range(calls)]
    got = began(WorkQueue(names, in_runs=True), list(range(workers)))
    parted = sum(int(b) != int(a) + 1 for mine in got.values() for a, b in pairwise(mine))
    assert parted <= workers * (1 + math.log2(calls))
    assert max(map(len, got.values())) - min(map(len, got.values())) <= 1


def test_one_worker_goes_through_them_as_they_stand() -> None:
    assert began(WorkQueue("abcde", in_runs=True), [0]) == {0: list("abcde")}


def test_two_workers_begin_at_the_front_and_in_the_middle() -> None:
    assert began(WorkQueue("abcdef", in_runs=True), [0, 1]) == {0: list("abc"), 1: list("def")}
