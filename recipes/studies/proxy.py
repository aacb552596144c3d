"""Is the better-scored half of the default corpus better text? Small models on the whole and on the half, in pairs."""

from recipes.proxies import Proxy
from recipes.records.run import Run
from recipes.studies.default import best_half, default_corpus
from recipes.studies.small_models import small_model, small_rate, small_run
from recipes.study import Study

WIDTH, STEPS, WARMUP_STEPS = 32, 1000, 200
"""A slow warm-up, so that seeds differ little (docs/log.md, 2026-11-27)."""


def study() -> Study:
    return Study("Is the better-scored half of a corpus better text?", proxies=(best_half_judged,))


def best_half_judged() -> Proxy:
    """The default corpus before and after the filter, three seeds of each."""
    corpora = (("before", default_corpus()), ("after", best_half()))
    return Proxy("best_half", judge(), corpora, targets=("prose", "code"))


def judge() -> Run:
    """A model of width 32 over half a million tokens."""
    return small_run("judge", small_model(WIDTH), STEPS, small_rate(WIDTH), warmup_steps=WARMUP_STEPS)
