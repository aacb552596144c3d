"""The stage `datakit.semantic_duplicates`: documents that say what another one says, in other words.

SemDeDup (Abbas and others 2023, arXiv 2303.09540) with the rule of `datakit.duplicates`: documents are visited in the order
of their ids, and one is removed only for a verified match, a cosine of at least `min_cosine`, with one that stays.
Documents that `datakit.duplicates` removes do not take part.

K-means on a sample makes clusters of about `cluster_documents`, and a document is compared with those of its own cluster; a
scope of one cluster is compared as a whole. Near documents on two sides of a border are missed, so what stays is clustered a
second time by another sample (docs/recipes/deduplicate.md has the loss). Clusters are ranges of a shuffle (`lineage.tables`):
no process holds the vectors of a scope. Beyond `max_clusters` clusters grow, and beyond `max_cluster_documents` they are
cut, with a count.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from datakit.dedup.duplicates import SMALL_SCOPE_ROWS
from datakit.dedup.numbered import Numbered, numbered
from datakit.dedup.scope_parts import scope_parts, tables_of_scope
from datakit.documents.schemas import CLUSTERS_FOLDER
from datakit.semantics.centroids import BINS, Clustering, assign_part, make_centroids, sample_part
from datakit.semantics.pieces import REMOVED, ROW_BYTES, Pieces, pieces, vector_rows, walk_tasks
from datakit.semantics.removed import MOST_COSINES, example, shown_pairs, write_removed
from datakit.semantics.vectors import Scope, spill_vectors, vector_files
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import Shuffle, TableEngine, grouped, range_count
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class SemanticDuplicatesConfig:
    """The cosine at which documents say the same, and how they are clustered."""

    min_cosine: float = 0.95
    shown: tuple[float, ...] = (0.8, 0.85, 0.9, 0.95)
    """Other cosines at which removals are counted and shown, to choose by."""
    examples: int = 5
    """Pairs that are shown of each cosine."""
    cluster_documents: int = 32_768
    rounds: int = 2
    """Clusterings with borders elsewhere, one after the other: 1 or 2. A scope of one cluster needs none."""
    max_clusters: int = 4_096
    max_cluster_documents: int = 1 << 17
    """If all documents of a template lie between two of the shown cosines, a task of this size takes an hour."""
    sample_of_cluster: int = 64
    """Documents of the sample for each cluster."""
    iterations: int = 10

    def __post_init__(self) -> None:
        for name in ("cluster_documents", "max_clusters", "max_cluster_documents", "sample_of_cluster", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"semantic_duplicates.{name} is {getattr(self, name)}; it must be at least 1")
        if len(self.cosines) > MOST_COSINES:
            raise ValueError(f"semantic_duplicates has {len(self.cosines)} cosines; at most {MOST_COSINES} are shown")
        if self.rounds not in (1, 2):
            raise ValueError(f"semantic_duplicates.rounds is {self.rounds}; it is 1 or 2")
        for cosine in self.cosines:
            if not 0 < cosine <= 1:
                raise ValueError(f"semantic_duplicates: a cosine is {cosine}; min_cosine and shown are in (0, 1]")

    @property
    def cosines(self) -> tuple[float, ...]:
        """All cosines at which the walk is made, ascending."""
        return tuple(sorted({*self.shown, self.min_cosine}))

    def clusterings(self, documents: int) -> tuple[Clustering, ...]:
        """Return the clusterings of a number of documents: one cluster, or two clusterings with borders elsewhere."""
        count = max(1, min(self.max_clusters, -(-documents // self.cluster_documents)))
        share = self.sample_of_cluster * count / max(1, documents)
        first = Clustering(0, count, 0.0, min(1.0, share), self.iterations)
        if count == 1 or self.rounds == 1:
            return (first,)
        low = share if 2 * share <= 1 else 0.0
        return (first, Clustering(1, max(1, count * 5 // 8), low, min(1.0, low + share), self.iterations))


def find_semantic_duplicates(
    out: Writer,
    config: SemanticDuplicatesConfig,
    normalized: tuple[Artifact, ...],
    embeddings: tuple[Artifact, ...],
    duplicates: Artifact,
) -> None:
    """Write `semantic_duplicates/<source>/part-*.parquet` beside the documents' parts: id, kept_id ("" if the document
    stays), cosine.

    Raises: ValueError for vectors of several configs, or of other documents.
    """
    parts, texts = scope_parts(out, normalized)
    vectors = vector_files(out, embeddings, normalized, parts)
    clusters = tables_of_scope(out, duplicates, CLUSTERS_FOLDER, parts)
    scope = Scope(out.folder / SCRATCH_FOLDER, parts)
    workers = 1 if scope.rows < SMALL_SCOPE_ROWS else None
    spills = {f"spill-{p.index:06d}": (p, texts[p.index], vectors[p.index], clusters[p.index]) for p in parts}
    spilled = out.map_shards(spill_vectors, spills, workers, lazy=True)
    documents = sum(int(str(part["vectors"])) for part in spilled.values())
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    cuts, rounds = list[Pieces](), list[Numbered]()
    for by in config.clusterings(documents):
        cut, removed = _round(out, engine, config, scope, by, rounds[-1] if rounds else None, documents, workers)
        cuts.append(cut)
        rounds.append(removed)
    read = scope.reading(("ids", "rows", "vectors") if len(rounds) > 1 else ("ids",))
    arguments = read, tuple(rounds), config.cosines, config.min_cosine, config.examples
    done = out.map_shards(write_removed, {f"write-{p.index:06d}": (p, *arguments) for p in parts}, workers, lazy=True)
    totals = np.sum([part["removed"] for part in done.values()], axis=0).tolist()
    by_cosine = dict(zip(config.cosines, totals, strict=True))
    by_source = {part.source: 0 for part in parts}
    for part in parts:
        by_source[part.source] += done[f"write-{part.index:06d}"]["removed"][config.cosines.index(config.min_cosine)]
    shown = shown_pairs(config.cosines, [pair for part in done.values() for pair in part["pairs"]], config.examples)
    out.bring(*{texts[scope.part_with(number).index] for pair in shown for number in (pair.number, pair.kept)})
    out.extra["semantic_duplicates"] = {
        "documents": documents,
        "clusters": [by.clusters for by in config.clusterings(documents)],
        "giant_clusters": {"cut": sum(cut.giants for cut in cuts), "documents": sum(cut.cut for cut in cuts)},
        "removed_at": [{"cosine": cosine, "documents": total} for cosine, total in by_cosine.items()],
        "removed_by_source": by_source,
        "examples": [example(scope, texts, pair) for pair in shown],
    }
    out.record(rows_in=scope.rows, rows_out=scope.rows, semantic_duplicates=by_cosine[config.min_cosine])


SEMANTIC_DUPLICATES = Stage(
    "datakit.semantic_duplicates",
    "1",
    find_semantic_duplicates,
    description="Documents that say what another one says in other words, by the cosine of their vectors.",
    checks=("rows_conserved", "file_set"),
)


def _round(
    out: Writer,
    engine: TableEngine,
    config: SemanticDuplicatesConfig,
    scope: Scope,
    by: Clustering,
    before: Numbered | None,
    documents: int,
    workers: int | None,
) -> tuple[Pieces, Numbered]:
    """Cluster the scope and walk its clusters. Returns the tasks, and what they remove of what stayed before."""
    every = "ids", "rows", "vectors"
    samples = {f"{by.file('sample')}-{p.index:06d}": (scope.reading(every, [p]), p, by) for p in scope.parts}
    out.map_shards(sample_part, samples, workers, lazy=True)
    sampled = scope.reading((by.file("keys"), by.file("sampled")))
    out.map_shards(make_centroids, {by.file("centroids"): (sampled, by)}, 1, lazy=True)
    read = {p: scope.reading(("vectors",), [p], [by.centroids]) for p in scope.parts}
    assigned = {f"{by.file('assign')}-{p.index:06d}": (read[p], p, by) for p in scope.parts}
    out.map_shards(assign_part, assigned, workers, lazy=True)
    out.bring(scope.folder / by.file("counts"))
    cut = pieces(_counts(scope, by), config.max_cluster_documents)
    size = documents * ROW_BYTES
    arrays = "ids", "rows", "vectors", by.file("bins")
    tasks = [(scope.reading(arrays, group), cut, by, before, group) for group in grouped(scope.parts, size)]
    reduce = partial(walk_tasks, config.cosines)
    step = Shuffle(by.file("walk"), vector_rows, tasks, "task", reduce, range_count(size), spread=True)
    walked = engine.shuffle(out, step)
    return cut, numbered(out, engine, walked, REMOVED, scope.rows, by.file("removed"))


def _counts(scope: Scope, by: Clustering) -> np.ndarray:
    """Return int64 [clusters, BINS]: documents by cluster and by cosine with its centroid."""
    counts = np.zeros(by.clusters * BINS, np.int64)
    for part in scope.parts:
        bins, found = scope.load(by.file("counts"), part).T
        counts[bins] += found
    return counts.reshape(by.clusters, BINS)
