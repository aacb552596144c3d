"""Records of the data half: a scope of sources, its decontamination, and the filtered corpus."""

from dataclasses import dataclass, field, replace

from datakit.contamination.coverage import ContaminationConfig
from datakit.corpus.filters import CorpusConfig
from datakit.corpus.removals import RemovalsConfig
from datakit.dedup.containment_candidates import ContainmentConfig
from datakit.dedup.duplicates import DuplicatesConfig
from datakit.dedup.minhash import preset
from datakit.quality.score_cutoff import ScoreCutoffConfig
from datakit.quality.scorer import ScorerConfig
from datakit.semantics.duplicates import SemanticDuplicatesConfig
from datakit.tags.domain_model import DomainModelConfig
from datakit.tags.domains import UNDECIDED
from recipes.contamination import CLEAN_SOURCES, DeclaredPolicy
from recipes.records.narrowing import Narrowing
from recipes.sources import source_config
from recipes.suites import Suite

DEFAULT_PRESET = "14x8"


@dataclass(frozen=True)
class Scope:
    """The sources among which duplicates are searched, and the method."""

    name: str
    sources: tuple[str, ...]
    """Names in the order that breaks ties between duplicates."""

    minhash: str = DEFAULT_PRESET
    """The preset of the search for near-duplicates (`datakit/dedup/minhash.py`); 20x5 finds nearly all of them."""

    duplicates: DuplicatesConfig = field(default_factory=DuplicatesConfig)
    """Which candidate pairs count as duplicates."""

    semantic: SemanticDuplicatesConfig = field(default_factory=SemanticDuplicatesConfig)
    """Which documents say the same, for corpora that drop them (`CorpusConfig.drop_semantic_duplicates`)."""

    containment: ContainmentConfig = field(default_factory=ContainmentConfig)
    """Which documents count as lying inside others, for corpora that drop these."""

    left_out: tuple[tuple[str, str], ...] = ()
    """Sources that a narrowing left out, and why."""

    earlier: "Scope | None" = None
    """The scope that this one adds sources to. What it keeps stays and wins over these sources; none of it is made again."""

    def __post_init__(self) -> None:
        if not self.sources or len(set(self.sources)) != len(self.sources):
            raise ValueError(f"scope {self.name}: its sources are {self.sources}; give at least one, each once")
        if self.earlier is not None:
            if again := sorted(set(self.sources) & set(self.earlier.every_source)):
                raise ValueError(
                    f"scope {self.name}: {', '.join(again)} is in the earlier scope {self.earlier.name}; name new sources only"
                )
            if self.minhash != self.earlier.minhash:
                raise ValueError(
                    f"scope {self.name}: minhash is {self.minhash!r}, the earlier scope {self.earlier.name} has "
                    f"{self.earlier.minhash!r}; signatures of two presets cannot be compared, so give both one preset"
                )
        for source in self.sources:
            source_config(source)
        preset(self.minhash)

    @property
    def chain(self) -> "tuple[Scope, ...]":
        """The earlier scopes, the oldest first, and this one."""
        return (*(() if self.earlier is None else self.earlier.chain), self)

    @property
    def own_sources(self) -> tuple[str, ...]:
        return self.sources

    @property
    def every_source(self) -> tuple[str, ...]:
        """The sources of the whole chain."""
        return tuple(source for scope in self.chain for source in scope.sources)

    def narrowed(self, by: Narrowing) -> "Scope":
        """Return the scope over the chosen sources; an earlier one of which none is chosen is left away.

        Raises: ValueError if none is left.
        """
        left_out = (*self.left_out, *by.left_out(self.sources).items())
        earlier = by.of_earlier(self.earlier)
        return replace(self, name=by.name(self.name), sources=by.kept(self.sources), left_out=left_out, earlier=earlier)


@dataclass(frozen=True)
class Decontamination:
    """The suites that a corpus is cleaned of and audited against, and how documents are matched against their items."""

    name: str
    suites: tuple[Suite, ...]
    clean: tuple[str, ...]
    """Sources without benchmark items, in which every mark counts as false (`recipes/contamination.py`)."""

    policy: DeclaredPolicy = field(default_factory=ContaminationConfig)

    def __post_init__(self) -> None:
        names = [suite.name for suite in self.suites]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"decontamination {self.name}: its suites are {names}; give at least one, each once")
        if strange := sorted(set(self.clean) - set(CLEAN_SOURCES)):
            raise ValueError(
                f"decontamination {self.name}: clean names {', '.join(strange)}, which are not known to be clean; "
                f"allowed: {', '.join(CLEAN_SOURCES)}"
            )

    def narrowed(self, by: Narrowing) -> "Decontamination":
        """Return the decontamination with those clean sources that are chosen."""
        return replace(self, name=by.name(self.name), clean=by.kept(self.clean))


def decontamination(name: str, suites: tuple[Suite, ...], sources: tuple[str, ...]) -> Decontamination:
    """Return the decontamination of sources by the recommended policy; known clean sources measure its false positives."""
    return Decontamination(name, suites, tuple(source for source in CLEAN_SOURCES if source in sources))


