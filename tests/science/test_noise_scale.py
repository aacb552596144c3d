"""The noise scale: its interval holds a planted ratio as often as it says, and has no end where the steps tell too little."""

import numpy as np
import pytest

from science.noise_scale import fieller, noise_scale

SQUARE, TRACE = 0.02, 120.0


def steps(random: np.random.Generator, count: int, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Terms of steps around |G|^2 = .02 and tr(Sigma) = 120, so a scale of 6,000; errors of both are dependent."""
    shared, own = random.normal(size=(2, count))
    return SQUARE * (1 + noise * (own - 0.5 * shared)), TRACE * (1 + 0.2 * shared)


def test_the_interval_holds_the_ratio_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    found = [noise_scale(*steps(random, 60), blocks=10) for _ in range(400)]
    held = [(each.low or 0) <= TRACE / SQUARE <= (each.high or np.inf) for each in found]
    assert 0.86 <= np.mean(held) <= 0.94
    assert abs(np.median([each.tokens for each in found if each.tokens is not None]) / (TRACE / SQUARE) - 1) < 0.03


def test_the_interval_is_what_a_t_test_of_each_ratio_does_not_reject() -> None:
    squares, traces = steps(np.random.default_rng(1), 40)
    found = noise_scale(squares, traces, blocks=8, level=0.9)
    blocks = np.array([(s.mean(), t.mean()) for s, t in zip(np.split(squares, 8), np.split(traces, 8), strict=True)])
    ratios = np.linspace(2000, 20_000, 20_000)
    apart = blocks[:, 1] - ratios[:, None] * blocks[:, 0]
    inside = ratios[np.abs(apart.mean(axis=1)) <= 1.894579 * apart.std(axis=1, ddof=1) / 8**0.5]  # t of 7 degrees at .95
    assert found.low == pytest.approx(inside.min(), rel=1e-3) and found.high == pytest.approx(inside.max(), rel=1e-3)


def test_steps_that_do_not_tell_the_gradient_from_zero_leave_the_interval_open() -> None:
    random = np.random.default_rng(2)
    open_above = noise_scale(*steps(random, 20, noise=8.0), blocks=10)
    assert open_above.high is None and open_above.low is not None and open_above.low < TRACE / SQUARE
    negative = noise_scale(-steps(random, 20)[0], steps(random, 20)[1], blocks=10)
    assert (negative.tokens, negative.low, negative.high) == (None, None, None)
    assert fieller(np.array([[1, -1, 2, -2, 0.1], [1, -1, -2, 2, 0.1]]), 0.9) == (None, None)


def test_steps_without_both_terms_are_left_out_and_too_few_are_refused() -> None:
    squares, traces = steps(np.random.default_rng(3), 12)
    holes = np.concatenate([squares, [np.nan, 1.0]]), np.concatenate([traces, [1.0, np.inf]])
    assert noise_scale(*holes, blocks=6) == noise_scale(squares, traces, blocks=6)
    for count, blocks in ((12, 4), (5, 6)):
        with pytest.raises(ValueError, match=f"{count} steps in {blocks} blocks; a noise scale needs 5 blocks"):
            noise_scale(squares[:count], traces[:count], blocks=blocks)
