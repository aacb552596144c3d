"""The data half of a line, node by node: source files become documents, marks, a corpus, a tokenizer, tokens, a mixture.

Each function says where one artifact goes, which stage makes it, under which config, from which others. Read top to
bottom, it is the data pipeline. The functions are cached, so that a line's graph shares its nodes instead of repeating the
duplicates of eight sources below each of eight corpora.
"""

from dataclasses import replace
from functools import cache

from datakit.cards.card import CARD, CardConfig
from datakit.contamination.coverage import ContaminationConfig
from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS
from datakit.dedup.duplicates import DUPLICATES
from datakit.dedup.minhash import MINHASH, preset
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.quality.rules import QUALITY_RULES, quality_rules_config
from datakit.quality.score_cutoff import SCORE_CUTOFF
from datakit.quality.scorer import SCORER, ScorerConfig
from datakit.quality.scores import SCORES, ScoresConfig
from datakit.quality.verdicts import QUALITY, quality_config
from datakit.sources.raw import RAW
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.formats import Chat
from datakit.tokens.tokenizer import TOKENIZER, TokenizerConfig
from evals.items.suites import SUITE
from lineage.build.plan import Node
from lineage.order.mixture import MIXTURE, MixtureConfig, phases_by_step
from recipes.contamination import CLEAN_SOURCES, DeclaredPolicy, published_policies
from recipes.lines import Line, declared_weights, source_config
from recipes.models import model_tokenizer
from recipes.suites import suite_config, suite_raw_source

MIXTURE_SEED = 17


@cache
def raw(line: Line, source: str) -> Node:
    """Files as fetched, hash-checked against their pin. Its weight says how a source is mixed and its steps what is kept of it,
    not what is fetched."""
    declared = replace(source_config(source), mixture_weight=0.0, steps=())
    return Node(*line.source_place("datakit", "raw", source=source), RAW, declared)


@cache
def normalized(line: Line, source: str) -> Node:
    """Documents with content ids, sorted and unique."""
    declared = source_config(source)
    config = NormalizeConfig(source=source, format=declared.format, domain=declared.domain, steps=declared.steps)
    place = line.source_place("datakit", "normalized", source=source)
    return Node(*place, NORMALIZE, config, {"raw": raw(line, source)})


@cache
def minhash(line: Line, source: str) -> Node:
    """MinHash bands of every document."""
    place = line.source_place("datakit", "minhash", source=source)
    return Node(*place, MINHASH, preset(line.minhash), {"normalized": normalized(line, source)})


@cache
def quality(line: Line, source: str) -> Node:
    """Quality signals of every document and the verdict of its domain's rules."""
    config = quality_config(source_config(source).domain)
    place = line.source_place("datakit", "quality", source=source)
    return Node(*place, QUALITY, config, {"normalized": normalized(line, source)})


@cache
def quality_rules(line: Line, source: str) -> Node:
    """What the published rule sets would drop, and the signals that they judge by."""
    config = quality_rules_config(source_config(source).domain)
    place = line.source_place("datakit", "quality_rules", source=source)
    return Node(*place, QUALITY_RULES, config, {"normalized": normalized(line, source)})


@cache
def scorer(line: Line) -> Node:
    """A quality score learned from labelled seeds."""
    config = declared_scorer(line)
    inputs = {
        "normalized": tuple(normalized(line, source) for source in config.sources),
        "quality": tuple(quality(line, source) for source in config.sources),
    }
    return Node(*line.place("scorer", config.name), SCORER, config, inputs)


@cache
def scores(line: Line, source: str) -> Node:
    """The scorer's probability for every document."""
    place = line.source_place("scores", declared_scorer(line).name, source=source)
    return Node(*place, SCORES, ScoresConfig(), {"normalized": normalized(line, source), "scorer": scorer(line)})


@cache
def score_cutoff(line: Line) -> Node:
    """Where a corpus that keeps a fraction cuts. Raises ValueError for a line that keeps none."""
    if line.best_scores is None:
        raise ValueError(f"the line of corpus {line.corpus} keeps no fraction of its scores")
    inputs = {"scores": tuple(scores(line, source) for source in line.sources)}
    return Node(*line.place("score_cutoff", line.corpus), SCORE_CUTOFF, line.best_scores, inputs)


def declared_scorer(line: Line) -> ScorerConfig:
    """Raises ValueError for a line without a scorer."""
    if line.scorer is None:
        raise ValueError(f"the line of corpus {line.corpus} has no scorer")
    return line.scorer


@cache
def suite(line: Line) -> Node:
    """The line's main suite. Benchmark items by content: the audit and the evals read the same bytes."""
    return suites(line)[0]


@cache
def suites(line: Line) -> tuple[Node, ...]:
    """Every suite that the line's checkpoints are evaluated on; its corpus is cleaned of all of them."""
    return _suites(line, line.every_suite)


@cache
def shots(line: Line) -> tuple[Node, ...]:
    """The examples that prompts may begin with."""
    return _suites(line, line.shots)


def _suites(line: Line, named: tuple[tuple[str, str], ...]) -> tuple[Node, ...]:
    return tuple(
        Node(*line.place("eval_suite", name), SUITE, suite_config(name, kind), {"raw": raw(line, suite_raw_source(kind))})
        for name, kind in named
    )


@cache
def contamination_index(line: Line) -> Node:
    """The items of the suites that the policy binds, indexed once for every source."""
    return _index(line, line.policy, ContaminationConfig())


@cache
def contamination(line: Line, source: str) -> Node:
    """Marks of every document against the suites that the policy binds."""
    return _marks(line, source, line.policy, ContaminationConfig(), contamination_index(line))


