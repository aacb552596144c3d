"""Row-tiled cross entropy against full logits in float64 and JAX's gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from trainer.model.cross_entropy import TILE_ROWS, row_log_probs, row_nll, weighted_objective
from trainer.spec.compute import loss_rows


def inputs(num_rows: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = (scale * random.normal(size=(num_rows, 16))).astype(np.float32)
    return x, random.normal(size=(33, 16)).astype(np.float32), random.integers(0, 33, num_rows).astype(np.int32)


def obvious(x: np.ndarray, head: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(nll, log Z) of every row."""
    logits = x.astype(np.float64) @ head.astype(np.float64).T
    top = logits.max(axis=1)
    log_z = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return log_z - logits[np.arange(len(targets)), targets], log_z


def obvious_objective(x: jax.Array, head: jax.Array, targets: jax.Array, z_loss_weight: float) -> jax.Array:
    logits = x @ head.T
    log_z = jax.nn.logsumexp(logits, axis=1)
    return (log_z - logits[jnp.arange(len(targets)), targets]).mean() + z_loss_weight * (log_z**2).mean()


def mean_objective(
    x: jax.Array, head: jax.Array, targets: jax.Array, z_loss_weight: float, *, by_gold: bool = False
) -> tuple[jax.Array, jax.Array]:
    return weighted_objective(x, head, targets, jnp.full(x.shape[0], 1.0 / x.shape[0]), z_loss_weight, by_gold=by_gold)


@settings(max_examples=examples(20))
@given(st.sampled_from([1, 2, 255, TILE_ROWS, TILE_ROWS + 1, 2 * TILE_ROWS + 7]), st.integers(0, 99), st.sampled_from([1, 60]))
def test_every_row_is_that_of_full_logits(num_rows: int, seed: int, scale: float) -> None:
    x, head, targets = inputs(num_rows, seed, scale)
    for actual, wanted in zip(jax.jit(row_nll)(x, head, targets), obvious(x, head, targets), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("z_loss_weight", [0.0, 1e-4, 0.3])
@pytest.mark.parametrize("num_rows", [5, TILE_ROWS, TILE_ROWS + 3])
def test_objective_and_gradient_are_those_of_full_logits(num_rows: int, z_loss_weight: float) -> None:
    x, head, targets = inputs(num_rows, 3)
    nll, log_z = obvious(x, head, targets)
    (objective, loss), gradients = jax.jit(
        jax.value_and_grad(lambda x, head: mean_objective(x, head, targets, z_loss_weight), argnums=(0, 1), has_aux=True)
    )(x, head)
    assert float(loss) == pytest.approx(nll.mean(), rel=1e-5)
    assert float(objective) == pytest.approx(nll.mean() + z_loss_weight * (log_z**2).mean(), rel=1e-5)
    wanted = jax.jit(jax.grad(obvious_objective, argnums=(0, 1)))(x, head, targets, z_loss_weight)
    for gradient, reference in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_the_shift_by_the_target_changes_nothing(scale: float) -> None:
    """At scale 8 rows have losses above 70 nats, some above 88, where exp would overflow: the pass is done again."""
    x, head, targets = inputs(TILE_ROWS + 3, 5, scale)
    assert (obvious(x, head, targets)[0].max() > 100) == (scale == 8)
    results = [
        jax.jit(
            jax.value_and_grad(
                lambda x, head, by_gold=by_gold: mean_objective(x, head, targets, 1e-3, by_gold=by_gold), (0, 1), has_aux=True
            )
        )(x, head)
        for by_gold in (False, True)
    ]
    for wanted, actual in zip(*(jax.tree.leaves(each) for each in results), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=1e-6)


def test_gradients_of_a_sure_model_are_small_and_finite() -> None:
    """Logits of hundreds, all on the target: the target's one and its softmax are subtracted after the products."""
    head = np.eye(33, 16, dtype=np.float32) * 40
    targets = np.arange(12, dtype=np.int32)
    gradient = jax.jit(jax.grad(lambda x: mean_objective(x, head, targets, 0.0)[0]))(head[targets])
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


def test_bfloat16_sides_lose_only_their_own_rounding() -> None:
    """Sums stay float32: the gradients are within a few of bfloat16's steps (2 ** -8) of those of the same rounded inputs."""
    x, head, targets = inputs(TILE_ROWS + 3, 2)
    x, head = (jnp.asarray(each, jnp.bfloat16) for each in (x, head))
    wide = (x.astype(jnp.float32), head.astype(jnp.float32))
    gradient = jax.jit(jax.value_and_grad(lambda x, head: mean_objective(x, head, targets, 1e-4)[0], argnums=(0, 1)))
    (loss, narrow), (wanted_loss, wanted) = gradient(x, head), gradient(*wide)
    assert float(loss) == pytest.approx(float(wanted_loss), rel=1e-5)
    for a, b in zip(narrow, wanted, strict=True):
        assert a.dtype == jnp.bfloat16
        np.testing.assert_allclose(a.astype(jnp.float32), b, atol=2**-7 * float(jnp.abs(b).max()))


def test_the_gradient_scales_with_what_comes_from_above() -> None:
    x, head, targets = inputs(7, 1)
    scaled = jax.jit(jax.grad(lambda x, factor: factor * mean_objective(x, head, targets, 0.1)[0]))
    once, thrice = scaled(x, 1.0), scaled(x, 3.0)
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-6)


def test_full_logits_are_never_made() -> None:
    """No value of the compiled gradient has a row a token and a column a vocabulary entry."""
    num_rows, vocab = 8 * TILE_ROWS, 33
    x, head, targets = inputs(num_rows, 0)
    lowered = jax.jit(jax.grad(lambda x: mean_objective(x, head, targets, 0.0)[0])).lower(x).as_text()
    assert f"tensor<{num_rows}x{vocab}x" not in lowered
    assert f"tensor<{TILE_ROWS}x{vocab}x" in lowered


def test_large_tiles_of_the_loss_give_the_same_numbers() -> None:
    """An accelerator's tiles: all rows in one, or a number that does not divide them."""
    x, head, targets = inputs(TILE_ROWS + 3, 2)
    shares = jnp.full(x.shape[0], 1.0 / x.shape[0])

    def objective_and_gradients(rows: int):
        return jax.value_and_grad(lambda x, h: weighted_objective(x, h, targets, shares, 0.1, rows)[0], (0, 1))(x, head)

    for rows in (loss_rows(head.shape[0], "tpu"), 100):
        for ours, theirs in zip(
            jax.tree.leaves(objective_and_gradients(rows)), jax.tree.leaves(objective_and_gradients(TILE_ROWS)), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("num_rows", [5, TILE_ROWS + 3])
def test_log_probs_and_any_gradient_are_those_of_full_logits(num_rows: int, temperature: float) -> None:
    x, head, targets = inputs(num_rows, 5)
    pull = np.random.default_rng(1).normal(size=num_rows).astype(np.float32)

    def full(x: jax.Array, head: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(x @ head.T / temperature, axis=1)[jnp.arange(num_rows), targets]

    found, pullback = jax.vjp(lambda x, head: row_log_probs(x, head, targets, temperature), x, head)
    wanted, reference = jax.vjp(full, x, head)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(pullback(pull), reference(pull), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
