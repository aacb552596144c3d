"""Check that containment wiped out no source: the share of its documents that duplicates and containers take, with samples.

A source of short documents may lie inside a large one (quotations, docstrings and their files). That may be wanted, but it must
not go unseen: see `datakit.removal_rates`, which checks duplicates alone.
"""

from pathlib import Path

import polars as pl

from datakit.dedup.containment_candidates import ContainmentConfig
from datakit.documents.parts_of_tasks import rows_of_parts
from datakit.documents.schemas import CLUSTERS_FOLDER, CONTAINED_FOLDER
from datakit.removal_rates import SAMPLES, documents_of, text_beginning
from lineage.artifact.store import Artifact
from lineage.config import from_jsonable


def check_contained_rates(containment: Artifact) -> list[str]:
    """Return a violation for every source that loses more than `max_removed_share` of its documents to containers and
    duplicates. Documents are counted by the manifest.
    """
    bound = from_jsonable(ContainmentConfig, containment.spec.config).max_removed_share
    sources = documents_of(containment)
    duplicates = containment.input("duplicates").below(CLUSTERS_FOLDER)
    violations = []
    for source in sources:
        contained, copies = containment.below(f"{CONTAINED_FOLDER}/{source}"), duplicates / source
        rows = sum(rows_of_parts(containment, f"{CONTAINED_FOLDER}/{source}").values())
        inside = _count(contained, pl.col("container") != "")
        removed = inside + _count(copies, ~pl.col("is_kept"))
        if inside and removed / rows > bound:
            share = f"{removed / rows:.1%}, bound {bound:.0%}"
            samples = "; ".join(_samples(contained, source, sources))
            violations.append(
                f"{source}: {removed:,} of {rows:,} documents are removed ({share}), {inside:,} inside others: {samples}"
            )
    return violations


def _count(folder: Path, rows: pl.Expr) -> int:
    return int(pl.scan_parquet(folder / "*.parquet").filter(rows).select(pl.len()).collect(engine="streaming").item())


def _samples(folder: Path, source: str, sources: dict[str, Artifact]) -> list[str]:
    """Describe some documents of a source that lie inside others."""
    inside = pl.scan_parquet(folder / "*.parquet").filter(pl.col("container") != "").limit(SAMPLES).collect()
    return [
        f"{document} ({share:.0%} in {container}, {text_beginning(sources[source], document)!r})"
        for document, container, share in inside.iter_rows()
    ]
