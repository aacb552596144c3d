"""The data half of the graph: which asset each stage is, what it promises, and its partitions, for any line.

The canonical assets have the source as their partition, the ferry's have it in the key and the day as their partition;
both come from the same table below.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import dagster as dg

from datakit import invariants, removal_rates
from lineage.plan import Node
from lineage.store import Store
from marin_assets.factory import Family, Invariant, LeftOut
from marin_assets.quarantine import SHARDS_CHECK, SHARDS_PROMISE, missing_shards
from partitions.axes import sources
from recipes import data
from recipes.contamination import named_policies
from recipes.lines import Line
from recipes.runs import policy as eval_policy
from recipes.sources import small_sources
from recipes.suites import suite_raw_source
from resources.lab import Lab

SHARDS = Invariant(SHARDS_CHECK, SHARDS_PROMISE, missing_shards)
ROWS = Invariant("rows_conserved", "rows in = rows out + drops by reason", invariants.check_rows_conserved)
FILES = Invariant("file_set", "the files are exactly those of the manifest, complete and in order", invariants.check_file_set)
DOCUMENTS = Invariant(
    "documents_valid", "ids are content ids, sorted and unique; the schema is exact", invariants.check_documents
)
ATTRIBUTES = Invariant(
    "attributes_aligned",
    "one row a document, same ids in the same files",
    lambda artifact: invariants.check_attributes(artifact, artifact.input("normalized")),
)
REMOVAL_RATES = Invariant(
    "removal_rates", "no source loses more than the declared share of its documents", removal_rates.check_removal_rates
)
CORPUS_VALID = Invariant(
    "corpus_valid", "both splits sorted, unique, disjoint and of the exact schema", invariants.check_corpus
)
TOKENS_VALID = Invariant(
    "tokens_match_documents",
    "token rows = documents of the train split, in the same order",
    lambda artifact: invariants.check_token_cache(artifact, artifact.input("corpus")),
)


@dataclass(frozen=True)
class DataStage:
    """A row of the table: the recipe's node function and how the graph shows it."""

    node: Callable[..., Node]
    group: str
    description: str
    kinds: frozenset[str]
    invariants: tuple[Invariant, ...]


PER_SOURCE = (
    DataStage(data.raw, "sources", "Files as fetched: pinned, hash-checked, licence recorded.", frozenset({"file"}), (FILES,)),
    DataStage(
        data.normalized,
        "datakit",
        "Documents with `id = xxh3_128(text)`, sorted and unique; dropped rows are counted by reason with samples.",
        frozenset({"parquet", "polars"}),
        (ROWS, FILES, DOCUMENTS),
    ),
    DataStage(
        data.minhash,
        "datakit",
        "MinHash bands of every document's word 5-grams, the candidates of fuzzy deduplication.",
        frozenset({"parquet"}),
        (FILES, ATTRIBUTES),
    ),
    DataStage(
        data.quality,
        "datakit",
        "Quality signals of every document and the verdict of its domain's rules (prose rules never judge code).",
        frozenset({"parquet", "polars"}),
        (FILES, ATTRIBUTES),
    ),
    DataStage(
        data.contamination,
        "contamination",
        "Marks against the benchmark items that the policy binds, with matched spans and canary recall.",
        frozenset({"parquet"}),
        (FILES, ATTRIBUTES),
    ),
    DataStage(
        data.corpus,
        "corpora",
        "Documents that survive the declared filters, split into train and held-out (whole duplicate clusters to one side).",
        frozenset({"parquet", "polars"}),
        (ROWS, FILES, CORPUS_VALID),
    ),
    DataStage(
        data.token_cache,
        "token_caches",
        "Token shards of the train split, bound to the exact tokenizer; document ends and ids are kept.",
        frozenset({"binary"}),
        (FILES, TOKENS_VALID),
    ),
)
CANONICAL_PER_SOURCE = (
    *PER_SOURCE,
    DataStage(
        data.quality_rules,
        "datakit",
        "What Gopher, C4 and FineWeb would drop, rule by rule, and the signals that they judge by; code is not judged.",
        frozenset({"parquet", "polars"}),
        (FILES, ATTRIBUTES),
    ),
)
"""Ferries go without the last of these: no corpus of theirs reads them."""

