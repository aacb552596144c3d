"""The data half of the graph: which asset each stage is, what it promises, and its partitions, for any line.

The canonical assets have the source as their partition, the ferry's have it in the key and the day as their partition;
both come from the same table below.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace

import dagster as dg

from lineage.artifact.store import Store
from lineage.build.plan import Node
from marin_assets.data_stages import (
    ATTRIBUTES,
    CANONICAL_PER_SOURCE,
    CARD,
    CUTOFF,
    EVAL_POLICY,
    FILES,
    PER_SOURCE,
    REPEATED_PARAGRAPHS,
    SCORER,
    SCORES,
    SHARDS,
    SHOTS_DESCRIPTION,
    SUITE_DESCRIPTION,
    TRAJECTORIES,
    WHOLE_LINE,
    DataStage,
)
from marin_assets.factory import AssetTemplate, Skipped
from partitions.axes import sources
from recipes import data
from recipes.contamination import published_policies
from recipes.lines import Line
from recipes.sources import small_sources
from recipes.suites import suite_raw_source
from resources.lab import Lab

_CORPUS = next(stage for stage in PER_SOURCE if stage.node is data.corpus)
_OVER_EVERY_SOURCE = (data.raw, data.normalized, data.minhash, data.quality, data.quality_rules)
"""Stages that do not depend on a corpus's choice of sources: canonical for every small source, named by the line or not."""


def canonical_families(line: Line) -> Iterator[AssetTemplate]:
    """The data assets of a canonical line, one partition a source."""
    every_source = sources(sorted({*(source.name for source in small_sources()), *line.sources}))
    of_line = sources(line.sources)
    for stage in CANONICAL_PER_SOURCE:
        yield _of_sources(stage, line, every_source if stage.node in _OVER_EVERY_SOURCE else of_line)
    if line.scorer is not None:
        yield _of_line(SCORER, line)
        yield _of_sources(SCORES, line, of_line)
    yield _of_sources(CARD, line, of_line)
    yield from whole_line_families(line)
    yield from named_policy_families(line)


def named_policy_families(line: Line) -> Iterator[AssetTemplate]:
    """Contamination by the published policies, to compare with the line's own."""
    for name, policy in published_policies().items():
        index = DataStage(
            lambda line, name=name: data.named_contamination_index(line, name),
            "contamination_policies",
            f"The benchmark items as {name} indexes them.",
            frozenset({"numpy"}),
            (FILES,),
        )
        marks = DataStage(
            lambda line, source, name=name: data.named_contamination(line, name, source),
            "contamination_policies",
            f"Marks by the published policy {name}, to compare. {inspect.getdoc(type(policy))}",
            frozenset({"parquet"}),
            (FILES, ATTRIBUTES),
        )
        yield _of_line(index, line)
        yield _of_sources(marks, line, sources(line.sources))


def corpus_families(line: Line) -> Iterator[AssetTemplate]:
    """What a second corpus over the sources of a canonical line adds: the corpus, and the cutoff that its filters read."""
    if line.corpus_filters.cut_paragraphs:
        yield _of_line(REPEATED_PARAGRAPHS, line)
    if line.best_scores is not None:
        yield _of_line(CUTOFF, line)
    yield _of_sources(_CORPUS, line, sources(line.sources))


def whole_line_families(line: Line) -> Iterator[AssetTemplate]:
    """The assets that a canonical line has one of."""
    for stage in (*WHOLE_LINE, *([REPEATED_PARAGRAPHS] if line.corpus_filters.cut_paragraphs else [])):
        yield _of_line(_saying_what_is_left_out(stage, line), line)


def _saying_what_is_left_out(stage: DataStage, line: Line) -> DataStage:
    """The mixture of a line that a choice over its sources has narrowed says which are not in it, and why."""
    if stage.node is not data.mixture or not line.left_out:
        return stage
    reasons = "; ".join(f"{source}: {reason}" for source, reason in line.left_out)
    return replace(stage, description=f"{stage.description} Left out: {reasons}.")


