"""Takedown by a field of documents' metadata: an author, a document's own licence, or any other field that its source
keeps.
"""

import json

import polars as pl

from evals.audit.takedown import of_role
from lineage.artifact.store import Store
from lineage.graph.edges import LineageTables, open_all


def documents_with(store: Store, tables: LineageTables, name: str, value: str) -> tuple[str, ...]:
    """Return ids of the documents whose metadata has a field (`datakit.sources.source.Records.keep`) with exactly this
    value.

    Raises: ValueError listing the existing fields, if no document of any normalized set has it.
    """
    document_ids: set[str] = set()
    fields: set[str] = set()
    for artifact in open_all(store, of_role(tables, "normalized")):
        for path in artifact.files(".parquet", under="documents/"):
            rows = pl.read_parquet(path, columns=["id", "metadata"])
            fields |= set(json.loads(rows["metadata"][0])) if rows.height else set()
            near = rows.filter(pl.col("metadata").str.contains(json.dumps(value, ensure_ascii=False)[1:-1], literal=True))
            document_ids |= {document for document, metadata in near.iter_rows() if json.loads(metadata).get(name) == value}
    if not document_ids:
        known = ", ".join(sorted(fields)) or "none"
        raise ValueError(f"no document of {store.root} has the field {name!r} with the value {value!r}; fields seen: {known}")
    return tuple(sorted(document_ids))
