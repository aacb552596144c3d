"""Small models as the judge of a corpus: runs on the text before and after a change of filters, compared in pairs."""

from dataclasses import dataclass, replace
from functools import cached_property

from lineage.build.nodes import Node
from recipes.records.data import Corpus
from recipes.records.placement import SwarmTrialOf
from recipes.records.run import Run
from recipes.records.sweep import Sweep
from recipes.records.tokens import Tokens, TrainedTokenizer
from recipes.sweeps import compared_scores, results
from science.proxy_stage import PROXY, ProxyConfig

FAMILY = "proxies"


@dataclass(frozen=True)
class Proxy:
    """Runs `s<seed>` on each corpus; assets `proxies/<name>/<corpus>/mixture`, `/trial`, `/result`, and
    `proxies/<name>/verdict`."""

    name: str
    base: Run
    """What every run is but for its corpus and its seed: it reads the control, starts fresh and keeps its last step."""

    corpora: tuple[tuple[str, Corpus], ...]
    """The corpora by a name of their own such as `before` and `after`, the control first."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the parameters and of the data order. A seed is one pair: the corpus and the control."""

    targets: tuple[str, ...] = ()
    """Tags of held-out text that are compared, such as `code`; none: all held-out text together."""

    scored_on: Corpus | None = None
    """Whose held-out text scores all runs; None: the control's. It holds out what the corpora hold out."""

    max_epochs: float = 4.0
    """The verdict warns of a corpus of which a source is read more often."""

    level: float = 0.95

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        _ = self.config  # it checks names, seeds and targets
        control, corpus = self.corpora[0]
        if self.base.corpus != corpus:
            raise ValueError(
                f"proxy {self.name}: its base run reads corpus {self.base.corpus.name}, its control {control} is "
                f"{corpus.name}; give the base run the control, whose tokenizer all runs share"
            )
        if self.base.start is not None:
            raise ValueError(
                f"proxy {self.name}: its base run {self.base.name} has a start, whose text would be part of the answer; give "
                "a run with fresh parameters, or declare an Annealing"
            )
        _ = self.arms  # the runs check that no held-out text is trained on

    @property
    def config(self) -> ProxyConfig:
        """The config of the verdict."""
        unit, names = "bits a byte", tuple(name for name, _ in self.corpora)
        return ProxyConfig(
            names, self.seeds, *compared_scores(self.targets, "bits_per_byte"), unit, self.max_epochs, self.level
        )

    @cached_property
    def arms(self) -> tuple[Sweep, ...]:
        """The runs on each corpus. Runs of one seed have one spec in all of them."""
        return tuple(self._arm(name, self._tokens(corpus)) for name, corpus in self.corpora)

    def _arm(self, name: str, tokens: Tokens) -> Sweep:
        place = SwarmTrialOf(self.name, room=(name,), family=FAMILY)
        return Sweep(f"{self.name}-{name}", tuple(self._run(tokens, seed) for seed in self.seeds), place=place)

    def _tokens(self, corpus: Corpus) -> Tokens:
        """The caches of a corpus by the control's tokenizer."""
        own = self.base.tokens
        if corpus == own.corpus:
            return own
        shared = own.tokenizer
        if isinstance(shared, TrainedTokenizer):
            shared = replace(shared, corpus=shared.corpus or own.corpus)
        return replace(own, name=f"{own.name}-{corpus.name}", corpus=corpus, tokenizer=shared)

    def _run(self, tokens: Tokens, seed: int) -> Run:
        name, scored_on = f"s{seed}", self.scored_on or self.base.corpus
        mix = replace(self.base.data, name=name, tokens=tokens, order_seed=seed)
        return replace(self.base, spec=replace(self.base.spec, name=name, seed=seed), data=mix, scored_on=scored_on)


def proxy_verdict(of: Proxy) -> Node:
    """Whether each corpus is better than the control."""
    every = tuple(result for arm in of.arms for result in results(arm))
    return Node((FAMILY, of.name, "verdict"), None, PROXY, of.config, {"results": every})
