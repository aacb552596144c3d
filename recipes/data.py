"""The data of a run, node by node: source files become documents, marks and a corpus. `recipes/tokenized.py` goes on.

A function takes a record (`recipes/records/`) or the name of a source, and returns the node of one artifact, or of several: its
place, stage, config and inputs. From top to bottom the file follows the data. Functions of one node are cached, so that graphs
share nodes.
"""

import importlib
from dataclasses import replace
from functools import cache

from datakit.contamination.index import CONTAMINATION_INDEX
from datakit.contamination.marks import CONTAMINATION
from datakit.corpus.build import CORPUS
from datakit.corpus.removals import REMOVALS
from datakit.dedup.containment import CONTAINMENT
from datakit.dedup.duplicates import DUPLICATES
from datakit.dedup.minhash import MINHASH, preset
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from datakit.documents.normalize import NORMALIZE, NormalizeConfig
from datakit.quality.rules import QUALITY_RULES, quality_rules_config
from datakit.quality.score_cutoff import SCORE_CUTOFF
from datakit.quality.scorer import SCORER, ScorerConfig
from datakit.quality.scores import SCORES, ScoresConfig
from datakit.quality.verdicts import QUALITY, quality_config
from datakit.semantics.duplicates import SEMANTIC_DUPLICATES
from datakit.semantics.embeddings import EMBEDDINGS, EmbeddingsConfig
from datakit.sources.raw import RAW
from datakit.sources.source import SyntheticFiles
from datakit.tags.code_licences import CODE_LICENCES, CodeLicencesConfig
from datakit.tags.domain_model import DOMAIN_MODEL, DomainModelConfig
from datakit.tags.domains import DOMAINS, DomainsConfig
from datakit.tags.languages import LANGUAGES, LanguagesConfig
from evals.items.suites import SUITE
from lineage.build.nodes import Node
from recipes.contamination import DeclaredPolicy, published_policies
from recipes.records.data import DEFAULT_PRESET, Corpus, Decontamination, Scope
from recipes.records.placement import CANONICAL, Placement
from recipes.sources import source_config
from recipes.suites import Suite


@cache
def raw(source: str, at: Placement = CANONICAL) -> Node:
    """Files as fetched, checked against the hash of their pin. The source's weight and steps do not change what is fetched."""
    declared = replace(source_config(source), mixture_weight=0.0, steps=())
    inputs = {"accepted": accepted_of(declared.loader.set)} if isinstance(declared.loader, SyntheticFiles) else {}
    return Node(*at.of_source("datakit", "raw", source=source), RAW, declared, inputs)


def accepted_of(name: str) -> Node:
    """What a synthetic set accepted. The module is found by name: its teachers are runs, whose nodes need this module."""
    synthetic = importlib.import_module(".synthetic", __package__)
    return synthetic.accepted(synthetic.declared_set(name))


@cache
def normalized(source: str, at: Placement = CANONICAL) -> Node:
    """Documents with content ids, sorted and unique."""
    declared = source_config(source)
    config = NormalizeConfig(source=source, format=declared.format, domain=declared.domain, steps=declared.steps)
    return Node(*at.of_source("datakit", "normalized", source=source), NORMALIZE, config, {"raw": raw(source, at)})


@cache
def minhash(scope: Scope, source: str, at: Placement = CANONICAL) -> Node:
    """MinHash bands of every document. The key names a preset that is not the default."""
    key = "minhash" if scope.minhash == DEFAULT_PRESET else f"minhash-{scope.minhash}"
    place = at.of_source("datakit", key, source=source)
    return Node(*place, MINHASH, preset(scope.minhash), {"normalized": normalized(source, at)})


@cache
def quality(source: str, at: Placement = CANONICAL) -> Node:
    """Quality signals of every document and the result of its domain's rules."""
    config = quality_config(source_config(source).domain)
    return Node(*at.of_source("datakit", "quality", source=source), QUALITY, config, {"normalized": normalized(source, at)})


@cache
def quality_rules(source: str, at: Placement = CANONICAL) -> Node:
    """The documents that the published rule sets would drop, and the signals that they use."""
    config = quality_rules_config(source_config(source).domain)
    place = at.of_source("datakit", "quality_rules", source=source)
    return Node(*place, QUALITY_RULES, config, {"normalized": normalized(source, at)})


@cache
def languages(source: str, at: Placement = CANONICAL) -> Node:
    """The language of every document; code has none."""
    config, inputs = LanguagesConfig(source_config(source).domain), {"normalized": normalized(source, at)}
    return Node(*at.of_source("datakit", "languages", source=source), LANGUAGES, config, inputs)


@cache
def code_licences(source: str, at: Placement = CANONICAL) -> Node:
    """The licence that each file of code states."""
    config, inputs = CodeLicencesConfig(source_config(source).domain), {"normalized": normalized(source, at)}
    return Node(*at.of_source("datakit", "code_licences", source=source), CODE_LICENCES, config, inputs)


