"""Which update reads a completion: every inner epoch reads each completion once, in equal batches."""

import numpy as np
from small_rewards import learner

from post_training.order import order_of_rows, steps_of_rows


def test_every_epoch_reads_every_completion_once_in_its_own_updates() -> None:
    spec = learner(iterations=3, inner_epochs=1)
    steps = steps_of_rows(spec, 2)
    assert steps.shape == (1, 32)
    assert np.bincount(steps[0], minlength=6).tolist() == [0, 0, 0, 0, 16, 16]
    order = order_of_rows(spec, 2, 0)
    assert sorted(order.tolist()) == list(range(32))
    assert (steps[0][order[:16]] == 4).all() and (steps[0][order[16:]] == 5).all()
