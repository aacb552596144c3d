"""The order in which the updates of an iteration read its completions: pure functions of seed and iteration, without JAX."""

import numpy as np
from jaxtyping import Int

from post_training.spec import RewardRunSpec


def order_of_rows(spec: RewardRunSpec, iteration: int, epoch: int) -> Int[np.ndarray, " rows"]:
    """Return the order in which an inner epoch reads the completions of an iteration."""
    return np.random.default_rng([spec.run.seed, 3, iteration, epoch]).permutation(spec.sampling.rows)


def steps_of_rows(spec: RewardRunSpec, iteration: int) -> Int[np.ndarray, "epochs rows"]:
    """Return the update of the run that reads each completion of an iteration, in each inner epoch. Updates count from 0."""
    rows, size = spec.sampling.rows, spec.run.batches.size(0)
    steps = np.empty((spec.inner_epochs, rows), np.int64)
    for epoch in range(spec.inner_epochs):
        first = iteration * spec.updates + epoch * (rows // size)
        steps[epoch, order_of_rows(spec, iteration, epoch)] = first + np.arange(rows) // size
    return steps
