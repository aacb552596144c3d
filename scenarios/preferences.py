"""Learning from preferences: part of `make post-train` (one seed) and of `make post-train-study` (three seeds, two controls).

A control prefers one of two forms of one answer: the longer one, or the one in round brackets. If it were right on held-out
pairs of right and wrong answers, the measure would show more than what a run has learned of addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from lineage.artifact.store import Store
from lineage.build.nodes import resolve
from lineage.build.plan import build_all
from lineage.jobs.job import Launcher
from recipes.pipeline import cleaned_of_vendored_items
from recipes.runs import checkpoint, preference_scores
from recipes.studies.preferences import ARMS, SEED, WHOLE, Course, preferring
from scenarios.evidence import Teller
from trainer.pair_data import FACTS

LOOK_SEEDS, STUDY_SEEDS = (SEED,), (SEED, SEED + 1, SEED + 2)
LEARNED, CONTROL, LEAST_PAIRS = 0.9, 0.6, 1000
"""Limits: the accuracy of a learner, that of a control, and how many pairs must be held out."""
LAST_STEPS = 50
"""Over how many last steps the accuracy on a run's own pairs is averaged."""
GIVEN = {"length": "pairs that differ in length only", "style": "pairs that differ in style only"}


@dataclass(frozen=True)
class Preferred:
    """A run on preferences: its scores on held-out pairs of right and wrong answers, and its metrics by step."""

    arm: str
    seed: int
    scores: dict[str, float]
    """`trainer.pair_scores.summary`."""
    metrics: pl.DataFrame

    @property
    def accuracy(self) -> float:
        """Share of held-out pairs with the higher implicit reward on the right answer."""
        return self.scores["reward_accuracy"]

    @property
    def own_accuracy(self) -> float:
        """The same on the batches of the last steps."""
        return float(self.metrics.tail(LAST_STEPS)["accuracy"].to_numpy().mean())


def preferred(
    store: Store, arms: Sequence[str], seeds: Sequence[int], launcher: Launcher, course: Course = WHOLE
) -> list[Preferred]:
    """Train the arms of every seed, or reuse them. Their corpora are cleaned of the extract in the repository: no download."""
    runs = []
    for arm in arms:
        for seed in seeds:
            run = preferring(arm, course, seed, cleaned_of_vendored_items())
            node = preference_scores(run, run.spec.num_steps)
            [scored] = build_all(store, [node], launcher=launcher, run_id="post-train")
            trained = resolve(store, checkpoint(run, run.spec.num_steps))
            runs.append(Preferred(arm, seed, scored.manifest.extra[FACTS], pl.read_parquet(trained.file("metrics.parquet"))))
    return runs


def judge_preferences(runs: Sequence[Preferred], teller: Teller) -> None:
    """Compare every run with the limits."""
    teller.act("Implicit rewards on held-out pairs of right and wrong answers")
    for each in sorted(runs, key=lambda run: list(ARMS).index(run.arm)):
        enough = each.scores["pairs"] >= LEAST_PAIRS
        if each.arm == "dpo":
            claim = f"DPO is right in at least {LEARNED:.0%} of at least {LEAST_PAIRS:,} pairs"
            teller.say("preferences", claim, shown(each), enough and each.accuracy >= LEARNED)
        else:
            claim = f"DPO on {GIVEN[each.arm]} stays below {CONTROL:.0%}"
            teller.say("preferences", claim, shown(each), enough and each.accuracy < CONTROL)
            claim = f"DPO on {GIVEN[each.arm]} has learned them: at least {LEARNED:.0%} of its own pairs"
            own = f"seed {each.seed}: {each.own_accuracy:.1%} in the last {LAST_STEPS} steps"
            teller.say("preferences", claim, own, each.own_accuracy >= LEARNED)


def shown(run: Preferred) -> str:
    """The numbers of a run in one line."""
    scores = run.scores
    return (
        f"seed {run.seed}: {run.accuracy:.1%} of {scores['pairs']:,.0f}; by log-probability {scores['log_prob_accuracy']:.1%}, "
        f"the base {scores['reference_log_prob_accuracy']:.1%}; chosen {scores['reference_chosen_log_prob']:.3f} to "
        f"{scores['chosen_log_prob']:.3f} nats"
    )
