"""Which prompts an iteration asks, and which update reads a completion: every pass and every inner epoch has each one once."""

import numpy as np
from small_rewards import learner

from post_training.asking import chosen
from post_training.order import order_of_rows, steps_of_rows


def test_every_epoch_reads_every_completion_once_in_its_own_updates() -> None:
    spec = learner(iterations=3, inner_epochs=1)
    steps = steps_of_rows(spec, 2)
    assert steps.shape == (1, 32)
    assert np.bincount(steps[0], minlength=6).tolist() == [0, 0, 0, 0, 16, 16]
    order = order_of_rows(spec, 2, 0)
    assert sorted(order.tolist()) == list(range(32))
    assert (steps[0][order[:16]] == 4).all() and (steps[0][order[16:]] == 5).all()


def test_prompts_are_consecutive_in_permutations_that_iterations_may_straddle() -> None:
    places = [place for iteration in range(6) for place in chosen(5, 4, iteration, seed=3)]
    passes = [places[first : first + 5] for first in range(0, 20, 5)]
    assert all(sorted(each) == list(range(5)) for each in passes)
    assert len({tuple(each) for each in passes}) > 1
    assert chosen(5, 4, 1, seed=3) == places[4:8] != chosen(5, 4, 1, seed=4)
    assert sorted(chosen(2, 4, 0, seed=3)) == [0, 0, 1, 1]
