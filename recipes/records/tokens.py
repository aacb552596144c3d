"""Records between corpus and training: a tokenizer, the token caches of a corpus, and the mixture of them."""

from dataclasses import dataclass, replace
from typing import Protocol

from datakit.tokens.formats import PLAIN, Chat, Prebuilt, Preferences, TokenFormat
from datakit.tokens.tokenizer import END_OF_TEXT
from lineage.build.nodes import Node
from lineage.order.mixture import StepPhase
from lineage.order.packing import Packing
from lineage.order.permutation import Shuffle
from recipes.models import PublishedModel
from recipes.records.data import Corpus
from recipes.records.narrowing import Narrowing
from recipes.sources import source_config

ORDER_SEED = 17


@dataclass(frozen=True)
class TrainedTokenizer:
    """Byte-level BPE trained on the corpus."""

    name: str
    vocab_size: int
    special_tokens: tuple[str, ...] = (END_OF_TEXT,)
    """Special tokens, with a chat template's roles and end of turn."""

    corpus: Corpus | None = None
    """What it is trained on; None: the corpus of its tokens. Tokens that share a tokenizer name one corpus."""


@dataclass(frozen=True)
class ExtendedTokenizer:
    """A tokenizer with more special tokens, for a run that starts from a model of the old one and sets `start.new_rows`."""

    name: str
    base: TrainedTokenizer | PublishedModel
    special_tokens: tuple[str, ...]
    """The new ones, in the order of their ids, which follow the old."""

    def __post_init__(self) -> None:
        if isinstance(self.base, TrainedTokenizer) and self.base.corpus is None:
            raise ValueError(
                f"tokenizer {self.name}: its base {self.base.name} names no corpus, so other text would train it again; give "
                "the base the corpus that it was trained on"
            )

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size + len(self.special_tokens)


@dataclass(frozen=True)
class Tokens:
    """The token caches of a corpus, one for each source."""

    name: str
    corpus: Corpus
    tokenizer: TrainedTokenizer | PublishedModel | ExtendedTokenizer
    """Trained on the corpus, or the tokenizer of a published model, or one of these with more special tokens."""

    format: TokenFormat = PLAIN
    """How documents become tokens."""

    earlier: "Tokens | None" = None
    """The tokens of the corpus's earlier corpus, whose caches are used as they are (`grown`)."""

    def __post_init__(self) -> None:
        if self.earlier is not None:
            self._check_earlier(self.earlier)
        if self.corpus.filters.cut_paragraphs and isinstance(self.format, Chat | Prebuilt | Preferences):
            raise ValueError(
                f"tokens {self.name}: the filters of corpus {self.corpus.name} cut paragraphs out of texts, and format "
                f"{self.format.kind!r} makes tokens of what lies beside them, which would stay whole; set "
                "filters.cut_paragraphs to False, or take the format 'plain'"
            )

    def _check_earlier(self, earlier: "Tokens") -> None:
        compared = {
            "corpus.earlier": (self.corpus.earlier, earlier.corpus),
            "tokenizer": (self.trained_tokenizer, earlier.trained_tokenizer),
            "format": (self.format, earlier.format),
        }
        if different := [name for name, (own, its) in compared.items() if own != its]:
            raise ValueError(
                f"tokens {self.name}: {', '.join(different)} differs from what its earlier tokens {earlier.name} have; make "
                f"them by {earlier.name}'s `grown`, or leave earlier away to make all caches again"
            )

    def grown(self, name: str, corpus: Corpus) -> "Tokens":
        """Return tokens of a corpus that adds sources to the corpus of these: the same tokenizer, and caches of the new."""
        return replace(self, name=name, corpus=corpus, tokenizer=self.trained_tokenizer, earlier=self)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.corpus.sources

    @property
    def own_sources(self) -> tuple[str, ...]:
        """The sources whose caches have the name of these tokens."""
        return self.corpus.sources if self.earlier is None else self.corpus.own_sources

    def holder(self, source: str) -> "Tokens":
        """Return the tokens of which a source is an own one: these or earlier ones."""
        return self.earlier.holder(source) if self.earlier is not None and source in self.earlier.sources else self

    @property
    def trained_tokenizer(self) -> TrainedTokenizer | PublishedModel | ExtendedTokenizer:
        """The tokenizer with the name of the corpus that it is trained on."""
        own = self.tokenizer
        return replace(own, corpus=self.corpus) if isinstance(own, TrainedTokenizer) and own.corpus is None else own

    @property
    def vocab_size(self) -> int:
        """Rows of a model's embedding over these tokens. It is stated only here."""
        return self.tokenizer.vocab_size

    @property
    def base_tokenizer(self) -> TrainedTokenizer | PublishedModel:
        """The tokenizer without added tokens."""
        return self.tokenizer.base if isinstance(self.tokenizer, ExtendedTokenizer) else self.tokenizer

    def narrowed(self, by: Narrowing) -> "Tokens":
        """Return the tokens of the narrowed corpus; a trained tokenizer is trained on that corpus."""
        tokenizer, base = self.tokenizer, self.base_tokenizer
        if isinstance(base, TrainedTokenizer):
            corpus = None if base.corpus is None else base.corpus.narrowed(by)
            base = replace(base, name=by.name(base.name), corpus=corpus)
        if isinstance(tokenizer, ExtendedTokenizer):
            tokenizer = replace(tokenizer, name=by.name(tokenizer.name), base=base)
        else:
            tokenizer = base
        earlier, corpus = by.of_earlier(self.earlier), self.corpus.narrowed(by)
        return replace(self, name=by.name(self.name), corpus=corpus, tokenizer=tokenizer, earlier=earlier)


