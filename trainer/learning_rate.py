"""The learning rates of a run, a function of its schedule and its number of steps."""

import numpy as np
from jaxtyping import Float

from trainer.spec.schedules import CycleSchedule, Schedule, WarmupStableDecay


def learning_rates(schedule: Schedule, num_steps: int) -> Float[np.ndarray, " steps"]:
    """Float32 rates of all steps, computed in float64 and rounded once. A decay reaches its end at the step after its last.

    They are an argument of the compiled step, so trials that differ in rate or length share one program. The table is the same
    on every back-end. The formula of a cycle, compiled into the step, gave other bits when a cycle was added (up to 9.5e-7
    apart): XLA knows the length of a single cycle, multiplies by its reciprocal and folds pi into it (seen in the HLO,
    2026-11-21).

    >>> s = WarmupStableDecay(peak_learning_rate=1.0, warmup_steps=10, decay_frac=0.2, min_lr_ratio=0.0)
    >>> [round(float(rate), 3) for rate in learning_rates(s, 100)[[0, 4, 9, 50, 79, 90, 99]]]
    [0.1, 0.5, 1.0, 1.0, 1.0, 0.5, 0.05]
    """
    shares = _cycles(schedule, num_steps) if isinstance(schedule, CycleSchedule) else _warmup_stable_decay(schedule, num_steps)
    return (schedule.peak_learning_rate * shares).astype(np.float32)


def _warmup_stable_decay(schedule: WarmupStableDecay, num_steps: int) -> Float[np.ndarray, " steps"]:
    """Shares of the peak."""
    step = np.arange(num_steps)
    warm = np.minimum((step + 1) / max(1, schedule.warmup_steps), 1.0)
    warm = schedule.start_lr_ratio + (1 - schedule.start_lr_ratio) * warm
    if schedule.decay_frac == 0:
        return warm
    left = np.minimum((num_steps - step) / max(1, round(schedule.decay_frac * num_steps)), 1.0)
    return warm * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * left)


def _cycles(schedule: CycleSchedule, num_steps: int) -> Float[np.ndarray, " steps"]:
    """Shares of the peak; those of a cycle depend on it and on the share at which the cycle before it ended."""
    shares, start, from_share = np.empty(num_steps), 0, 0.0
    for number, end in enumerate(schedule.ends(num_steps)):
        climb = schedule.rewarmup_steps if number else schedule.warmup_steps
        decay = end - start - climb if schedule.decay_steps is None else schedule.decay_steps
        step = np.arange(start, min(end, num_steps))
        climbed = np.minimum((step - start + 1) / max(climb, 1), 1.0)
        warm = from_share + (1 - from_share) * climbed if climb else np.ones(len(step))
        into_decay = step - (end - decay)
        shares[step] = np.where(into_decay > 0, _decayed(schedule, np.clip(into_decay, 0, decay), decay), warm)
        start, from_share = end, float(_decayed(schedule, np.array(decay), decay)) if decay else 1.0
    return shares


def _decayed(schedule: CycleSchedule, into_decay: np.ndarray, decay_steps: int) -> np.ndarray:
    """Share of the peak after `into_decay` of `decay_steps` steps; with x = into_decay / decay_steps:

    linear 1 - x; cosine (1 + cos(pi x)) / 2 (Loshchilov & Hutter 2016, arXiv 1608.03983), both between 1 and `min_lr_ratio`;
    inverse square root sqrt(T / (T + steps)) with T the timescale, but at least `min_lr_ratio` (Vaswani et al. 2017, shifted).
    """
    floor = schedule.min_lr_ratio
    x = into_decay / max(decay_steps, 1)
    match schedule.decay:
        case "constant":
            return np.ones_like(x)
        case "linear":
            return floor + (1 - floor) * (1 - x)
        case "cosine":
            return floor + (1 - floor) * 0.5 * (1 + np.cos(np.pi * x))
        case "inverse_sqrt":
            return np.maximum(floor, np.sqrt(schedule.timescale / (schedule.timescale + into_decay)))