@dataclass(frozen=True)
class Corpus:
    """Documents of a scope that survive its filters."""

    name: str
    scope: Scope
    decontamination: Decontamination
    filters: CorpusConfig = field(default_factory=CorpusConfig)
    scorer: ScorerConfig | None = None
    """Scores every document; the corpus depends on scores only if its filters read them."""

    best_scores: ScoreCutoffConfig | None = None
    """The fraction of the scored documents that the filters keep; set with `filters.best_scores`."""

    domain_model: DomainModelConfig | None = None
    """Tags every document with its domain; the corpus depends on the tags only if its filters read them."""

    removals: RemovalsConfig | None = None
    """Documents that are left out by request; set with `filters.remove_listed`."""

    earlier: "Corpus | None" = None
    """The corpus of the scope's earlier scope: this one has its documents too, as they are."""

    def __post_init__(self) -> None:
        if self.earlier is not None:
            self._check_earlier(self.earlier)
        if self.filters.remove_listed != (self.removals is not None):
            raise ValueError(
                f"corpus {self.name}: removals is {self.removals}, filters.remove_listed is {self.filters.remove_listed}; "
                "set both or neither"
            )
        if self.filters.best_scores != (self.best_scores is not None):
            raise ValueError(
                f"corpus {self.name}: best_scores is {self.best_scores}, filters.best_scores is {self.filters.best_scores}; "
                "set both or neither"
            )
        if "scores" in self.filters.reads and self.scorer is None:
            raise ValueError(f"corpus {self.name}: its filters read scores and it has no scorer; give it one")
        if "domains" in self.filters.reads and self.domain_model is None:
            raise ValueError(f"corpus {self.name}: its filters read domains and it has no domain model; give it one")
        if self.domain_model is not None and not self.domain_model.labelled:  # labels may be any words of their own list
            known = {each.domain for each in self.domain_model.sources} | {UNDECIDED}
            if strange := sorted(set(self.filters.domains) - known):
                raise ValueError(
                    f"corpus {self.name}: filters.domains names {', '.join(strange)}, which {self.domain_model.name} does not "
                    f"know; allowed: {', '.join(sorted(known))}"
                )
        if strange := sorted(set(self.decontamination.clean) - set(self.scope.every_source)):
            raise ValueError(
                f"corpus {self.name}: decontamination {self.decontamination.name} has the clean sources {', '.join(strange)}, "
                f"which are not in scope {self.scope.name}; give it another decontamination, with clean sources of the scope"
            )

    def _check_earlier(self, earlier: "Corpus") -> None:
        compared = {
            "scope.earlier": (self.scope.earlier, earlier.scope),
            "decontamination": (self.decontamination, earlier.decontamination),
            "filters.split_salt": (self.filters.split_salt, earlier.filters.split_salt),
            "filters.heldout_frac": (self.filters.heldout_frac, earlier.filters.heldout_frac),
        }
        if different := [name for name, (own, its) in compared.items() if own != its]:
            raise ValueError(
                f"corpus {self.name}: {', '.join(different)} differs from what its earlier corpus {earlier.name} has; make "
                "them equal, so that one cleaning and one split hold for all documents"
            )

    @property
    def sources(self) -> tuple[str, ...]:
        """Those of the earlier corpora, and those of the scope, which are its own."""
        return (*(() if self.earlier is None else self.earlier.sources), *self.scope.sources)

    @property
    def own_sources(self) -> tuple[str, ...]:
        return self.scope.sources

    def holder(self, source: str) -> "Corpus":
        """Return the corpus of which a source is an own one: this or an earlier one."""
        return self.earlier.holder(source) if self.earlier is not None and source in self.earlier.sources else self

    def split_difference(self, other: "Corpus") -> str:
        """Why a document that the other holds out may be trained on here; empty if both hold out the same documents.

        A scope that grows draws no earlier document again, and its own documents follow the ones that they repeat.

        A hash of the duplicate cluster splits documents (`datakit/corpus/build.py`), so whatever else the filters drop, the
        splits agree where clusters, salt and share do.
        """
        mine, its = self.filters, other.filters
        is_one_chain = self.scope in other.scope.chain or other.scope in self.scope.chain
        compared = {
            "scope": (self.scope, self.scope if is_one_chain else other.scope),
            "filters.split_salt": (mine.split_salt, its.split_salt),
            "filters.heldout_frac": (mine.heldout_frac, its.heldout_frac),
        }
        return "; ".join(
            f"{name} is {getattr(here, 'name', here)} here and {getattr(there, 'name', there)} there"
            for name, (here, there) in compared.items()
            if here != there
        )

    def narrowed(self, by: Narrowing) -> "Corpus":
        """Return the corpus over the chosen sources; its scorer is trained on these only."""
        return replace(
            self,
            name=by.name(self.name),
            scope=self.scope.narrowed(by),
            decontamination=self.decontamination.narrowed(by),
            scorer=None if self.scorer is None else _narrowed_scorer(self.scorer, by),
            earlier=by.of_earlier(self.earlier),
            domain_model=None if self.domain_model is None else _narrowed_domains(self.domain_model, by),
        )


def _narrowed_scorer(scorer: ScorerConfig, by: Narrowing) -> ScorerConfig:
    """Return the scorer with the seeds of chosen sources. Raises: ValueError if a label has no seed left."""
    sources = tuple(dict.fromkeys(seed.source for seed in scorer.seeds))
    kept = by.kept(sources)
    if kept == sources:
        return scorer
    return replace(scorer, name=by.name(scorer.name), seeds=tuple(seed for seed in scorer.seeds if seed.source in kept))


def _narrowed_domains(model: DomainModelConfig, by: Narrowing) -> DomainModelConfig:
    """Return the domain model with the examples of chosen sources. Raises: ValueError if fewer than two domains are left."""
    kept = by.kept(tuple(each.source for each in model.examples))
    if len(kept) == len(model.examples):
        return model
    return replace(model, name=by.name(model.name), examples=tuple(each for each in model.examples if each.source in kept))