@cache
def domain_model(config: DomainModelConfig, at: Placement = CANONICAL) -> Node:
    """A model of the domain of a text, trained on declared sources or on a model's labels."""
    inputs = {}
    if config.sources:
        inputs["normalized"] = tuple(normalized(each.source, at) for each in config.sources)
    if config.labelled:
        inputs["labels"] = tuple(labels_of(each.labels, each.source, at) for each in config.labelled)
    return Node(*at.of_all("domain_model", config.name), DOMAIN_MODEL, config, inputs)


@cache
def domains(config: DomainModelConfig, source: str, at: Placement = CANONICAL) -> Node:
    """The domain of every document."""
    inputs = {"normalized": normalized(source, at), "model": domain_model(config, at)}
    return Node(*at.of_source("domains", config.name, source=source), DOMAINS, DomainsConfig(), inputs)


@cache
def scorer(config: ScorerConfig, at: Placement = CANONICAL) -> Node:
    """A quality scorer, trained on labelled seeds."""
    inputs = {
        "normalized": tuple(normalized(source, at) for source in config.sources),
        "quality": tuple(quality(source, at) for source in config.sources),
    }
    if config.labelled:
        inputs["labels"] = tuple(labels_of(seed.labels, seed.source, at) for seed in config.labelled)
    return Node(*at.of_all("scorer", config.name), SCORER, config, inputs)


def labels_of(name: str, source: str, at: Placement = CANONICAL) -> Node:
    """A model's labels of a source. The module is found by name: a model may be a run, whose nodes need this module."""
    labels = importlib.import_module(".labels", __package__)
    return labels.labels(labels.declared_labels(name), source, at)


@cache
def scores(config: ScorerConfig, source: str, at: Placement = CANONICAL) -> Node:
    """The scorer's probability for every document."""
    inputs = {"normalized": normalized(source, at), "scorer": scorer(config, at)}
    return Node(*at.of_source("scores", config.name, source=source), SCORES, ScoresConfig(), inputs)


@cache
def score_cutoff(of: Corpus, at: Placement = CANONICAL) -> Node:
    """The score above which a corpus keeps documents. Raises: ValueError for a corpus that does not select by score."""
    if of.best_scores is None:
        raise ValueError(f"corpus {of.name} does not select by score; set best_scores and filters.best_scores")
    inputs = {"scores": tuple(scores(declared_scorer(of), source, at) for source in of.own_sources)}
    return Node(*at.of_all("score_cutoff", of.name), SCORE_CUTOFF, of.best_scores, inputs)


def declared_domains(of: Corpus) -> DomainModelConfig:
    """Return the domain model of a corpus. Raises: ValueError for a corpus without one."""
    if of.domain_model is None:
        raise ValueError(f"corpus {of.name} has no domain model; give it one")
    return of.domain_model


def declared_scorer(of: Corpus) -> ScorerConfig:
    """Return the scorer of a corpus. Raises: ValueError for a corpus without one."""
    if of.scorer is None:
        raise ValueError(f"corpus {of.name} has no scorer; give it one")
    return of.scorer


@cache
def suite(of: Suite, at: Placement = CANONICAL) -> Node:
    """Benchmark items by content. Audits and evaluations read the same bytes."""
    return Node(*at.of_all("eval_suite", of.name), SUITE, of.config, {"raw": raw(of.raw_source, at)})


def suites(of: tuple[Suite, ...], at: Placement = CANONICAL) -> tuple[Node, ...]:
    """Return the node of each suite."""
    return tuple(suite(each, at) for each in of)


@cache
def contamination_index(of: Decontamination, at: Placement = CANONICAL) -> Node:
    """The items of the suites, indexed once for every source."""
    return _index(of, of.name, of.policy, at)


@cache
def contamination(of: Decontamination, source: str, at: Placement = CANONICAL) -> Node:
    """Marks of every document against the suites."""
    return _marks(of, source, of.name, of.policy, contamination_index(of, at), at)


@cache
def named_contamination_index(of: Decontamination, policy: str, at: Placement = CANONICAL) -> Node:
    """The same items, indexed for a published policy."""
    return _index(of, policy, published_policies()[policy], at)


@cache
def named_contamination(of: Decontamination, policy: str, source: str, at: Placement = CANONICAL) -> Node:
    """Marks of the same documents by a published policy, for comparison; no corpus uses them."""
    return _marks(of, source, policy, published_policies()[policy], named_contamination_index(of, policy, at), at)


def _index(of: Decontamination, name: str, policy: DeclaredPolicy, at: Placement) -> Node:
    clean = tuple(normalized(source, at) for source in of.clean)
    inputs = {"suites": suites(of.suites, at)} | ({"clean": clean} if clean else {})
    return Node(*at.of_all("contamination_index", name), CONTAMINATION_INDEX, policy, inputs)


