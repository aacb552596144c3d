"""The data half of the graph: the assets of each record, canonical or of a ferry.

Canonical assets have the source as their partition; a ferry's have it in the key and the day as their partition. Both come
from the rows of `marin_assets/data_stages.py`.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import dagster as dg

from lineage.artifact.store import Store
from lineage.build.plan import Node
from marin_assets import data_stages as stages
from marin_assets.data_stages import ATTRIBUTES, FILES, SHARDS, DataStage
from marin_assets.factory import AssetTemplate, Skipped
from partitions.axes import sources
from recipes import data
from recipes.contamination import published_policies
from recipes.models import PublishedModel
from recipes.records.data import DEFAULT_PRESET, Corpus, Decontamination, Scope
from recipes.records.run import Run
from recipes.records.tokens import Tokens
from recipes.runs import mixture, policy
from recipes.sources import small_sources, source_config
from recipes.suites import Suite
from resources.lab import Lab


def source_assets(used: tuple[str, ...]) -> Iterator[AssetTemplate]:
    """What depends on a source alone: for every small source, and for the sources that a record uses."""
    every = tuple(dict.fromkeys((*sorted(source.name for source in small_sources()), *used)))
    text = tuple(source for source in every if source_config(source).trainable)
    yield of_sources(stages.RAW, data.raw, every)
    for stage in (stages.NORMALIZED, stages.QUALITY, stages.QUALITY_RULES):
        yield of_sources(stage, stage.node, text)


def scope_assets(scope: Scope) -> Iterator[AssetTemplate]:
    """Signatures, and the duplicates among the scope's sources."""
    text = tuple(sorted(source.name for source in small_sources() if source.trainable))
    signed = tuple(dict.fromkeys((*text, *scope.sources))) if scope.minhash == DEFAULT_PRESET else scope.sources
    yield of_sources(stages.MINHASH, partial(data.minhash, scope), signed)
    yield of_all(stages.DUPLICATES, data.duplicates(scope))


def decontamination_assets(of: Decontamination, marked: tuple[str, ...]) -> Iterator[AssetTemplate]:
    """The suites, their index, and the marks of some sources."""
    yield from suite_assets(of.suites)
    yield of_all(stages.CONTAMINATION_INDEX, data.contamination_index(of))
    yield of_sources(stages.CONTAMINATION, partial(data.contamination, of), marked)


def suite_assets(suites: tuple[Suite, ...], stage: DataStage = stages.SUITE) -> Iterator[AssetTemplate]:
    for suite in suites:
        yield of_all(stage, data.suite(suite))
        yield of_sources(stages.RAW, data.raw, (suite.raw_source,))


def corpus_assets(of: Corpus) -> Iterator[AssetTemplate]:
    """The corpus and all that it is made from."""
    yield from source_assets((*of.sources, *(of.scorer.sources if of.scorer else ())))
    yield from scope_assets(of.scope)
    yield from decontamination_assets(of.decontamination, of.sources)
    if of.scorer is not None:
        yield of_all(stages.SCORER, data.scorer(of.scorer))
        yield of_sources(stages.SCORES, partial(data.scores, of.scorer), of.sources)
    if of.best_scores is not None:
        yield of_all(stages.CUTOFF, data.score_cutoff(of))
    if of.filters.cut_paragraphs:
        yield of_all(stages.REPEATED_PARAGRAPHS, data.paragraphs(of.scope))
    yield of_sources(stages.CORPUS, partial(data.corpus, of), of.sources)


def token_assets(of: Tokens) -> Iterator[AssetTemplate]:
    """The corpus, the tokenizer if it is trained here, and the caches."""
    yield from corpus_assets(of.corpus)
    if not isinstance(of.tokenizer, PublishedModel):
        yield of_all(stages.TOKENIZER, data.tokenizer(of))
    yield of_sources(stages.TOKEN_CACHE, partial(data.token_cache, of), of.sources)
    if data.trajectories(of):
        yield of_sources(stages.TRAJECTORIES, partial(data.trajectory_cache, of), of.sources)


def card_assets(of: Tokens) -> Iterator[AssetTemplate]:
    """A card of every source: it shows one corpus and one token cache."""
    yield of_sources(stages.CARD, partial(data.card, of), of.sources)


def mix_assets(run: Run) -> Iterator[AssetTemplate]:
    """All data that a run trains on, placed canonically."""
    yield from token_assets(run.tokens)
    made = of_all(stages.MIXTURE, mixture(run))
    reasons = "; ".join(f"{source}: {reason}" for source, reason in run.scope.left_out)
    yield replace(made, description=f"{made.description} Left out: {reasons}.") if reasons else made


def evaluation_assets(run: Run) -> Iterator[AssetTemplate]:
    """The policy of a run's checkpoints, its suites and its examples."""
    yield from suite_assets(run.evaluation.suites)
    yield from suite_assets(run.evaluation.shots, replace(stages.SUITE, description=stages.SHOTS_DESCRIPTION))
    yield of_all(DataStage(policy, "eval_suites", stages.POLICY_DESCRIPTION, frozenset({"json"}), (FILES,)), policy(run))


