"""Batch schedules in closed form equal counting step by step."""

import re
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage.order.batches import BatchPhase, BatchSchedule


@st.composite
def schedules(draw) -> BatchSchedule:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    gaps = draw(st.lists(st.integers(1, 12), min_size=len(sizes) - 1, max_size=len(sizes) - 1))
    starts = [0, *accumulate(gaps)]
    return BatchSchedule(tuple(BatchPhase(start, size) for start, size in zip(starts, sizes, strict=True)))


@given(schedules(), st.integers(0, 80))
def test_steps_read_one_after_the_other_and_every_sequence_once(schedule: BatchSchedule, num_steps: int) -> None:
    read: list[tuple[int, int]] = []
    for step in range(num_steps):
        size = next(phase.batch_size for phase in reversed(schedule.phases) if phase.start_step <= step)
        assert schedule.size(step) == size
        assert schedule.first(step) == len(read)
        read += [(step, row) for row in range(size)]
    assert schedule.first(num_steps) == len(read)
    steps, rows = schedule.locate(np.arange(len(read)))
    assert list(zip(steps.tolist(), rows.tolist(), strict=True)) == read


@given(schedules(), st.integers(0, 10**12))
def test_the_inverse_holds_far_out(schedule: BatchSchedule, step: int) -> None:
    first, size = schedule.first(step), schedule.size(step)
    steps, rows = schedule.locate(np.array([first, first + size - 1, first + size]))
    assert (steps.tolist(), rows.tolist()) == ([step, step, step + 1], [0, size - 1, 0])


@given(schedules(), schedules(), st.integers(1, 40), st.integers(0, 40))
def test_a_run_that_continues_reads_what_one_run_would(a: BatchSchedule, b: BatchSchedule, step: int, later: int) -> None:
    whole, rest = a.followed_by(b, step), BatchSchedule(b.phases, before=a.first(step))
    assert [whole.first(each) for each in range(step + 1)] == [a.first(each) for each in range(step + 1)]
    assert (whole.first(step + later), whole.size(step + later)) == (rest.first(later), rest.size(later))
    sequences = np.arange(rest.first(0), rest.first(later))
    (one, rows), (two, others) = whole.locate(sequences), rest.locate(sequences)
    assert (one - step).tolist() == two.tolist() and rows.tolist() == others.tolist()
    assert BatchSchedule.from_record(rest.to_record(), rest.before) == rest


@given(schedules())
def test_a_schedule_survives_its_record(schedule: BatchSchedule) -> None:
    assert BatchSchedule.from_record(schedule.to_record()) == schedule


def test_one_size_is_written_as_a_number() -> None:
    assert BatchSchedule.of(8).to_record() == 8


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ((), "batch_size has phases (); the first must start at step 0"),
        (((1, 4),), "batch_size has phases (BatchPhase(start_step=1, batch_size=4),); the first must start at step 0"),
        (((0, 0),), "batch_size is 0; it must be positive"),
        (((0, 4), (3, 8), (3, 2)), "batch_size has a phase that starts at step 3 after one at 3; starts must ascend"),
    ],
)
def test_bad_phases_are_named(phases: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        BatchSchedule(tuple(BatchPhase(*phase) for phase in phases))


def test_nothing_comes_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="step -1 is negative"):
        BatchSchedule.of(4).size(-1)
    with pytest.raises(ValueError, match="global sequence index -1 is below 0, the first that step 0 reads"):
        BatchSchedule.of(4).locate(np.array([3, -1]))
