"""Is the better-scored half of the default corpus better text? Small models on the whole and on the half, in pairs.

The model is that of the swarm, whose seeds agree. With models of width 32 over half a million tokens three pairs would have
shown .25 bits a byte and no less (docs/log.md, 2026-11-27).
"""

from recipes.proxies import Proxy
from recipes.studies.default import best_half, default_corpus
from recipes.studies.mixing import base
from recipes.study import Study


def study() -> Study:
    return Study("Is the better-scored half of a corpus better text?", proxies=(best_half_judged,))


def best_half_judged() -> Proxy:
    """The default corpus before and after the filter, six seeds of each."""
    corpora = (("before", default_corpus()), ("after", best_half()))
    return Proxy("best_half", base(), corpora, seeds=tuple(range(6)), targets=("prose", "code"))
