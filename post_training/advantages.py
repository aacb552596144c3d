"""Advantages of completions from their rewards: pure functions on the CPU in float64.

Shapes: G groups, N completions of a group. A completion whose reward is not known (its verifier failed) is not valid. It counts
in no mean, and its advantage is 0.
"""

import numpy as np
from jaxtyping import Bool, Float

from post_training.spec import Advantage, Distill, Grpo, Imitate, Reinforce, Rloo

EPSILON = 1e-4
"""Added to a deviation before the division, as in TRL."""


def advantages(how: Advantage, rewards: Float[np.ndarray, "G N"], valid: Bool[np.ndarray, "G N"]) -> Float[np.ndarray, "G N"]:
    """Return the advantage of every completion. Raises: ValueError naming the first valid reward that is not finite."""
    broken = valid & ~np.isfinite(rewards)
    if broken.any():
        group, member = np.argwhere(broken)[0]
        raise ValueError(f"the reward of completion {member} of group {group} is {rewards[group, member]}; it must be finite")
    known = np.where(valid, rewards, 0.0)
    match how:
        case Rloo():
            values = leave_one_out(known, valid)
        case Grpo(scale=scale):
            values = group_relative(known, valid, scale)
        case Reinforce(baseline=baseline):
            flat = leave_one_out(known.reshape(1, -1), valid.reshape(1, -1)).reshape(known.shape)
            values = flat if baseline == "batch" else known
        case Distill() | Imitate():
            values = np.zeros_like(known)
    return np.where(valid, values, 0.0)


def leave_one_out(rewards: Float[np.ndarray, "G N"], valid: Bool[np.ndarray, "G N"]) -> Float[np.ndarray, "G N"]:
    """A_i = r_i - mean of r_j over the other valid j of the group; 0 if there is no other."""
    others = valid.sum(axis=1, keepdims=True) - 1
    rest = (rewards.sum(axis=1, keepdims=True) - rewards) / np.maximum(others, 1)
    return np.where(others > 0, rewards - rest, 0.0)


def group_relative(rewards: Float[np.ndarray, "G N"], valid: Bool[np.ndarray, "G N"], scale: str) -> Float[np.ndarray, "G N"]:
    """A_i = (r_i - mean) / (std + epsilon), where std is of the group, of the batch, or 1 - epsilon for `none`.

    The standard deviation has the unbiased denominator N - 1, like torch's.
    """
    count = valid.sum(axis=1, keepdims=True)
    centred = np.where(valid, rewards - rewards.sum(axis=1, keepdims=True) / np.maximum(count, 1), 0.0)
    if scale == "none":
        return centred
    if scale == "group":
        deviation = np.sqrt((centred**2).sum(axis=1, keepdims=True) / np.maximum(count - 1, 1))
    else:
        deviation = np.std(rewards[valid], ddof=1) if valid.sum() > 1 else np.float64(0)
    return centred / (deviation + EPSILON)


def dead_groups(rewards: Float[np.ndarray, "G N"], valid: Bool[np.ndarray, "G N"]) -> Bool[np.ndarray, " G"]:
    """Return the groups whose valid rewards are all equal. Nothing is learned from them."""
    lowest, highest = np.where(valid, rewards, np.inf).min(axis=1), np.where(valid, rewards, -np.inf).max(axis=1)
    return ~(lowest < highest)
