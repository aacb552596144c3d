"""Rolling windows against a plain list, and the two rules that use them."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given
from hypothesis import strategies as st

from trainer.optimizers.rolling import accept_step, clip_update_norm, empty_ring, empty_skip_state, push, threshold
from trainer.spec.optimizers import ClipUpdateNormConfig, SkipBadStepsConfig

FLOOR = 1e-6
values = st.floats(0, 1e4, width=32) | st.floats(0, 2.0**126, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])
push_jit, threshold_jit = jax.jit(push), jax.jit(threshold, static_argnums=(1, 2))


def slow_threshold(seen: list[float], window: int, num_std: float) -> float:
    """Of everything seen so far, in float64."""
    held = [v for v in seen if math.isfinite(v)][-window:]
    if len(held) < max(2, window // 2):
        return math.inf
    return float(np.mean(held) + num_std * max(np.std(held), FLOOR))


@given(st.lists(values, max_size=25), st.sampled_from([2, 3, 8]), st.floats(0.5, 6))
def test_thresholds_are_those_of_the_last_finite_values(seen: list[float], window: int, num_std: float) -> None:
    ring = empty_ring(window)
    for index, value in enumerate(seen):
        limit, wanted = float(threshold_jit(ring, num_std, FLOOR)), slow_threshold(seen[:index], window, num_std)
        if math.isinf(wanted):
            assert math.isinf(limit)
        else:
            largest = max(abs(v) for v in seen[:index] if math.isfinite(v))
            np.testing.assert_allclose(limit, wanted, rtol=1e-4, atol=1e-5 * largest + 1e-9)
        ring = push_jit(ring, jnp.float32(value))


@given(st.lists(values, max_size=25), st.sampled_from([2, 5]))
def test_what_is_not_finite_leaves_no_trace(seen: list[float], window: int) -> None:
    whole, finite = empty_ring(window), empty_ring(window)
    for value in seen:
        whole = push_jit(whole, jnp.float32(value))
        if math.isfinite(value):
            finite = push_jit(finite, jnp.float32(value))
    assert np.isfinite(np.asarray(whole.values)).all()
    assert [np.asarray(a).tobytes() for a in whole] == [np.asarray(a).tobytes() for a in finite]


@functools.cache
def decision(config: SkipBadStepsConfig) -> Callable:
    return jax.jit(lambda state, loss, norm: accept_step(config, state, loss, norm))


@functools.cache
def clipping(window: int) -> tuple[optax.GradientTransformation, Callable]:
    rule = clip_update_norm(ClipUpdateNormConfig(window=window, num_std=1.5, std_floor=FLOOR))
    return rule, jax.jit(rule.update)


@given(st.lists(st.tuples(values, values), max_size=25), st.sampled_from([2, 6]), st.sampled_from([1.0, 1.5, 3.0, 6.0]))
def test_a_step_is_skipped_when_either_signal_is_an_outlier(seen: list, window: int, num_std: float) -> None:
    config = SkipBadStepsConfig(window=window, num_std=num_std, std_floor=FLOOR)
    decide = decision(config)
    state, in_a_row = empty_skip_state(config), 0
    for index, (loss, norm) in enumerate(seen):
        limits = [slow_threshold([pair[which] for pair in seen[:index]], window, num_std) for which in (0, 1)]
        good, state = decide(state, jnp.float32(loss), jnp.float32(norm))
        in_a_row = 0 if bool(good) else in_a_row + 1
        assert int(state.in_a_row) == in_a_row
        close = any(math.isfinite(limit) and math.isclose(value, limit, rel_tol=1e-2, abs_tol=1e-2 * limit + 1e-4)
                    for value, limit in zip((loss, norm), limits, strict=True))  # fmt: skip
        far_apart = max((v for pair in seen[:index] for v in pair if math.isfinite(v)), default=0.0) > 1e4
        if not close and not far_apart:  # float32 may see a tie, or a small deviation beside a huge value, the other way
            wanted = all(math.isfinite(value) and value <= limit for value, limit in zip((loss, norm), limits, strict=True))
            assert bool(good) == wanted


@given(st.lists(st.floats(0.125, 100, width=32), min_size=1, max_size=20), st.sampled_from([2, 6]), st.integers(0, 9))
def test_a_large_update_is_scaled_to_its_threshold(norms: list[float], window: int, seed: int) -> None:
    rule, update = clipping(window)
    unit = np.random.default_rng(seed).normal(size=7)
    unit /= np.linalg.norm(unit)
    state = rule.init(None)
    for index, norm in enumerate(norms):
        clipped, state = update((jnp.asarray(unit[:3] * norm, jnp.float32), jnp.asarray(unit[3:] * norm, jnp.float32)), state)
        limit = slow_threshold(norms[:index], window, 1.5)
        scaled = np.concatenate([np.asarray(part) for part in clipped])
        np.testing.assert_allclose(scaled, unit * min(norm, limit), rtol=1e-3, atol=1e-4)