class ChosenWeights(Protocol):
    """Weights that an artifact holds; `recipes/swarms.py` has the record of a swarm's proposal."""

    @property
    def name(self) -> str:
        """The choice among those of the artifact."""

    def node(self) -> Node:
        """The artifact."""


@dataclass(frozen=True)
class Mix:
    """A mixture over token caches: the data of a run, their shares and their order."""

    name: str
    tokens: Tokens
    phases: tuple[StepPhase, ...] = ()
    """Weights by step, counted from the first run of the data order. Empty: one phase with the sources' declared weights."""

    block_size: int = 2048
    """Sequences within which weights hold exactly; phases begin at the start of a block."""

    shuffle: Shuffle = "splitmix"
    packing: Packing | None = None
    """How documents become sequences; None: end to end, cut where a sequence is full."""

    chosen: ChosenWeights | None = None
    """An artifact that holds the weights, in place of phases: the runs that chose them are in the lineage of every model."""

    order_seed: int = ORDER_SEED
    """Seed of the shuffle. Runs that repeat a mixture with fresh data order have another."""

    def __hash__(self) -> int:
        """Hash the name alone: nodes are cached by mix, and a hash of all fields goes through every source and suite."""
        return hash(self.name)

    def __post_init__(self) -> None:
        if self.chosen is not None and self.phases:
            raise ValueError(
                f"mix {self.name}: its weights are both declared and chosen by {self.chosen.name}; give one of them"
            )
        named = {source: phase.start_step for phase in self.phases for source, _ in phase.weights}
        if strange := sorted(named.keys() - set(self.tokens.sources)):
            raise ValueError(
                f"mix {self.name}: its phase at step {named[strange[0]]} gives a weight to {strange[0]!r}, which is not a "
                f"source of its tokens; they are {', '.join(self.tokens.sources)}"
            )

    def weights(self) -> tuple[StepPhase, ...]:
        """Return the phases, or one of declared weights. Raises: ValueError for sources that would train nothing."""
        if self.phases:
            return self.phases
        weights = {source: source_config(source).mixture_weight for source in self.tokens.sources}
        if weightless := [source for source, weight in weights.items() if not weight > 0]:
            raise ValueError(
                f"mix {self.name}: the catalogue's mixture_weight of {', '.join(weightless)} is 0 (no token count is "
                "known), so nothing of it would be trained on; declare phases with their weights, or leave it out"
            )
        return (StepPhase(0, tuple(weights.items())),)

    def narrowed(self, by: Narrowing) -> "Mix":
        """Return the mix over the chosen sources.

        Raises: ValueError for a phase that reads none of them, or weights that an artifact chose for all.
        """
        if self.chosen is not None:
            raise ValueError(f"mix {self.name}: {self.chosen.name} chose its weights for all sources; it has none for a part")
        tokens = self.tokens.narrowed(by)
        phases = tuple(self._of_sources(phase, tokens.sources) for phase in self.phases)
        return replace(self, name=by.name(self.name), tokens=tokens, phases=phases)

    def _of_sources(self, phase: StepPhase, kept: tuple[str, ...]) -> StepPhase:
        weights = tuple((source, weight) for source, weight in phase.weights if source in kept)
        if not any(weight > 0 for _, weight in weights):
            read = ", ".join(source for source, _ in phase.weights)
            raise ValueError(
                f"mix {self.name}: its phase at step {phase.start_step} reads {read} alone, and none of them is chosen; "
                f"of its sources these are: {', '.join(kept)}. Declare another phase for the narrowed mix"
            )
        return replace(phase, weights=weights)
