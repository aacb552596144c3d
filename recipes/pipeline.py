"""All data records of a run under one name, for runs that share no data."""

from datakit.corpus.filters import CorpusConfig
from recipes.records.data import Corpus, Decontamination, Scope, decontamination
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.suites import Suite, main_suite


def pipeline(
    name: str,
    sources: tuple[str, ...],
    suites: tuple[Suite, ...],
    *,
    vocab_size: int,
    cleaned: Decontamination | None = None,
    filters: CorpusConfig | None = None,
) -> Mix:
    """Return a mix whose scope, decontamination, corpus, tokenizer and tokens have its name.

    So no key is shared with another run by accident. `vocab_size` is stated here only: build the spec with
    `mix.tokens.vocab_size`. `cleaned` is a decontamination that several runs share, so that its items are indexed
    once.
    """
    scope = Scope(name, sources)
    corpus = Corpus(name, scope, cleaned or decontamination(name, suites, sources), filters or CorpusConfig())
    return Mix(name, Tokens(name, corpus, TrainedTokenizer(name, vocab_size)))


def cleaned_of_benchmarks() -> Decontamination:
    """The decontamination of runs over own text: the main suite, whose items are indexed once for all of them."""
    return Decontamination("own", (main_suite(),), clean=())


def cleaned_of_vendored_items() -> Decontamination:
    """The decontamination of runs over own text without a package registry: the canary's, on the repository's items."""
    return decontamination("vendored", (Suite("vendored", "vendored"),), ())