WHOLE_LINE = (
    DataStage(
        data.duplicates,
        "datakit",
        "Verified duplicate clusters across the scope's sources; a document leaves only for a match with a kept one.",
        frozenset({"parquet"}),
        (FILES, ROWS, REMOVAL_RATES),
    ),
    DataStage(data.suite, "eval_suites", "Benchmark items by content.", frozenset({"parquet"}), (FILES,)),
    DataStage(
        data.contamination_index,
        "contamination",
        "Grams of the items that the policy binds, weighed by how many items share them: sources are scanned with it.",
        frozenset({"numpy"}),
        (FILES,),
    ),
    DataStage(
        data.tokenizer,
        "tokenizers",
        "Byte-level BPE trained on the corpus.",
        frozenset({"json", "huggingface"}),
        (FILES,),
    ),
    DataStage(
        data.mixture,
        "mixtures",
        "Frozen weights and the exact cache digests they bind: the pivot between data and training.",
        frozenset({"json"}),
        (FILES,),
    ),
)
COMPARISON = DataStage(
    data.contamination_comparison,
    "contamination_policies",
    "Contamination policies side by side: documents and items marked, agreement, recall of planted items, false positives.",
    frozenset({"parquet", "markdown"}),
    (FILES,),
)
SCORER = DataStage(
    data.scorer,
    "datakit",
    "A quality score learned from labelled seeds: ranking and calibration on held-out seeds, and the words that weigh most.",
    frozenset({"json"}),
    (FILES,),
)
SCORES = DataStage(
    data.scores,
    "datakit",
    "The scorer's probability for every document; deciles with samples to read.",
    frozenset({"parquet", "numpy"}),
    (FILES, ATTRIBUTES),
)
CUTOFF = DataStage(
    data.score_cutoff,
    "corpora",
    "Which scores a corpus keeps that keeps a fraction of its documents: the last one that stays, by source.",
    frozenset({"json"}),
    (ROWS, FILES),
)
REPEATED_PARAGRAPHS = DataStage(
    data.paragraphs,
    "datakit",
    "Paragraphs that stand in an earlier document of the scope, as spans that the line's corpus cuts.",
    frozenset({"parquet"}),
    (ROWS, FILES),
)
CARD = DataStage(
    data.card,
    "sources",
    "A source's page: licence, pin, rows through every stage, drops by reason with samples, quality, duplicates, leaks.",
    frozenset({"markdown"}),
    (ROWS, FILES),
)
TRAJECTORIES = DataStage(
    data.trajectory_cache,
    "token_caches",
    "Tokens and mask of the held-out conversations, for evaluations of what an assistant says.",
    frozenset({"binary"}),
    (FILES, TOKENS_VALID),
)
SUITE_DESCRIPTION = "Benchmark items by content. Checkpoints are evaluated on them, and the corpus is cleaned of them."
SHOTS_DESCRIPTION = "Examples that few-shot prompts begin with: solved items that are never scored."
POLICY_DESCRIPTION = (
    "The dated evaluation policy: tasks, styles, examples, limits, seed, and when each is asked of a checkpoint."
)
EVAL_POLICY = DataStage(eval_policy, "eval_suites", POLICY_DESCRIPTION, frozenset({"json"}), (FILES,))
_CORPUS = next(stage for stage in PER_SOURCE if stage.node is data.corpus)
_OVER_EVERY_SOURCE = (data.raw, data.normalized, data.minhash, data.quality, data.quality_rules)
"""Stages that do not depend on a corpus's choice of sources: canonical for every small source, named by the line or not."""


def canonical_families(line: Line) -> Iterator[Family]:
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


def named_policy_families(line: Line) -> Iterator[Family]:
    """Contamination by every named policy, and the table that holds them against the line's own."""
    for name, policy in named_policies().items():
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
            f"Marks by the named policy {name}, to compare. {inspect.getdoc(type(policy))}",
            frozenset({"parquet"}),
            (FILES, ATTRIBUTES),
        )
        yield _of_line(index, line)
        yield _of_sources(marks, line, sources(line.sources))
    yield _of_line(COMPARISON, line)


