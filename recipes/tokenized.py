"""The data of a run from a corpus on, node by node: a tokenizer, tokens, a mixture, and the card of each source.

`recipes/data.py` has the nodes before, and says how nodes are written.
"""

from dataclasses import replace
from functools import cache

from datakit.cards.card import CARD, CardConfig
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.extended_tokenizer import EXTENDED_TOKENIZER, ExtendedTokenizerConfig
from datakit.tokens.formats import Chat, Preferences
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from lineage.build.nodes import Node
from lineage.order.batches import BatchSchedule
from lineage.order.chosen import CHOSEN_MIXTURE, ChosenMixtureConfig
from lineage.order.mixture import MIXTURE, MixtureConfig, phases_by_step
from recipes.data import contamination, corpora, corpus, duplicates, normalized, quality, quality_rules, raw, scores
from recipes.models import PublishedModel, model_tokenizer
from recipes.records.placement import CANONICAL, Place, Placement
from recipes.records.tokens import ExtendedTokenizer, Mix, Tokens
from recipes.sources import source_config


@cache
def tokenizer(of: Tokens, at: Placement = CANONICAL) -> Node:
    """Byte-level BPE trained on the corpus, or the tokenizer of a published model; with added tokens if there are any."""
    if isinstance(of.tokenizer, ExtendedTokenizer):
        added = ExtendedTokenizerConfig(of.tokenizer.special_tokens)
        base = tokenizer(replace(of, tokenizer=of.tokenizer.base), at)
        return Node(*at.of_all("tokenizer", of.tokenizer.name), EXTENDED_TOKENIZER, added, {"tokenizer": base})
    if isinstance(of.tokenizer, PublishedModel):
        return model_tokenizer(of.tokenizer)
    config = TokenizerConfig(vocab_size=of.tokenizer.vocab_size, special_tokens=of.tokenizer.special_tokens)
    return Node(
        *at.of_all("tokenizer", of.tokenizer.name),
        TOKENIZER,
        config,
        {"corpora": corpora(of.tokenizer.corpus or of.corpus, at)},
    )


@cache
def token_cache(of: Tokens, source: str, at: Placement = CANONICAL) -> Node:
    """Token shards of one source's train split; of pairs, whose rows the template frames, under `preferences/`."""
    if (holder := of.holder(source)) is not of:
        return token_cache(holder, source, at)
    inputs = {"corpus": corpus(of.corpus, source, at), "tokenizer": tokenizer(of, at)}
    if isinstance(of.format, Preferences):
        config = TokenCacheConfig(component=source, format=of.format, eos=None)
        return Node(*at.of_source("preferences", of.name, source=source), TOKEN_CACHE, config, inputs)
    place = at.of_source("token_cache", of.name, source=source)
    return Node(*place, TOKEN_CACHE, TokenCacheConfig(component=source, format=of.format), inputs)


@cache
def trajectories(of: Tokens, at: Placement = CANONICAL) -> tuple[Node, ...]:
    """Tokens and masks of the held-out conversations of every source, for evaluations; empty if the format has no mask."""
    return tuple(trajectory_cache(of, source, at) for source in of.sources) if isinstance(of.format, Chat) else ()


@cache
def trajectory_cache(of: Tokens, source: str, at: Placement = CANONICAL) -> Node:
    """The held-out split of one source in the tokens' format."""
    if (holder := of.holder(source)) is not of:
        return trajectory_cache(holder, source, at)
    inputs = {"corpus": corpus(of.corpus, source, at), "tokenizer": tokenizer(of, at)}
    place = at.of_source("token_cache", f"{of.name}-heldout", source=source)
    return Node(*place, TOKEN_CACHE, TokenCacheConfig(component=source, format=of.format, split="heldout"), inputs)


@cache
def mixture(of: Mix, batches: BatchSchedule, at: Placement = CANONICAL, place: Place | None = None) -> Node:
    """Frozen weights and the digests of the caches: the pivot between data and training. `place` defaults to that of `at`.

    `batches` turns the steps of phases into sequences. If no phases are declared, there is one, with weights in proportion to
    rough source sizes and small domains doubled. The weights are not tuned: proportional mixing is the baseline of searches.
    """
    caches = tuple(token_cache(of.tokens, source, at) for source in of.tokens.sources)
    where = place or at.of_mix(of.name)
    if of.chosen is not None:
        chosen = ChosenMixtureConfig(
            of.name, of.chosen.name, of.order_seed, of.shuffle, of.block_size, of.packing, apportioning="split"
        )
        return Node(*where, CHOSEN_MIXTURE, chosen, {"caches": caches, "weights": of.chosen.node()})
    config = MixtureConfig(
        of.name,
        phases_by_step(of.weights(), batches, of.block_size),
        of.order_seed,
        shuffle=of.shuffle,
        block_size=of.block_size,
        packing=of.packing,
        apportioning="split",
    )
    return Node(*where, MIXTURE, config, {"caches": caches})


@cache
def card(of: Tokens, source: str, at: Placement = CANONICAL) -> Node:
    """A page about a source, from its files to the documents that a corpus keeps for training."""
    if (holder := of.holder(source)) is not of:
        return card(holder, source, at)
    declared, cleaned = source_config(source), of.corpus.holder(source)
    config = CardConfig(rough_tokens_billion=declared.rough_tokens_billion, origin=declared.card)
    inputs = {
        "raw": raw(source, at),
        "normalized": normalized(source, at),
        "quality": quality(source, at),
        "rules": quality_rules(source, at),
        "contamination": contamination(cleaned.decontamination, source, at),
        "duplicates": duplicates(cleaned.scope, at),
        "corpus": corpus(cleaned, source, at),
        "tokens": token_cache(of, source, at),
    }
    if cleaned.scorer is not None:
        inputs["scores"] = scores(cleaned.scorer, source, at)
    return Node(*at.of_source("card", of.corpus.name, source=source), CARD, config, inputs)