def evaluation_families(line: Line) -> Iterator[AssetTemplate]:
    """The policy of a line's checkpoints, and what it needs beside the suite that the corpus is cleaned of."""
    for nodes, told in ((data.suites(line)[1:], SUITE_DESCRIPTION), (data.shots(line), SHOTS_DESCRIPTION)):
        for node in nodes:
            stage = DataStage(lambda line, node=node: node, "eval_suites", told, frozenset({"parquet"}), (FILES,))
            yield _of_line(stage, line)
    yield _of_line(EVAL_POLICY, line)


def own_families(line: Line, *, has_cards: bool = False) -> Iterator[AssetTemplate]:
    """The data assets of another canonical line that do not stand for every source.

    `has_cards`: another line over the same corpus has its cards, which speak of that line's tokens.
    """
    yield from canonical_per_source(line)
    if not has_cards:
        yield _of_sources(CARD, line, sources(line.sources))
    if data.trajectories(line):
        yield _of_sources(TRAJECTORIES, line, sources(line.sources))
    yield from whole_line_families(line)


def canonical_per_source(line: Line) -> Iterator[AssetTemplate]:
    """The per-source assets of another canonical line that are its own (its policy, corpus and cache)."""
    for stage in PER_SOURCE:
        if stage.node not in _OVER_EVERY_SOURCE:
            yield _of_sources(stage, line, sources(line.sources))


def daily_families(
    example: Line,
    suite_sources: tuple[str, ...],
    line_at: Callable[[Store, str], Line],
    days: dg.PartitionsDefinition,
    roster: tuple[str, ...],
) -> Iterator[AssetTemplate]:
    """The data assets of a ferry: the source in the key, the day as partition.

    `example` names every source that some day may use; `line_at` reads the day's roster, which lies under the key `roster`.
    """

    def at_source(stage: DataStage, source: str) -> Callable[[Lab, str | None], Node | Skipped]:
        def node_at(lab: Lab, day: str | None) -> Node | Skipped:
            line = line_at(lab.ferry_store, str(day))
            used = {*line.sources, suite_raw_source(line.suite_source)}
            return stage.node(line, source) if source in used else Skipped(f"the roster of {day} does not name {source}")

        return node_at

    def at_line(stage: DataStage) -> Callable[[Lab, str | None], Node | Skipped]:
        return lambda lab, day: stage.node(line_at(lab.ferry_store, str(day)))

    for stage in PER_SOURCE:
        is_raw = stage.node is data.raw
        for source in (*example.sources, *suite_sources) if is_raw else example.sources:
            family = _family(
                stage,
                stage.node(example, source),
                at_source(stage, source),
                lambda lab: lab.ferry_store,
                days,
                "ferry_",
            )
            yield replace(family, after=(roster,) if is_raw else ())
    for stage in WHOLE_LINE:
        family = _family(stage, stage.node(example), at_line(stage), lambda lab: lab.ferry_store, days, "ferry_")
        items = tuple(data.raw(example, source).key for source in suite_sources)
        yield replace(family, after=items if stage.node is data.suite else ())


def _of_sources(stage: DataStage, line: Line, partitions_def: dg.PartitionsDefinition) -> AssetTemplate:
    """A canonical asset with the source as partition."""
    example = stage.node(line, line.sources[0])
    return _family(stage, example, _at_source(stage, line), lambda lab: lab.store, partitions_def)


def _of_line(stage: DataStage, line: Line) -> AssetTemplate:
    """A canonical asset that the line has one of."""
    node = stage.node(line)
    return _family(stage, node, lambda lab, partition: node, lambda lab: lab.store, None)


def _at_source(stage: DataStage, line: Line) -> Callable[[Lab, str | None], Node | Skipped]:
    return lambda lab, source: stage.node(line, source)


def _family(
    stage: DataStage,
    example: Node,
    node_at: Callable[[Lab, str | None], Node | Skipped],
    store_of: Callable[[Lab], Store],
    partitions_def: dg.PartitionsDefinition | None,
    group_prefix: str = "",
) -> AssetTemplate:
    return AssetTemplate(
        example=example,
        node_at=node_at,
        store_of=store_of,
        group=f"{group_prefix}{stage.group}",
        description=stage.description,
        kinds=stage.kinds,
        partitions_def=partitions_def,
        invariants=(SHARDS, *stage.invariants),
    )