def corpus_families(line: Line) -> Iterator[Family]:
    """What a second corpus over the sources of a canonical line adds: the corpus, and the cutoff that its filters read."""
    if line.corpus_filters.cut_paragraphs:
        yield _of_line(REPEATED_PARAGRAPHS, line)
    if line.best_scores is not None:
        yield _of_line(CUTOFF, line)
    yield _of_sources(_CORPUS, line, sources(line.sources))


def whole_line_families(line: Line) -> Iterator[Family]:
    """The assets that a canonical line has one of."""
    for stage in (*WHOLE_LINE, *([REPEATED_PARAGRAPHS] if line.corpus_filters.cut_paragraphs else [])):
        yield _of_line(_saying_what_is_left_out(stage, line), line)


def _saying_what_is_left_out(stage: DataStage, line: Line) -> DataStage:
    """The mixture of a line that a choice over its sources has narrowed says which are not in it, and why."""
    if stage.node is not data.mixture or not line.left_out:
        return stage
    reasons = "; ".join(f"{source}: {reason}" for source, reason in line.left_out)
    return replace(stage, description=f"{stage.description} Left out: {reasons}.")


def evaluation_families(line: Line) -> Iterator[Family]:
    """The policy of a line's checkpoints, and what it needs beside the suite that the corpus is cleaned of."""
    for nodes, told in ((data.suites(line)[1:], SUITE_DESCRIPTION), (data.shots(line), SHOTS_DESCRIPTION)):
        for node in nodes:
            stage = DataStage(lambda line, node=node: node, "eval_suites", told, frozenset({"parquet"}), (FILES,))
            yield _of_line(stage, line)
    yield _of_line(EVAL_POLICY, line)


def own_families(line: Line, *, has_cards: bool = False) -> Iterator[Family]:
    """The data assets of another canonical line that do not stand for every source.

    `has_cards`: another line over the same corpus has its cards, which speak of that line's tokens.
    """
    yield from canonical_per_source(line)
    if not has_cards:
        yield _of_sources(CARD, line, sources(line.sources))
    if data.trajectories(line):
        yield _of_sources(TRAJECTORIES, line, sources(line.sources))
    yield from whole_line_families(line)


def canonical_per_source(line: Line) -> Iterator[Family]:
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
) -> Iterator[Family]:
    """The data assets of a ferry: the source in the key, the day as partition.

    `example` names every source that some day may use; `line_at` reads the day's roster, which lies under the key `roster`.
    """

    def at_source(stage: DataStage, source: str) -> Callable[[Lab, str | None], Node | LeftOut]:
        def node_at(lab: Lab, day: str | None) -> Node | LeftOut:
            line = line_at(lab.ferry_store, str(day))
            used = {*line.sources, suite_raw_source(line.suite_source)}
            return stage.node(line, source) if source in used else LeftOut(f"the roster of {day} does not name {source}")

        return node_at

    def at_line(stage: DataStage) -> Callable[[Lab, str | None], Node | LeftOut]:
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


def _of_sources(stage: DataStage, line: Line, partitions_def: dg.PartitionsDefinition) -> Family:
    """A canonical asset with the source as partition."""
    example = stage.node(line, line.sources[0])
    return _family(stage, example, _at_source(stage, line), lambda lab: lab.store, partitions_def)


def _of_line(stage: DataStage, line: Line) -> Family:
    """A canonical asset that the line has one of."""
    node = stage.node(line)
    return _family(stage, node, lambda lab, partition: node, lambda lab: lab.store, None)


def _at_source(stage: DataStage, line: Line) -> Callable[[Lab, str | None], Node | LeftOut]:
    return lambda lab, source: stage.node(line, source)


def _family(
    stage: DataStage,
    example: Node,
    node_at: Callable[[Lab, str | None], Node | LeftOut],
    store_of: Callable[[Lab], Store],
    partitions_def: dg.PartitionsDefinition | None,
    group_prefix: str = "",
) -> Family:
    return Family(
        example=example,
        node_at=node_at,
        store_of=store_of,
        group=f"{group_prefix}{stage.group}",
        description=stage.description,
        kinds=stage.kinds,
        partitions_def=partitions_def,
        invariants=(SHARDS, *stage.invariants),
    )
