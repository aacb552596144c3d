"""A study declares runs, sweeps, searches, swarms, corpora, comparisons and canaries that answer one question."""

from collections.abc import Callable
from dataclasses import dataclass

from recipes.annealings import Annealing
from recipes.correlations import PoolCorrelation
from recipes.gaps import Gap
from recipes.promotions import Promotion
from recipes.proxies import Proxy
from recipes.records.data import Corpus
from recipes.records.labels import DocumentLabels
from recipes.records.reward_run import RewardRun
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.records.synthetic import SyntheticSet
from recipes.searches import Search
from recipes.swarms import Swarm


@dataclass(frozen=True)
class Study:
    """Functions whose declarations answer one question. Each is called separately, so a mistake disables only one."""

    question: str
    runs: tuple[Callable[[], Run], ...] = ()
    sweeps: tuple[Callable[[], Sweep], ...] = ()
    searches: tuple[Callable[[], Search], ...] = ()
    """Sweeps that add rounds to one of the sweeps."""

    swarms: tuple[Callable[[], Swarm], ...] = ()
    annealings: tuple[Callable[[], Annealing], ...] = ()
    """Branches from one checkpoint over several mixes."""

    proxies: tuple[Callable[[], Proxy], ...] = ()
    """Small models that judge a corpus."""

    rewards: tuple[Callable[[], RewardRun], ...] = ()
    """Runs that learn from rewards."""

    synthetic: tuple[Callable[[], SyntheticSet], ...] = ()
    """Sets of completions of a teacher."""

    labels: tuple[Callable[[], DocumentLabels], ...] = ()
    """Labels of documents by a model."""

    corpora: tuple[Callable[[], Corpus], ...] = ()
    """Corpora that no run trains on, for comparison with others."""

    gaps: tuple[Callable[[], Gap], ...] = ()
    promotions: tuple[Callable[[], Promotion], ...] = ()
    correlations: tuple[Callable[[], PoolCorrelation], ...] = ()
    policies: tuple[Callable[[], Corpus], ...] = ()
    """Corpora whose sources are also marked by the published contamination policies, for comparison."""

    canaries: tuple[str, ...] = ()
    """Names of hardware on which the lab's canary runs every day, beside `cpu` (`recipes/canary.py`)."""
