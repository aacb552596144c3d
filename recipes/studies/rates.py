"""A small sweep over peak learning rates, the shortest example of trials, and a search that goes on from it."""

from collections.abc import Mapping
from dataclasses import replace

from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.searches import Search
from recipes.studies.default import tiny
from recipes.study import Study
from science.search.proposers import SpaceSearch
from science.search.space import Dimension
from trainer.spec.schedules import WarmupStableDecay

RATES = (1e-3, 2e-3, 4e-3, 8e-3)


def study() -> Study:
    return Study("Which peak learning rate suits `tiny`?", sweeps=(tiny_rates,), searches=(tiny_rate_search,))


def tiny_rates() -> Sweep:
    return Sweep("tiny_rates", tuple(at_rate(f"lr{rate:g}", rate) for rate in RATES))


def tiny_rate_search() -> Search:
    """Up to three rounds of three rates, each chosen from all results before it."""
    space = SpaceSearch((Dimension("learning_rate", 5e-4, 3e-2),), count=3)
    return Search("tiny_rate_search", tiny_rates(), space, at_proposed)


def at_proposed(name: str, values: Mapping[str, float]) -> Run:
    """The trial of proposed settings."""
    return at_rate(name, values["learning_rate"])


def at_rate(name: str, rate: float) -> Run:
    """`tiny` at a peak rate; a trial keeps only its last checkpoint."""
    base = tiny()
    assert isinstance(base.spec.schedule, WarmupStableDecay)
    schedule = replace(base.spec.schedule, peak_learning_rate=rate)
    return replace(base, spec=replace(base.spec, name=name, schedule=schedule, save_every_steps=None))
