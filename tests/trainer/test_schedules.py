"""Learning rates at each step against a slow reference of a cycle."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from trainer.learning_rate import learning_rates
from trainer.spec.schedules import CycleSchedule, WarmupStableDecay


def slow_rates(s: CycleSchedule, num_steps: int) -> list[float]:
    """Cycle by cycle, step by step; `num_steps` of them."""
    ends = [round(i * num_steps / s.cycles) for i in range(1, s.cycles + 1)] if isinstance(s.cycles, int) else list(s.cycles)
    out, start, last, began = [], 0, 0.0, False
    for end in ends:
        length = end - start
        climb = s.rewarmup_steps if began else s.warmup_steps
        decay = length - climb if s.decay_steps is None else s.decay_steps

        def share(steps: int, decay: int = decay) -> float:
            x, floor = steps / decay, s.min_lr_ratio
            return {
                "constant": 1.0,
                "linear": floor + (1 - floor) * (1 - x),
                "cosine": floor + (1 - floor) * (1 + math.cos(math.pi * x)) / 2,
                "inverse_sqrt": max(floor, math.sqrt(s.timescale / (s.timescale + steps))),
            }[s.decay]

        for t in range(length):
            if t < climb:
                out.append(last + (1 - last) * (t + 1) / climb)
            elif t <= length - decay:
                out.append(1.0)
            else:
                out.append(share(t - (length - decay)))
        last = share(decay) if decay else 1.0
        start, began = end, True
    return [s.peak_learning_rate * value for value in out[:num_steps]]


@st.composite
def schedules(draw) -> tuple[CycleSchedule, int]:
    lengths = draw(st.lists(st.integers(6, 25), min_size=1, max_size=4))
    by_count = draw(st.booleans())
    num_steps = sum(lengths) if by_count else sum(lengths) - draw(st.integers(0, 5))
    shortest = num_steps // len(lengths) if by_count else min(lengths)
    warmup, rewarmup = draw(st.integers(0, shortest // 2)), draw(st.integers(0, shortest // 2))
    room = shortest - max(warmup, rewarmup)
    schedule = CycleSchedule(
        peak_learning_rate=draw(st.floats(1e-4, 1)),
        warmup_steps=warmup,
        decay=draw(st.sampled_from(["constant", "linear", "cosine", "inverse_sqrt"])),
        decay_steps=draw(st.none() | st.integers(0, room)),
        cycles=len(lengths) if by_count else tuple(itertools.accumulate(lengths)),
        rewarmup_steps=rewarmup,
        min_lr_ratio=draw(st.floats(0, 1)),
        timescale=draw(st.floats(1, 100)),
    )
    return schedule, num_steps


@given(schedules())
def test_every_step_has_the_rate_of_its_place_in_its_cycle(drawn: tuple[CycleSchedule, int]) -> None:
    schedule, num_steps = drawn
    schedule.check_length(num_steps)
    np.testing.assert_allclose(learning_rates(schedule, num_steps), slow_rates(schedule, num_steps), rtol=1e-6, atol=1e-9)


@given(schedules(), st.integers(10, 100))
@settings(max_examples=examples(10))
def test_a_run_is_extended_by_adding_an_end(drawn: tuple[CycleSchedule, int], more: int) -> None:
    """To the bit, or the steps before the extension would not be the steps that were trained."""
    schedule, num_steps = drawn
    ends = schedule.ends(num_steps)
    by_ends = CycleSchedule(**{**vars(schedule), "cycles": ends})
    extended = CycleSchedule(**{**vars(schedule), "cycles": (*ends, ends[-1] + more)})
    actual = learning_rates(extended, ends[-1] + more)[:num_steps]
    np.testing.assert_array_equal(actual, learning_rates(by_ends, num_steps))


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.floats(0, 1), st.floats(1e-5, 1))
@settings(max_examples=examples(10))
def test_wsd_is_one_cycle_with_a_plateau(warmup: int, plateau: int, decay: int, floor: float, peak: float) -> None:
    total = warmup + plateau + decay
    wsd = WarmupStableDecay(peak, warmup, decay / total, floor)
    cycle = CycleSchedule(peak, warmup, "linear", decay, min_lr_ratio=floor)
    falling = [peak * (floor + (1 - floor) * (decay - i) / decay) for i in range(decay)]
    wanted = [peak * (step + 1) / warmup for step in range(warmup)] + [peak] * plateau + falling
    np.testing.assert_allclose(learning_rates(wsd, total), wanted, rtol=1e-6)
    np.testing.assert_allclose(learning_rates(cycle, total), wanted, rtol=1e-6)


def test_a_rate_without_decay_stays_at_the_peak() -> None:
    for schedule in (WarmupStableDecay(0.5, 0, 0.0), CycleSchedule(0.5, decay="constant"), CycleSchedule(0.5, decay_steps=0)):
        np.testing.assert_allclose(learning_rates(schedule, 10), 0.5)


def test_wsd_s_decays_before_each_end_and_goes_on_at_the_peak() -> None:
    schedule = CycleSchedule(1.0, 4, "linear", 5, cycles=(20, 40, 60), min_lr_ratio=0.0)
    actual = learning_rates(schedule, 60)
    np.testing.assert_allclose(actual[[3, 15, 16, 19, 20, 35, 39, 40, 59]], [1, 1, 0.8, 0.2, 1, 1, 0.2, 1, 0.2], rtol=1e-5)


def test_a_rewarmed_cycle_climbs_from_where_the_last_one_ended() -> None:
    schedule = CycleSchedule(1.0, 2, "cosine", 8, cycles=(10, 20), rewarmup_steps=2, min_lr_ratio=0.2)
    np.testing.assert_allclose(
        learning_rates(schedule, 20)[9:13], [0.2 + 0.4 * (1 + math.cos(math.pi * 7 / 8)), 0.6, 1.0, 1.0], rtol=1e-4
    )


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (CycleSchedule(1.0, 8, cycles=3), "schedule.warmup_steps is 8; it must be <= 7, the steps of the cycle that ends at 7"),
        (CycleSchedule(1.0, 2, rewarmup_steps=9, cycles=(10, 18, 30)),
         "schedule.rewarmup_steps is 9; it must be <= 8, the steps of the cycle that ends at 18"),
        (CycleSchedule(1.0, 2, decay_steps=19),
         "schedule.decay_steps is 19; it must be <= 18, what warm-up leaves of the cycle that ends at 20"),
        (CycleSchedule(1.0, cycles=(5, 19)),
         "schedule.cycles is (5, 19); it must be ends of which the last is >= num_steps 20"),
        (WarmupStableDecay(1.0, 21, 0.1), "schedule.warmup_steps is 21; it must be <= num_steps 20"),
    ],
)  # fmt: skip
def test_a_schedule_that_does_not_fit_its_run_says_which_field(schedule, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        schedule.check_length(20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak_learning_rate": 0.0}, "schedule.peak_learning_rate is 0.0; it must be positive"),
        ({"cycles": 0}, "schedule.cycles is 0; it must be positive"),
        ({"cycles": (5, 5)}, "schedule.cycles is (5, 5); it must be ends that ascend from above 0"),
        ({"cycles": ()}, "schedule.cycles is (); it must be ends that ascend from above 0"),
        ({"decay_steps": -1}, "schedule.decay_steps is -1; it must be at least 0, or None"),
        ({"min_lr_ratio": 1.5}, "schedule.min_lr_ratio is 1.5; it must be in [0, 1]"),
        ({"timescale": 0.0}, "schedule.timescale is 0.0; it must be positive"),
    ],
)
def test_a_bad_schedule_names_field_value_and_what_is_allowed(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CycleSchedule(**{"peak_learning_rate": 1.0, **change})
