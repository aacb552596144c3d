"""Check that deduplication wiped out no source: the share of removed documents, the worst cluster, samples.

Fuzzy deduplication fails by removing too much (median 76 % of a source, 15 of 113 sources above 95 %: marin#6854). A
count of drops alone does not show this. So a source that loses more than the declared share of its scope blocks what
builds on it, and the finding shows sample texts and what they were taken to repeat.

A source can also be wiped out before deduplication: if a million records name the wrong text field (a licence, a
placeholder), normalization keeps one document and counts the rest as copies.
"""

from collections.abc import Iterator

import polars as pl

from datakit.dedup.duplicates import DuplicatesConfig
from datakit.documents.drop_samples import EXACT_DUPLICATE
from datakit.documents.parts import document_paths, texts_of
from datakit.documents.parts_of_tasks import rows_of_parts, source_of
from datakit.documents.schemas import DUPLICATES_FILE
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable

OWN = "normalized"
"""The input that has the documents of the scope itself; those of earlier scopes are only repeated."""
SAMPLES = 2
SAMPLE_CHARS = 100


def check_removal_rates(duplicates: Artifact) -> list[str]:
    """Return a violation for every source that loses more than `max_removed_share` of its documents, copies within the
    source included.

    Documents and copies within a source are counted by the manifest of normalization: no document is fetched, except for
    samples of a violation.
    """
    bound = from_jsonable(DuplicatesConfig, duplicates.spec.config).max_removed_share
    sources, every = documents_of(duplicates), documents_of(duplicates, OWN, "earlier_normalized")
    table = pl.scan_parquet(duplicates.file(DUPLICATES_FILE))
    gone = table.filter(~pl.col("is_kept"))
    removed = dict(gone.group_by("source").len().collect(engine="streaming").iter_rows())
    violations = []
    for name, artifact in sources.items():
        copies = int(dict(artifact.manifest.statistics.get("drops") or {}).get(EXACT_DUPLICATE, 0))
        rows = copies + sum(rows_of_parts(artifact).values())
        count = copies + removed.get(name, 0)
        if rows and count / rows > bound:
            remarks = (
                [f"{copies:,} are copies within the source (dropped.parquet of {artifact.name} has some)"] if copies else []
            )
            if count > copies:
                remarks += _worst_cluster(gone.filter(pl.col("source") == name), artifact, every, table)
            share = f"{count / rows:.1%}, bound {bound:.0%}"
            violations.append(f"{name}: {count:,} of {rows:,} documents are removed ({share}); {'; '.join(remarks)}")
    return violations


def documents_of(scope: Artifact, *inputs: str) -> dict[str, Artifact]:
    """Return source -> its documents, in the declared order, of an artifact that was made from those of several sources.

    `inputs` names the inputs that have them; none: the documents of the scope's own sources.
    """
    parents = zip(scope.store.parents(scope), scope.spec.inputs, strict=True)
    normalized = [parent for parent, ref in parents if ref.name.partition(".")[0] in (inputs or (OWN,))]
    return {source_of(artifact): artifact for artifact in normalized}


def _worst_cluster(gone: pl.LazyFrame, documents: Artifact, sources: dict[str, Artifact], table: pl.LazyFrame) -> Iterator[str]:
    """Describe the cluster that removed most of a source: the document it keeps and some that it removed."""
    sizes = gone.group_by("cluster_id").len().sort(["len", "cluster_id"], descending=[True, False]).limit(1)
    cluster, size = sizes.collect(engine="streaming").row(0)
    keeper = table.filter((pl.col("id") == cluster) & pl.col("is_kept")).select("source").collect(engine="streaming").item(0, 0)
    kept = text_beginning(sources[keeper], cluster)
    yield f"its largest cluster took {size:,} for {cluster} of {keeper} ({kept!r})"
    taken = gone.filter(pl.col("cluster_id") == cluster).select("id", "kind", "jaccard").limit(SAMPLES)
    for document, kind, jaccard in taken.collect(engine="streaming").iter_rows():
        yield f"{document} ({kind}, Jaccard {jaccard:.2f}: {text_beginning(documents, document)!r})"


def text_beginning(documents: Artifact, document: str) -> str:
    """Return the beginning of a document's text."""
    return texts_of(document_paths(documents), [document])[document][:SAMPLE_CHARS]