@cache
def named_contamination_index(line: Line, policy: str) -> Node:
    """The same items, indexed for a published policy."""
    return _index(line, policy, published_policies()[policy])


@cache
def named_contamination(line: Line, policy: str, source: str) -> Node:
    """Marks of the same documents by a published policy, to compare; no corpus is made with them."""
    return _marks(line, source, policy, published_policies()[policy], named_contamination_index(line, policy))


def _index(line: Line, name: str, policy: DeclaredPolicy) -> Node:
    clean = tuple(normalized(line, source) for source in CLEAN_SOURCES if source in line.sources)
    inputs = {"suites": suites(line)} | ({"clean": clean} if clean else {})
    return Node(*line.place("contamination_index", name), CONTAMINATION_INDEX, policy, inputs)


def _marks(line: Line, source: str, name: str, policy: DeclaredPolicy, index: Node) -> Node:
    inputs = {"normalized": normalized(line, source), "suites": suites(line), "index": index}
    return Node(*line.source_place("contamination", name, source=source), CONTAMINATION, policy, inputs)


@cache
def duplicates(line: Line) -> Node:
    """Verified duplicate clusters across every source of the scope."""
    inputs = {
        "normalized": tuple(normalized(line, source) for source in line.sources),
        "minhash": tuple(minhash(line, source) for source in line.sources),
    }
    return Node(*line.place("duplicates", line.scope), DUPLICATES, line.duplicates, inputs)


@cache
def paragraphs(line: Line) -> Node:
    """Paragraphs of every source of the scope that stand in an earlier document: for corpora that cut them."""
    inputs = {"normalized": tuple(normalized(line, source) for source in line.sources), "duplicates": duplicates(line)}
    return Node(*line.place("paragraphs", line.scope), PARAGRAPHS, ParagraphsConfig(), inputs)


@cache
def corpus(line: Line, source: str) -> Node:
    """Documents that survive the filters, split into train and held-out."""
    inputs = {
        "normalized": normalized(line, source),
        "contamination": contamination(line, source),
        "duplicates": duplicates(line),
    }
    optional = {"quality": lambda: quality(line, source), "rules": lambda: quality_rules(line, source)}
    optional |= {"scores": lambda: scores(line, source), "cutoff": lambda: score_cutoff(line)}
    optional |= {"paragraphs": lambda: paragraphs(line)}
    inputs |= {name: make() for name, make in optional.items() if name in line.corpus_filters.reads}
    return Node(*line.source_place("corpus", line.corpus, source=source), CORPUS, line.corpus_filters, inputs)


@cache
def card(line: Line, source: str) -> Node:
    """A page about a source, from its files to what a corpus keeps of it for training."""
    declared = source_config(source)
    config = CardConfig(rough_tokens_billion=declared.rough_tokens_billion, origin=declared.card)
    inputs = {
        "raw": raw(line, source),
        "normalized": normalized(line, source),
        "quality": quality(line, source),
        "rules": quality_rules(line, source),
        "contamination": contamination(line, source),
        "duplicates": duplicates(line),
        "corpus": corpus(line, source),
        "tokens": token_cache(line, source),
    }
    if line.scorer is not None:
        inputs["scores"] = scores(line, source)
    return Node(*line.source_place("card", line.corpus, source=source), CARD, config, inputs)


@cache
def corpora(line: Line) -> tuple[Node, ...]:
    """The corpus of every source, in the line's order."""
    return tuple(corpus(line, source) for source in line.sources)


@cache
def tokenizer(line: Line) -> Node:
    """Byte-level BPE trained on the corpus, or that of the published model that the run starts from."""
    if line.start_model is not None:
        return model_tokenizer(line.start_model)
    config = TokenizerConfig(vocab_size=line.vocab_size, special_tokens=line.special_tokens)
    return Node(*line.place("tokenizer", line.tokenizer), TOKENIZER, config, {"corpora": corpora(line)})


@cache
def token_cache(line: Line, source: str) -> Node:
    """Token shards of one source's train split."""
    inputs = {"corpus": corpus(line, source), "tokenizer": tokenizer(line)}
    place = line.source_place("token_cache", line.cache, source=source)
    return Node(*place, TOKEN_CACHE, TokenCacheConfig(component=source, format=line.format), inputs)


@cache
def trajectories(line: Line) -> tuple[Node, ...]:
    """Tokens and masks of the held-out conversations of every source, for evaluations; none where the format has no mask."""
    return tuple(trajectory_cache(line, source) for source in line.sources) if isinstance(line.format, Chat) else ()


@cache
def trajectory_cache(line: Line, source: str) -> Node:
    """The held-out split of one source in the line's format."""
    inputs = {"corpus": corpus(line, source), "tokenizer": tokenizer(line)}
    place = line.source_place("token_cache", f"{line.cache}-heldout", source=source)
    return Node(*place, TOKEN_CACHE, TokenCacheConfig(component=source, format=line.format, split="heldout"), inputs)


@cache
def mixture(line: Line) -> Node:
    """Frozen weights and the exact cache digests they bind: the pivot between data and training.

    Unless the line declares phases there is one, weights in proportion to rough source sizes with small domains doubled
    (declared, not tuned: the ferry is a smoke test, and proportional mixing is the baseline that later searches must beat).
    """
    phases = phases_by_step(line.phases or (declared_weights(line),), line.batches, line.mixture_block)
    config = MixtureConfig(
        line.mixture,
        phases,
        MIXTURE_SEED,
        shuffle=line.shuffle,
        block_size=line.mixture_block,
        packing=line.packing,
        apportioning="split",
    )
    caches = tuple(token_cache(line, source) for source in line.sources)
    return Node(*line.place("mixture", line.mixture), MIXTURE, config, {"caches": caches})