def policy_assets(of: Corpus) -> Iterator[AssetTemplate]:
    """Contamination of a corpus's sources by the published policies, to compare with its own."""
    cleaned = of.decontamination
    for name, published in published_policies().items():
        index = DataStage(
            data.named_contamination_index,
            "contamination_policies",
            f"The benchmark items as {name} indexes them.",
            frozenset({"numpy"}),
            (FILES,),
        )
        marks = DataStage(
            data.named_contamination,
            "contamination_policies",
            f"Marks by the published policy {name}, to compare. {inspect.getdoc(type(published))}",
            frozenset({"parquet"}),
            (FILES, ATTRIBUTES),
        )
        yield of_all(index, data.named_contamination_index(cleaned, name))
        yield of_sources(marks, partial(data.named_contamination, cleaned, name), of.sources)


def of_sources(stage: DataStage, node: Callable[[str], Node], names: tuple[str, ...]) -> AssetTemplate:
    """A canonical asset with the source as partition."""
    return _template(stage, node(names[0]), lambda source: node(str(source)), sources(names))


def of_all(stage: DataStage, node: Node) -> AssetTemplate:
    """A canonical asset without partitions."""
    return _template(stage, node, lambda partition: node, None)


def _template(
    stage: DataStage, example: Node, node: Callable[[str | None], Node], partitions_def: dg.PartitionsDefinition | None
) -> AssetTemplate:
    return AssetTemplate(
        example=example,
        node_at=lambda lab, partition: node(partition),
        node=node,
        store_of=lambda lab: lab.store,
        group=stage.group,
        description=stage.description,
        kinds=stage.kinds,
        partitions_def=partitions_def,
        invariants=(SHARDS, *stage.invariants),
    )


type _OfSource = Callable[[Run, str], Node]
_FERRY_SOURCES: tuple[tuple[DataStage, _OfSource], ...] = (
    (stages.RAW, lambda run, source: data.raw(source, run.place.data)),
    (stages.NORMALIZED, lambda run, source: data.normalized(source, run.place.data)),
    (stages.MINHASH, lambda run, source: data.minhash(run.scope, source, run.place.data)),
    (stages.QUALITY, lambda run, source: data.quality(source, run.place.data)),
    (stages.CONTAMINATION, lambda run, source: data.contamination(run.decontamination, source, run.place.data)),
    (stages.CORPUS, lambda run, source: data.corpus(run.corpus, source, run.place.data)),
    (stages.TOKEN_CACHE, lambda run, source: data.token_cache(run.tokens, source, run.place.data)),
)
_FERRY_WHOLE: tuple[tuple[DataStage, Callable[[Run], Node]], ...] = (
    (stages.DUPLICATES, lambda run: data.duplicates(run.scope, run.place.data)),
    (stages.SUITE, lambda run: data.suite(run.evaluation.suites[0], run.place.data)),
    (stages.CONTAMINATION_INDEX, lambda run: data.contamination_index(run.decontamination, run.place.data)),
    (stages.TOKENIZER, lambda run: data.tokenizer(run.tokens, run.place.data)),
    (stages.MIXTURE, mixture),
)


def daily_assets(
    example: Run,
    suite_sources: tuple[str, ...],
    run_at: Callable[[Store, str], Run],
    days: dg.PartitionsDefinition,
    roster: tuple[str, ...],
) -> Iterator[AssetTemplate]:
    """The data assets of a ferry: the source in the key, the day as partition.

    `example` names every source that some day may use; `run_at` reads the day's roster, which has the key `roster`.
    """

    def at_source(node: _OfSource, source: str) -> Callable[[Lab, str | None], Node | Skipped]:
        def node_at(lab: Lab, day: str | None) -> Node | Skipped:
            run = run_at(lab.ferry_store, str(day))
            used = {*run.sources, *(suite.raw_source for suite in run.evaluation.suites)}
            return node(run, source) if source in used else Skipped(f"the roster of {day} does not name {source}")

        return node_at

    for stage, of_source in _FERRY_SOURCES:
        is_raw = stage is stages.RAW
        for source in (*example.sources, *suite_sources) if is_raw else example.sources:
            made = _daily(stage, of_source(example, source), at_source(of_source, source), days)
            yield replace(made, after=(roster,) if is_raw else ())
    for stage, of_run in _FERRY_WHOLE:
        node_at = lambda lab, day, of_run=of_run: of_run(run_at(lab.ferry_store, str(day)))  # noqa: E731
        made = _daily(stage, of_run(example), node_at, days)
        items = tuple(data.raw(source, example.place.data).key for source in suite_sources)
        yield replace(made, after=items if stage is stages.SUITE else ())


def _daily(
    stage: DataStage, example: Node, node_at: Callable[[Lab, str | None], Node | Skipped], days: dg.PartitionsDefinition
) -> AssetTemplate:
    made = _template(stage, example, lambda day: example, days)
    return replace(made, node=None, node_at=node_at, store_of=lambda lab: lab.ferry_store, group=f"ferry_{stage.group}")
