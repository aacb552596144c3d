"""Advantages, losses and gradients of GRPO and RLOO: equal to TRL's own code on the same log-probabilities and rewards.

`trl_rewards.json` was recorded by benchmarks/post_training/record_trl_rewards.py from TRL 1.16.0, torch 2.13.0.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from post_training.advantages import advantages
from post_training.losses import LogProbs, kl_in_reward, policy_loss, token_weights
from post_training.spec import Advantage, Grpo, KLConfig, LossConfig, Rloo

GOLDEN = json.loads((Path(__file__).parent / "trl_rewards.json").read_text())


def loss(**changes) -> LossConfig:
    return LossConfig(**({"correction": None, "aggregate": "sequence_mean"} | changes))


OURS: dict[str, tuple[Advantage, LossConfig, KLConfig | None]] = {
    "grpo": (Grpo(), loss(), None),
    "bnpo": (Grpo(), loss(aggregate="token_mean"), None),
    "dr_grpo": (Grpo("none"), loss(aggregate="fixed_length"), None),
    "clip_higher": (Grpo("batch"), loss(aggregate="token_mean", clip_high=0.28), None),
    "gspo": (Grpo(), loss(ratio="sequence"), None),
    "k3": (Grpo(), loss(), KLConfig(0.1, "k3")),
    "k3_corrected": (Grpo(), loss(), KLConfig(0.1, "k3_corrected")),
    "rloo": (Rloo(), loss(ratio="product"), None),
    "rloo_kl": (Rloo(), loss(ratio="product"), KLConfig(0.05, "k1", "reward")),
}


def of(name: str) -> jax.Array:
    return jnp.asarray(GOLDEN[name], jnp.float32)


def test_every_recorded_variant_is_compared() -> None:
    assert set(OURS) == set(GOLDEN["variants"])


@pytest.mark.parametrize("name", OURS)
def test_advantages_losses_and_gradients_are_those_of_trl(name: str) -> None:
    recorded, (how, config, kl) = GOLDEN["variants"][name], OURS[name]
    mask, before, reference = of("mask"), of("before"), of("reference")
    rewards = np.array(GOLDEN["rewards"])
    if kl is not None and kl.where == "reward":
        rewards = rewards - np.asarray(kl_in_reward(kl, before, reference, mask), np.float64)
    groups = rewards.reshape(-1, GOLDEN["members"])
    advantage = jnp.asarray(advantages(how, groups, np.ones_like(groups, bool)).reshape(-1), jnp.float32)
    np.testing.assert_allclose(advantage, recorded["advantages"], rtol=0, atol=1e-5)

    def objective(current: jax.Array) -> jax.Array:
        token = policy_loss(config, kl, LogProbs(current, before, before, reference), advantage, mask)
        return (token * token_weights(config, mask, GOLDEN["most_new"])).sum()

    value, gradient = jax.value_and_grad(objective)(of("current"))
    assert float(value) == pytest.approx(recorded["value"], abs=1e-5, rel=0)
    np.testing.assert_allclose(gradient, recorded["gradient"], rtol=0, atol=1e-5)
    assert np.abs(np.array(recorded["gradient"])).max() > 1e-3
