"""The stage `datakit.semantic_duplicates`: documents that say what another one says, in other words.

SemDeDup (Abbas and others 2023, arXiv 2303.09540) with the rule of `datakit.duplicates`: documents are visited in the order
of their ids, and one is removed only for a verified match, a cosine of at least `min_cosine`, with one that stays.
Documents that `datakit.duplicates` removes do not take part.

K-means on a sample makes clusters of about `cluster_documents`, and a document is compared with those of its own cluster.
So near documents on two sides of a border are missed (docs/recipes/deduplicate.md has the loss). A scope of one cluster is
compared as a whole. Clusters are ranges of a shuffle (`lineage.tables`): no process holds the vectors of a scope. Beyond
`max_clusters` clusters grow, and beyond `max_cluster_documents` they are cut, with a count.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from datakit.dedup.duplicates import SMALL_SCOPE_ROWS
from datakit.dedup.numbered import numbered
from datakit.semantics.centroids import BINS, assign_part, make_centroids
from datakit.semantics.pieces import REMOVED, ROW_BYTES, pieces, vector_rows, walk_tasks
from datakit.semantics.removed import examples, write_removed
from datakit.semantics.vectors import Scope, spill_vectors, vector_parts
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.tables.local import LocalEngine
from lineage.tables.shuffle import Shuffle, grouped, range_count
from lineage.writing.writer import Writer


@dataclass(frozen=True)
class SemanticDuplicatesConfig:
    """The cosine at which documents say the same, and how they are clustered."""

    min_cosine: float = 0.95
    shown: tuple[float, ...] = (0.8, 0.85, 0.9, 0.95)
    """Other cosines at which removals are counted and shown, to choose by."""
    examples: int = 5
    """Pairs that are shown of each cosine."""
    cluster_documents: int = 4_096
    max_clusters: int = 4_096
    max_cluster_documents: int = 1 << 16
    """If all documents of a template lie between two of the shown cosines, a task of this size takes a quarter of an hour."""
    sample_of_cluster: int = 64
    """Documents of the sample for each cluster."""
    iterations: int = 10

    def __post_init__(self) -> None:
        for name in ("cluster_documents", "max_clusters", "max_cluster_documents", "sample_of_cluster", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"semantic_duplicates.{name} is {getattr(self, name)}; it must be at least 1")
        for cosine in self.cosines:
            if not 0 < cosine <= 1:
                raise ValueError(f"semantic_duplicates: a cosine is {cosine}; min_cosine and shown are in (0, 1]")

    @property
    def cosines(self) -> tuple[float, ...]:
        """All cosines at which the walk is made, ascending."""
        return tuple(sorted({*self.shown, self.min_cosine}))

    def clusters(self, documents: int) -> int:
        """Return how many clusters a number of documents gets."""
        return max(1, min(self.max_clusters, -(-documents // self.cluster_documents)))


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
    scope = Scope(out.folder / SCRATCH_FOLDER, vector_parts(normalized, embeddings, duplicates))
    workers = 1 if scope.rows < SMALL_SCOPE_ROWS else None
    spilled = out.map_shards(spill_vectors, {f"spill-{p.index:06d}": (p,) for p in scope.parts}, workers)
    documents = sum(int(str(part["vectors"])) for part in spilled.values())
    count = config.clusters(documents)
    share = min(1.0, config.sample_of_cluster * count / max(1, documents))
    made = out.map_shards(make_centroids, {"centroids": (scope, count, share, config.iterations)}, 1)
    out.map_shards(assign_part, {f"assign-{p.index:06d}": (scope, p) for p in scope.parts}, workers)
    cut = pieces(_counts(scope, count), config.max_cluster_documents)
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    size = documents * ROW_BYTES
    tasks = [(scope, cut, group) for group in grouped(scope.parts, size)]
    reduce = partial(walk_tasks, config.cosines)
    walked = engine.shuffle(out, Shuffle("walk", vector_rows, tasks, "task", reduce, range_count(size), spread=True))
    removed = numbered(out, engine, walked, REMOVED, scope.rows, scope.folder, "removed")
    arguments = scope, removed, config.cosines, config.min_cosine, config.examples
    done = out.map_shards(write_removed, {f"write-{p.index:06d}": (p, *arguments) for p in scope.parts}, workers)
    totals = np.sum([part["removed"] for part in done.values()], axis=0).tolist()
    by_cosine = dict(zip(config.cosines, totals, strict=True))
    by_source = {part.source: 0 for part in scope.parts}
    for part, written in zip(scope.parts, (done[f"write-{p.index:06d}"] for p in scope.parts), strict=True):
        by_source[part.source] += written["removed"][config.cosines.index(config.min_cosine)]
    out.extra["semantic_duplicates"] = {
        "documents": documents,
        "clusters": count,
        "sampled": next(iter(made.values()))["sampled"],
        "giant_clusters": {"cut": cut.giants, "documents": cut.cut},
        "removed_at": [{"cosine": cosine, "documents": total} for cosine, total in by_cosine.items()],
        "removed_by_source": by_source,
        "examples": examples(scope, config.cosines, [part["pairs"] for part in done.values()], config.examples),
    }
    out.record(rows_in=scope.rows, rows_out=scope.rows, semantic_duplicates=by_cosine[config.min_cosine])


SEMANTIC_DUPLICATES = Stage(
    "datakit.semantic_duplicates",
    "1",
    find_semantic_duplicates,
    description="Documents that say what another one says in other words, by the cosine of their vectors.",
    checks=("rows_conserved", "file_set"),
)


def _counts(scope: Scope, clusters: int) -> np.ndarray:
    """Return int64 [clusters, BINS]: documents by cluster and by cosine with its centroid."""
    counts = np.zeros(clusters * BINS, np.int64)
    for part in scope.parts:
        bins, found = scope.load("counts", part).T
        counts[bins] += found
    return counts.reshape(clusters, BINS)