def _marks(of: Decontamination, source: str, name: str, policy: DeclaredPolicy, index: Node, at: Placement) -> Node:
    inputs = {"normalized": normalized(source, at), "suites": suites(of.suites, at), "index": index}
    return Node(*at.of_source("contamination", name, source=source), CONTAMINATION, policy, inputs)


@cache
def duplicates(scope: Scope, at: Placement = CANONICAL) -> Node:
    """Verified duplicate clusters across every source of the scope, and with what earlier scopes kept."""
    inputs = {
        "normalized": tuple(normalized(source, at) for source in scope.sources),
        "minhash": tuple(minhash(scope, source, at) for source in scope.sources),
    }
    if scope.earlier is not None:
        before = scope.earlier.chain
        inputs |= {
            "earlier_normalized": tuple(normalized(source, at) for each in before for source in each.sources),
            "earlier_minhash": tuple(minhash(each, source, at) for each in before for source in each.sources),
            "earlier_duplicates": tuple(duplicates(each, at) for each in before),
        }
    return Node(*at.of_all("duplicates", scope.name), DUPLICATES, scope.duplicates, inputs)


@cache
def paragraphs(scope: Scope, at: Placement = CANONICAL) -> Node:
    """Paragraphs of every source of the scope that repeat an earlier document's, for corpora that cut them."""
    inputs = {"normalized": tuple(normalized(source, at) for source in scope.sources), "duplicates": duplicates(scope, at)}
    return Node(*at.of_all("paragraphs", scope.name), PARAGRAPHS, ParagraphsConfig(), inputs)


@cache
def embeddings(source: str, at: Placement = CANONICAL) -> Node:
    """A vector of what every document says; code has none."""
    config, inputs = EmbeddingsConfig(source_config(source).domain), {"normalized": normalized(source, at)}
    return Node(*at.of_source("datakit", "embeddings", source=source), EMBEDDINGS, config, inputs)


@cache
def semantic_duplicates(scope: Scope, at: Placement = CANONICAL) -> Node:
    """Documents of the scope that say what another one says, for corpora that drop them."""
    inputs = {
        "normalized": tuple(normalized(source, at) for source in scope.sources),
        "embeddings": tuple(embeddings(source, at) for source in scope.sources),
        "duplicates": duplicates(scope, at),
    }
    return Node(*at.of_all("semantic_duplicates", scope.name), SEMANTIC_DUPLICATES, scope.semantic, inputs)


@cache
def containment(scope: Scope, at: Placement = CANONICAL) -> Node:
    """Documents of every source of the scope that lie inside a longer one, for corpora that drop them."""
    inputs = {"normalized": tuple(normalized(source, at) for source in scope.sources), "duplicates": duplicates(scope, at)}
    return Node(*at.of_all("containment", scope.name), CONTAINMENT, scope.containment, inputs)


@cache
def removals(of: Corpus, at: Placement = CANONICAL) -> Node:
    """The documents that the corpus leaves out by request."""
    if of.removals is None:
        raise ValueError(f"corpus {of.name} has no removals; give it a list with filters.remove_listed")
    return Node(*at.of_all("removals", of.name), REMOVALS, of.removals, {})


@cache
def corpus(of: Corpus, source: str, at: Placement = CANONICAL) -> Node:
    """Documents that survive the filters, split into train and held-out."""
    if (holder := of.holder(source)) is not of:
        return corpus(holder, source, at)
    inputs = {
        "normalized": normalized(source, at),
        "contamination": contamination(of.decontamination, source, at),
        "duplicates": duplicates(of.scope, at),
    }
    optional = {"quality": lambda: quality(source, at), "rules": lambda: quality_rules(source, at)}
    optional |= {"languages": lambda: languages(source, at), "code_licences": lambda: code_licences(source, at)}
    optional |= {"domains": lambda: domains(declared_domains(of), source, at)}
    optional |= {"scores": lambda: scores(declared_scorer(of), source, at), "cutoff": lambda: score_cutoff(of, at)}
    optional |= {"semantic_duplicates": lambda: semantic_duplicates(of.scope, at)}
    optional |= {"paragraphs": lambda: paragraphs(of.scope, at), "removals": lambda: removals(of, at)}
    optional |= {"containment": lambda: containment(of.scope, at)}
    inputs |= {name: make() for name, make in optional.items() if name in of.filters.reads}
    return Node(*at.of_source("corpus", of.name, source=source), CORPUS, of.filters, inputs)


@cache
def corpora(of: Corpus, at: Placement = CANONICAL) -> tuple[Node, ...]:
    """The corpus of every source, in the scope's order."""
    return tuple(corpus(of, source, at) for source in of.sources)
