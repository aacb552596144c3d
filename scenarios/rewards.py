"""Learning from rewards: `make post-train` runs one seed, `make post-train-study` three seeds and one more control."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from lineage.build.plan import build_all
from lineage.jobs.job import Launcher
from post_training.texts import shards_of
from recipes import reward_runs, rewards
from recipes.records.reward_run import RewardRun, held_out_like
from scenarios.evidence import Teller

LOOK = ("rloo", "grpo", "permuted")
STUDY = (*LOOK, "own_right")
GAIN, ABOVE, CHANGE = 0.30, 0.70, 0.04
"""Limits: points above the base and the accuracy of a learner, and the largest change of the control."""


@dataclass(frozen=True)
class Learned:
    """A run with its scores on held-out prompts and its rollouts."""

    arm: str
    seed: int
    scores: dict[str, Any]
    rollouts: tuple[Artifact, ...]

    @property
    def accuracy(self) -> float:
        return self.scores["accuracy"]


def learned(store: Store, arms: Sequence[str], seeds: Sequence[int], completions: int, launcher: Launcher) -> list[Learned]:
    """Build the base and the arms of every seed, or reuse them."""
    runs = []
    for seed in seeds:
        for arm in ("base", *arms):
            run = rewards.base(seed) if arm == "base" else rewards.learner(arm, seed)
            runs.append(one(store, arm, seed, run, completions, launcher))
    return runs


def one(store: Store, arm: str, seed: int, run: RewardRun, completions: int, launcher: Launcher) -> Learned:
    """Build one run and its scores."""
    node = reward_runs.held_out(run, run.spec.run.num_steps, held_out_like(run.spec.sampling, completions))
    [scored] = build_all(store, [node], launcher=launcher, run_id="post-train")
    shards = tuple(shards_of(resolve(store, reward_runs.last_checkpoint(run))))
    return Learned(arm, seed, scored.manifest.extra["held_out"], shards)


def judge(runs: Sequence[Learned], teller: Teller) -> None:
    """Compare every arm with the base of its seed."""
    bases = {each.seed: each for each in runs if each.arm == "base"}
    teller.act("Sampled accuracy on held-out prompts")
    for each in runs:
        base = bases[each.seed].accuracy
        shown = f"seed {each.seed}: {100 * each.accuracy:.1f} %, base {100 * base:.1f} %"
        if each.arm in ("rloo", "grpo"):
            claim = f"{each.arm} is at least 30 points above its base and above 70 %"
            teller.say("accuracy", claim, shown, each.accuracy >= base + GAIN and each.accuracy > ABOVE)
        elif each.arm == "permuted":
            claim = "with permuted rewards the change is at most 4 points"
            teller.say("accuracy", claim, shown, abs(each.accuracy - base) <= CHANGE)
        elif each.arm == "own_right":
            teller.say("accuracy", "imitation of its own right samples, the same compute", shown)
    teller.act("pass@k on held-out prompts")
    for each in runs:
        shown = ", ".join(f"{k}: {100 * value:.1f} %" for k, value in each.scores["pass_at_k"].items())
        teller.say("pass@k", f"{each.arm}, seed {each.seed}", shown)
