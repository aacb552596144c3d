"""Advantages against obvious references, and what must not count."""

import numpy as np
import pytest

from post_training.advantages import EPSILON, advantages, dead_groups
from post_training.spec import Distill, Grpo, Reinforce, Rloo

REWARDS = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.5, 0.25, 1.0, 0.0]])
ALL = np.ones_like(REWARDS, bool)


def test_rloo_leaves_its_own_sample_out() -> None:
    for group, row in enumerate(REWARDS):
        for member, reward in enumerate(row):
            others = [other for place, other in enumerate(row) if place != member]
            assert advantages(Rloo(), REWARDS, ALL)[group, member] == pytest.approx(reward - sum(others) / 3, abs=1e-15)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_grpo_is_the_centred_reward_over_a_deviation(scale: str) -> None:
    found = advantages(Grpo(scale), REWARDS, ALL)  # pyrefly: ignore
    for group, row in enumerate(REWARDS):
        deviation = {"group": np.std(row, ddof=1) + EPSILON, "batch": np.std(REWARDS, ddof=1) + EPSILON, "none": 1.0}[scale]
        assert found[group] == pytest.approx((row - row.mean()) / deviation, abs=1e-12)


def test_reinforce_has_the_batch_without_itself_as_baseline() -> None:
    found = advantages(Reinforce(), REWARDS, ALL)
    assert found[0, 0] == pytest.approx(1.0 - (REWARDS.sum() - 1.0) / 11)
    assert (advantages(Reinforce("none"), REWARDS, ALL) == REWARDS).all()
    assert not advantages(Distill(), REWARDS, ALL).any()


@pytest.mark.parametrize("how", [Rloo(), Grpo(), Grpo("batch"), Reinforce()])
def test_a_failed_verdict_counts_nowhere(how) -> None:
    """The group without the completion has the advantages of a smaller group, whatever its cell holds."""
    valid = ALL.copy()
    valid[:, 3] = False
    rewards = REWARDS.copy()
    rewards[:, 3] = np.nan
    found = advantages(how, rewards, valid)
    assert found[:, :3] == pytest.approx(advantages(how, REWARDS[:, :3], ALL[:, :3]))
    assert not found[:, 3].any()


def test_nan_that_counts_is_refused() -> None:
    rewards = REWARDS.copy()
    rewards[2, 1] = np.nan
    with pytest.raises(ValueError, match="completion 1 of group 2 is nan"):
        advantages(Rloo(), rewards, ALL)


def test_a_group_is_dead_if_its_known_rewards_are_equal() -> None:
    valid = ALL.copy()
    valid[0, [0, 3]] = False
    assert dead_groups(REWARDS, ALL).tolist() == [False, True, False]
    assert dead_groups(REWARDS, valid).tolist() == [True, True, False]
    assert dead_groups(REWARDS, np.zeros_like(ALL)).all()


def test_one_completion_alone_teaches_nothing() -> None:
    valid = np.zeros_like(ALL)
    valid[:, 0] = True
    for how in (Rloo(), Grpo()):
        assert not advantages(how, REWARDS, valid).any()
