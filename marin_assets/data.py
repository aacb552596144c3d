"""The data half of the graph: the assets of each record, canonical or of a ferry.

Canonical assets have the source as their partition; a ferry's have it in the key and the day as their partition.
Description and checks come from the stage of the node.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import dagster as dg

from datakit.sources.raw import RAW
from datakit.tags.domain_model import DomainModelConfig
from evals.items.suites import SUITE
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from marin_assets.data_stages import CHECKS, SHARDS, view_of
from marin_assets.factory import AssetTemplate, Skipped
from partitions.axes import sources
from recipes import data, tokenized
from recipes.contamination import published_policies
from recipes.labels import declared_labels, labels
from recipes.models import PublishedModel
from recipes.records.data import DEFAULT_PRESET, Corpus, Decontamination, Scope
from recipes.records.labels import DocumentLabels
from recipes.records.run import Run
from recipes.records.tokens import Tokens
from recipes.runs import mixture, policy, reference
from recipes.sources import small_sources, source_config
from recipes.suites import Suite
from resources.lab import Lab
from trainer.spec.objectives import Dpo

"""Group of the published policies' assets."""
SHOTS = "Examples of few-shot prompts: solved items that are never scored."
TRAJECTORIES = "Tokens and mask of the held-out conversations, for evaluations of the assistant's turns."


def source_assets(used: tuple[str, ...]) -> Iterator[AssetTemplate]:
    """Yield the assets that depend on a source alone: of every small source, and of the sources that a record uses."""
    every = tuple(dict.fromkeys((*sorted(source.name for source in small_sources()), *used)))
    text = tuple(source for source in every if source_config(source).trainable)
    yield of_sources(data.raw, every)
    for node in (data.normalized, data.quality, data.quality_rules, data.languages, data.code_licences):
        yield of_sources(node, text)


def domain_assets(of: DomainModelConfig, tagged: tuple[str, ...]) -> Iterator[AssetTemplate]:
    """Yield a domain model, what it learns from, and the domains of the documents of some sources."""
    yield from source_assets((*(each.source for each in of.sources), *tagged))
    for each in of.labelled:
        yield from label_assets(declared_labels(each.labels))
    yield of_all(data.domain_model(of))
    yield of_sources(partial(data.domains, of), tagged)


def scope_assets(scope: Scope) -> Iterator[AssetTemplate]:
    """Yield the signatures, and the duplicates among the scope's sources, of earlier scopes too."""
    text = tuple(sorted(source.name for source in small_sources() if source.trainable))
    used = scope.every_source
    signed = tuple(dict.fromkeys((*text, *used))) if scope.minhash == DEFAULT_PRESET else used
    yield of_sources(partial(data.minhash, scope), signed)
    for each in scope.chain:
        yield of_all(data.duplicates(each))


def decontamination_assets(of: Decontamination, marked: tuple[str, ...]) -> Iterator[AssetTemplate]:
    """Yield the suites, their index, and the marks of some sources."""
    yield from suite_assets(of.suites)
    yield of_all(data.contamination_index(of))
    yield of_sources(partial(data.contamination, of), marked)


def suite_assets(suites: tuple[Suite, ...]) -> Iterator[AssetTemplate]:
    """Yield each suite and the raw files that it comes from."""
    for suite in suites:
        yield of_all(data.suite(suite))
        yield of_sources(data.raw, (suite.raw_source,))


