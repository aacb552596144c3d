"""All data records of a run under one name, for runs that share no data."""

from recipes.records.data import Corpus, Scope, decontamination
from recipes.records.tokens import Mix, Tokens, TrainedTokenizer
from recipes.suites import Suite


def pipeline(name: str, sources: tuple[str, ...], suites: tuple[Suite, ...], *, vocab_size: int) -> Mix:
    """Return a mix whose scope, decontamination, corpus, tokenizer and tokens have its name.

    So no key is shared with another run by accident. `vocab_size` is stated here only: build the spec with
    `mix.tokens.vocab_size`.
    """
    scope = Scope(name, sources)
    corpus = Corpus(name, scope, decontamination(name, suites, sources))
    return Mix(name, Tokens(name, corpus, TrainedTokenizer(name, vocab_size)))
