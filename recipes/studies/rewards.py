"""Two-digit addition from rewards: RLOO and GRPO from one base (docs/recipes/train_with_rewards.md)."""

from recipes.records.reward_run import RewardRun
from recipes.rewards import base, learner
from recipes.study import Study


def study() -> Study:
    return Study(
        "Does a model that half knows addition learn it from rewards?", rewards=(addition_base, addition_rloo, addition_grpo)
    )


def addition_base() -> RewardRun:
    """Imitation of right answers, ended early."""
    return base()


def addition_rloo() -> RewardRun:
    """Reward less the mean of the other completions of the group."""
    return learner("rloo")


def addition_grpo() -> RewardRun:
    """Reward less the group's mean over its deviation."""
    return learner("grpo")