def corpus_assets(of: Corpus) -> Iterator[AssetTemplate]:
    """Yield the corpus and all that it is made from."""
    if of.earlier is not None:
        yield from corpus_assets(of.earlier)
    yield from source_assets((*of.scope.every_source, *(of.scorer.sources if of.scorer else ())))
    yield from scope_assets(of.scope)
    yield from decontamination_assets(of.decontamination, of.sources)
    if of.scorer is not None:
        for seed in of.scorer.labelled:
            yield from label_assets(declared_labels(seed.labels))
        yield of_all(data.scorer(of.scorer))
        yield of_sources(partial(data.scores, of.scorer), of.own_sources)
    if of.domain_model is not None:
        yield from domain_assets(of.domain_model, of.own_sources)
    if of.best_scores is not None:
        yield of_all(data.score_cutoff(of))
    if of.removals is not None:
        yield of_all(data.removals(of))
    if "semantic_duplicates" in of.filters.reads:
        yield of_sources(data.embeddings, of.own_sources)
        yield of_all(data.semantic_duplicates(of.scope))
    if "paragraphs" in of.filters.reads:
        yield of_all(data.paragraphs(of.scope))
    if "containment" in of.filters.reads:
        yield of_all(data.containment(of.scope))
    yield of_sources(partial(data.corpus, of), of.own_sources)


def label_assets(of: DocumentLabels) -> Iterator[AssetTemplate]:
    """Yield a model's labels and the documents that it read."""
    yield from source_assets(of.sources)
    yield of_sources(partial(labels, of), of.sources)


def token_assets(of: Tokens) -> Iterator[AssetTemplate]:
    """Yield the corpus, the tokenizer if it is trained here, and the caches."""
    if of.earlier is not None:
        yield from token_assets(of.earlier)
    yield from corpus_assets(of.corpus)
    base = of.base_tokenizer
    if base is not of.tokenizer:
        yield of_all(tokenized.tokenizer(of))
    if not isinstance(base, PublishedModel):
        yield of_all(tokenized.tokenizer(replace(of, tokenizer=base)))
        if base.corpus is not None:
            yield from corpus_assets(base.corpus)
    yield of_sources(partial(tokenized.token_cache, of), of.own_sources)
    if tokenized.trajectories(of):
        yield replace(of_sources(partial(tokenized.trajectory_cache, of), of.own_sources), description=TRAJECTORIES)


def card_assets(of: Tokens) -> Iterator[AssetTemplate]:
    """Yield a card for every source of the tokens' own: it shows one corpus and one token cache."""
    yield of_sources(partial(tokenized.card, of), of.own_sources)


def text_assets(run: Run) -> Iterator[AssetTemplate]:
    """Yield the token caches of a run, and the corpus whose held-out text scores it."""
    yield from token_assets(run.tokens)
    if run.scored_on is not None:
        yield from corpus_assets(run.scored_on)


def mix_assets(run: Run) -> Iterator[AssetTemplate]:
    """Yield all data that a run trains on and is scored on, placed canonically."""
    yield from text_assets(run)
    template = of_all(mixture(run))
    left_out = (pair for scope in run.scope.chain for pair in scope.left_out)
    reasons = "; ".join(f"{source}: {reason}" for source, reason in left_out)
    yield replace(template, description=f"{template.description} Left out: {reasons}.") if reasons else template


def preference_assets(run: Run) -> Iterator[AssetTemplate]:
    """Held-out pairs of a run on preferences, and what its reference gives these and those it trains on."""
    for pairs in (run.tokens, run.evaluation.pairs) if isinstance(run.spec.objective, Dpo) else ():
        if pairs is not None:
            yield from token_assets(pairs)
            yield of_all(reference(run, pairs))


def evaluation_assets(run: Run) -> Iterator[AssetTemplate]:
    """Yield the policy of a run's checkpoints, its suites and its examples."""
    yield from preference_assets(run)
    yield from suite_assets(run.evaluation.suites)
    for template in suite_assets(run.evaluation.shots):
        yield replace(template, description=SHOTS) if template.example.stage is SUITE else template
    yield of_all(policy(run))


def policy_assets(of: Corpus) -> Iterator[AssetTemplate]:
    """Yield a corpus's contamination by the published policies, to compare with its own policy."""
    cleaned = of.decontamination
    for name, published in published_policies().items():
        index = of_all(data.named_contamination_index(cleaned, name))
        marks = of_sources(partial(data.named_contamination, cleaned, name), of.sources)
        index_text = f"The benchmark items as {name} indexes them."
        marks_text = f"Marks by the published policy {name}, for comparison. {inspect.getdoc(type(published))}"
        yield replace(index, description=index_text)
        yield replace(marks, description=marks_text)


