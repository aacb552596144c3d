"""Finite differences, to test hand-written gradients."""

from collections.abc import Callable

import numpy as np


def differences(function: Callable[..., float], values: list[np.ndarray], step: float = 1e-5) -> list[np.ndarray]:
    """Gradients by central differences, an element at a time, in float64."""
    exact = [value.astype(np.float64) for value in values]
    gradients = [np.zeros(value.shape) for value in exact]
    for value, gradient in zip(exact, gradients, strict=True):
        for place in np.ndindex(value.shape):
            kept = value[place]
            ends = []
            for moved in (kept + step, kept - step):
                value[place] = moved
                ends.append(function(*exact))
            value[place], gradient[place] = kept, (ends[0] - ends[1]) / (2 * step)
    return gradients
