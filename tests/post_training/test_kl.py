"""Expected gradients of the KL estimators against the gradient of a policy of five symbols that can be enumerated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from post_training.losses import LogProbs, kl_in_loss, kl_in_reward, policy_loss
from post_training.spec import CorrectionConfig, KLConfig, LossConfig

jax.config.update("jax_enable_x64", False)
POLICY = jnp.array([0.3, -1.0, 0.7, 0.1, -0.4])
REFERENCE = jnp.array([-0.2, 0.5, 0.4, -1.1, 0.9])
OLDER = jnp.array([0.5, -0.8, 0.1, 0.3, -0.6])


def exact(logits: jax.Array, reverse: bool = False) -> jax.Array:
    ours, theirs = jax.nn.log_softmax(logits), jax.nn.log_softmax(REFERENCE)
    first, second = (theirs, ours) if reverse else (ours, theirs)
    return jnp.sum(jnp.exp(first) * (first - second))


def expected(estimator: str, sampled_by: jax.Array) -> np.ndarray:
    """Sum over all symbols of probability under the sampler times the gradient of the term."""
    behaviour = jax.nn.log_softmax(sampled_by)

    def objective(logits: jax.Array) -> jax.Array:
        current = jax.nn.log_softmax(logits)
        ratio = jnp.exp(current - behaviour)[None]
        reference = jax.nn.log_softmax(REFERENCE)
        full = jnp.broadcast_to(jnp.sum(jnp.exp(current) * (current - reference)), (1, 5))
        term = kl_in_loss(estimator, LogProbs(current[None], behaviour[None], behaviour[None], reference[None], full), ratio)
        return jnp.sum(jnp.exp(behaviour) * term[0])

    return np.asarray(jax.grad(objective)(POLICY))


@pytest.mark.parametrize("sampler", [POLICY, OLDER], ids=["on policy", "off policy"])
@pytest.mark.parametrize("estimator", ["k2", "k3_corrected", "full"])
def test_the_gradient_is_that_of_policy_to_reference(estimator: str, sampler: jax.Array) -> None:
    assert expected(estimator, sampler) == pytest.approx(np.asarray(jax.grad(exact)(POLICY)), abs=1e-6)


@pytest.mark.parametrize("estimator", ["k2", "k3_corrected"])
def test_the_gradient_of_a_stale_completion_carries_the_ratio_to_its_sampler(estimator: str) -> None:
    """One policy sampled, another begins the iteration, and a third is trained."""
    sampler, before = jax.nn.log_softmax(OLDER), jax.nn.log_softmax(jnp.array([0.4, -0.9, 0.5, 0.2, -0.5]))
    config = LossConfig(correction=CorrectionConfig(limit=1e9))

    def gradient(off_policy: bool) -> np.ndarray:
        def objective(logits: jax.Array) -> jax.Array:
            given = LogProbs(jax.nn.log_softmax(logits)[None], before[None], sampler[None], jax.nn.log_softmax(REFERENCE)[None])
            kl = KLConfig(1.0, estimator)  # type: ignore[arg-type]
            found = policy_loss(config, kl, given, jnp.zeros(1), jnp.ones((1, 5)), off_policy)
            return jnp.sum(jnp.exp(sampler) * found[0])

        return np.asarray(jax.grad(objective)(POLICY))

    wanted = np.asarray(jax.grad(exact)(POLICY))
    assert gradient(True) == pytest.approx(wanted, abs=1e-6)
    assert np.abs(gradient(False) - wanted).max() > 0.01


def test_plain_k3_has_the_gradient_of_reference_to_policy() -> None:
    found = expected("k3", POLICY)
    assert found == pytest.approx(np.asarray(jax.grad(lambda logits: exact(logits, reverse=True))(POLICY)), abs=1e-6)
    assert np.abs(found - np.asarray(jax.grad(exact)(POLICY))).max() > 0.05
    assert KLConfig(0.1, "k3").direction == "reference_to_policy"
    assert KLConfig(0.1, "k3_corrected").direction == "policy_to_reference"


def test_k1_in_the_reward_has_the_gradient_of_policy_to_reference() -> None:
    """The score-function gradient of minus the penalty."""
    ours, theirs = jax.nn.log_softmax(POLICY), jax.nn.log_softmax(REFERENCE)
    taken = kl_in_reward(KLConfig(1.0, "k1", "reward"), ours[:, None], theirs[:, None], jnp.ones((5, 1)))
    score = jax.jacobian(jax.nn.log_softmax)(POLICY)
    found = jnp.einsum("x,x,xd->d", jnp.exp(ours), taken, score)
    assert np.asarray(found) == pytest.approx(np.asarray(jax.grad(exact)(POLICY)), abs=1e-6)


def test_k1_in_the_loss_has_no_gradient_and_is_refused() -> None:
    ours = jax.nn.log_softmax(POLICY)
    score = jax.jacobian(jax.nn.log_softmax)(POLICY)
    assert np.asarray(jnp.einsum("x,xd->d", jnp.exp(ours), score)) == pytest.approx(np.zeros(5), abs=1e-6)
    with pytest.raises(ValueError, match="expectation of its gradient is 0"):
        KLConfig(0.1, "k1", "loss")


@pytest.mark.parametrize("estimator", ["k2", "k3", "k3_corrected", "full"])
def test_other_estimators_in_the_reward_are_refused(estimator) -> None:
    with pytest.raises(ValueError, match="Give k1 in the reward"):
        KLConfig(0.1, estimator, "reward")