def of_sources(node: Callable[[str], Node], names: tuple[str, ...]) -> AssetTemplate:
    """Return a canonical asset with the source as partition."""
    return _template(node(names[0]), lambda source: node(str(source)), sources(names))


def of_all(node: Node) -> AssetTemplate:
    """Return a canonical asset without partitions."""
    return _template(node, lambda partition: node, None)


def _template(
    example: Node, node: Callable[[str | None], Node], partitions_def: dg.PartitionsDefinition | None
) -> AssetTemplate:
    stage, view = example.stage, view_of(example.stage.name)
    return AssetTemplate(
        example=example,
        node_at=lambda lab, partition: node(partition),
        node=node,
        store_of=lambda lab: lab.store,
        group=view.group,
        description=stage.description,
        kinds=view.kinds,
        partitions_def=partitions_def,
        invariants=(SHARDS, *(CHECKS[name] for name in stage.checks)),
    )


type _OfSource = Callable[[Run, str], Node]
_FERRY_SOURCES: tuple[_OfSource, ...] = (
    lambda run, source: data.raw(source, run.place.data),
    lambda run, source: data.normalized(source, run.place.data),
    lambda run, source: data.minhash(run.scope, source, run.place.data),
    lambda run, source: data.quality(source, run.place.data),
    lambda run, source: data.contamination(run.decontamination, source, run.place.data),
    lambda run, source: data.corpus(run.corpus, source, run.place.data),
    lambda run, source: tokenized.token_cache(run.tokens, source, run.place.data),
)
_FERRY_SHARED: tuple[Callable[[Run], Node], ...] = (
    lambda run: data.duplicates(run.scope, run.place.data),
    lambda run: data.suite(run.evaluation.suites[0], run.place.data),
    lambda run: data.contamination_index(run.decontamination, run.place.data),
    lambda run: tokenized.tokenizer(run.tokens, run.place.data),
    mixture,
)


def daily_assets(
    example: Run,
    suite_sources: tuple[str, ...],
    run_at: Callable[[Store, str], Run],
    days: dg.PartitionsDefinition,
    roster: tuple[str, ...],
) -> Iterator[AssetTemplate]:
    """Return the data assets of a ferry: the source in the key, the day as partition.

    `example` names every source that some day may use. `run_at` reads the day's roster, whose key is `roster`.
    """

    def at_source(node: _OfSource, source: str) -> Callable[[Lab, str | None], Node | Skipped]:
        def node_at(lab: Lab, day: str | None) -> Node | Skipped:
            run = run_at(lab.ferry_store, str(day))
            used = {*run.sources, *(suite.raw_source for suite in run.evaluation.suites)}
            return node(run, source) if source in used else Skipped(f"the roster of {day} does not name {source}")

        return node_at

    for of_source in _FERRY_SOURCES:
        is_raw = of_source(example, example.sources[0]).stage is RAW
        for source in (*example.sources, *suite_sources) if is_raw else example.sources:
            template = _daily(of_source(example, source), at_source(of_source, source), days)
            yield replace(template, after=(roster,) if is_raw else ())
    for of_run in _FERRY_SHARED:
        node_at = lambda lab, day, of_run=of_run: of_run(run_at(lab.ferry_store, str(day)))  # noqa: E731
        template = _daily(of_run(example), node_at, days)
        items = tuple(data.raw(source, example.place.data).key for source in suite_sources)
        yield replace(template, after=items if template.example.stage is SUITE else ())


def _daily(example: Node, node_at: Callable[[Lab, str | None], Node | Skipped], days: dg.PartitionsDefinition) -> AssetTemplate:
    template = _template(example, lambda day: example, days)
    return replace(template, node=None, node_at=node_at, store_of=lambda lab: lab.ferry_store, group="ferry_data")
