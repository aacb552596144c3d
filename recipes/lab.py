"""Load every study of `recipes/studies/` and of the lab's own recipe files; a mistake disables one declaration only.

The ferry is in `recipes/smoke.py`, the canary in `recipes/canary.py`.
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType

from lineage.project import PREFIX
from recipes import studies
from recipes.annealings import Annealing
from recipes.canary import Canary, canary
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
from recipes.sources import own_recipes
from recipes.study import Study
from recipes.swarms import Swarm

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Broken:
    """A declaration that raised: the function or the file that declares it, its study, and the error."""

    name: str
    study: str
    """Name of a study of `recipes/studies/`, or path of a recipe file of the lab's own."""

    error: str

    def __str__(self) -> str:
        file = self.study if self.study.endswith(".py") else f"recipes/studies/{self.study}.py"
        return f"{self.name} ({file}) is disabled: {self.error}"


@dataclass(frozen=True)
class Declarations:
    """What a lab declares: runs, sweeps, searches, swarms, sets, corpora, comparisons, canaries, and what has a mistake."""

    runs: tuple[Run, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    searches: tuple[Search, ...] = ()
    swarms: tuple[Swarm, ...] = ()
    annealings: tuple[Annealing, ...] = ()
    proxies: tuple[Proxy, ...] = ()
    rewards: tuple[RewardRun, ...] = ()
    synthetic: tuple[SyntheticSet, ...] = ()
    labels: tuple[DocumentLabels, ...] = ()
    corpora: tuple[Corpus, ...] = ()
    gaps: tuple[Gap, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    correlations: tuple[PoolCorrelation, ...] = ()
    policies: tuple[Corpus, ...] = ()
    """Corpora whose sources are also marked by the published contamination policies."""

    canaries: tuple[Canary, ...] = (canary("cpu"),)
    broken: tuple[Broken, ...] = ()
    study_of: Mapping[str, str] = field(default_factory=dict)
    """Name of a declaration -> its study."""

    def run(self, name: str) -> Run:
        """Return the declared run of a name. Raises: ValueError that lists the names, or says why the run is disabled."""
        for run in self.runs:
            if run.name == name:
                return run
        for broken in self.broken:
            if broken.name == name:
                raise ValueError(str(broken))
        raise ValueError(f"run {name!r} is not declared; the declared runs are {', '.join(run.name for run in self.runs)}")

    def sweep(self, name: str) -> Sweep:
        """Return the declared sweep of a name. Raises: ValueError that lists the names."""
        for sweep in self.sweeps:
            if sweep.name == name:
                return sweep
        names = ", ".join(sweep.name for sweep in self.sweeps) or "none"
        raise ValueError(f"sweep {name!r} is not declared; the declared sweeps are: {names}")


@cache
def declarations() -> Declarations:
    """Return the declarations of `recipes/studies/` and of the lab's own recipe files, and log each mistake.

    A lab that runs the wheel has its own alone.
    """
    names = [] if PREFIX else sorted(module.name for module in pkgutil.iter_modules(studies.__path__))
    shared = {name: lambda name=name: importlib.import_module(f"{studies.__name__}.{name}").study() for name in names}
    return load(shared | dict(own_recipes().studies))


def load(declared: Mapping[str, Callable[[], Study]]) -> Declarations:
    """Call every function of the studies (by name). A function that raises is logged and listed in `broken`."""
    loading = _Loading()
    for name, function in declared.items():
        for study in loading.tried(function, name, name):
            loading.members(name, "run", study.runs, loading.runs)
            loading.members(name, "sweep", study.sweeps, loading.sweeps)
            loading.members(name, "search", study.searches, loading.searches)
            loading.members(name, "swarm", study.swarms, loading.swarms)
            loading.members(name, "annealing", study.annealings, loading.annealings)
            loading.members(name, "proxy", study.proxies, loading.proxies)
            loading.members(name, "run on rewards", study.rewards, loading.rewards)
            loading.members(name, "synthetic set", study.synthetic, loading.synthetic)
            loading.members(name, "labels", study.labels, loading.labels)
            loading.members(name, "corpus", study.corpora, loading.corpora)
            loading.members(name, "gap", study.gaps, loading.gaps)
            loading.members(name, "promotion", study.promotions, loading.promotions)
            loading.members(name, "correlation", study.correlations, loading.correlations)
            loading.members(name, "corpus of policies", study.policies, loading.policies)
            for hardware in study.canaries:
                for record in loading.tried(partial(canary, hardware), f"canary_{hardware}", name):
                    loading.canaries.setdefault(hardware, record)
    for broken in loading.broken:
        log.error("%s", broken)
    return Declarations(
        runs=tuple(loading.runs.values()),
        sweeps=tuple(loading.sweeps.values()),
        searches=tuple(loading.searches.values()),
        swarms=tuple(loading.swarms.values()),
        annealings=tuple(loading.annealings.values()),
        proxies=tuple(loading.proxies.values()),
        rewards=tuple(loading.rewards.values()),
        synthetic=tuple(loading.synthetic.values()),
        labels=tuple(loading.labels.values()),
        corpora=tuple(loading.corpora.values()),
        gaps=tuple(loading.gaps.values()),
        promotions=tuple(loading.promotions.values()),
        correlations=tuple(loading.correlations.values()),
        policies=tuple(loading.policies.values()),
        canaries=tuple(loading.canaries.values()),
        broken=tuple(loading.broken),
        study_of=MappingProxyType(loading.study_of),
    )


@dataclass
class _Loading:
    """The declarations loaded so far, by name."""

    runs: dict[str, Run] = field(default_factory=dict)
    sweeps: dict[str, Sweep] = field(default_factory=dict)
    searches: dict[str, Search] = field(default_factory=dict)
    swarms: dict[str, Swarm] = field(default_factory=dict)
    annealings: dict[str, Annealing] = field(default_factory=dict)
    proxies: dict[str, Proxy] = field(default_factory=dict)
    rewards: dict[str, RewardRun] = field(default_factory=dict)
    synthetic: dict[str, SyntheticSet] = field(default_factory=dict)
    labels: dict[str, DocumentLabels] = field(default_factory=dict)
    corpora: dict[str, Corpus] = field(default_factory=dict)
    gaps: dict[str, Gap] = field(default_factory=dict)
    promotions: dict[str, Promotion] = field(default_factory=dict)
    correlations: dict[str, PoolCorrelation] = field(default_factory=dict)
    policies: dict[str, Corpus] = field(default_factory=dict)
    canaries: dict[str, Canary] = field(default_factory=lambda: {"cpu": canary("cpu")})
    broken: list[Broken] = field(default_factory=list)
    study_of: dict[str, str] = field(default_factory=dict)

    def members[
        T: (
            Run,
            Sweep,
            Search,
            Swarm,
            Annealing,
            Proxy,
            RewardRun,
            SyntheticSet,
            DocumentLabels,
            Corpus,
            Gap,
            Promotion,
            PoolCorrelation,
        )
    ](self, study: str, kind: str, declared: tuple[Callable[[], T], ...], into: dict[str, T]) -> None:
        for function in declared:
            for record in self.tried(function, function.__name__, study):
                if record.name in into:
                    error = f"ValueError: a {kind} named {record.name!r} is declared twice; rename one"
                    self.broken.append(Broken(record.name, study, error))
                    continue
                into[record.name] = record
                self.study_of[record.name] = study

    def tried[T](self, function: Callable[[], T], name: str, study: str) -> Iterator[T]:
        """Yield what the function returns; if it raises, record that and yield nothing."""
        try:
            declared = function()
        except Exception as error:  # the other declarations must load
            self.broken.append(Broken(name, study, f"{type(error).__name__}: {error}"))
        else:
            yield declared
