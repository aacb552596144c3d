"""Labels that a model gave to documents: the table of an artifact `labels.documents`, and what is learned from it.

`post_training.labels` asks the model; here its artifact is read by role.
"""

import polars as pl

from datakit.documents.parts import document_paths, texts_of
from lineage.artifact.store import Artifact

LABELS_FILE = "labels.parquet"
LABELS_SCHEMA = {
    "id": pl.String,
    "label": pl.String,
    "probability": pl.Float64,
    "words": pl.String,
    "fault": pl.String,
}
"""A row for each document that was asked about. `label` is null if `fault` says why there is none. `probability` is the
label's among the allowed answers, null where the model stated its answer. `words` are the model's own, or the probability of
every allowed answer as JSON."""


def read_labelled(labels: Artifact, name: str, source: str) -> pl.DataFrame:
    """Return `id`, `label` and the whole `text` of the documents with a label, by id.

    Raises: ValueError if the artifact has other labels than `name`, or those of another source.
    """
    found, place = labels.spec.config["name"], labels.input("normalized").spec.config["source"]
    if (found, place) != (name, source):
        raise ValueError(f"{labels.name} has labels {found!r} of source {place}; wanted are labels {name!r} of source {source}")
    rows = pl.read_parquet(labels.file(LABELS_FILE)).filter(pl.col("label").is_not_null()).select("id", "label").sort("id")
    texts = texts_of(document_paths(labels.input("normalized")), rows["id"])
    return rows.with_columns(text=pl.Series([texts[identity] for identity in rows["id"]], dtype=pl.String))
