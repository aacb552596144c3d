"""The stage `labels.documents`: a model's label of some documents of a source, with its own words."""

from collections import Counter

import polars as pl

from datakit.documents.parts import first_documents
from datakit.quality.labels import LABELS_FILE
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer
from post_training.labels.spec import LabelsConfig


def label_documents(out: Writer, config: LabelsConfig, normalized: Artifact, model: Artifact | None = None) -> None:
    """Write `labels.parquet` (`datakit.quality.labels.LABELS_SCHEMA`), by id. Units that were answered before a kill are kept.

    `model`: the checkpoint that the URL must serve; without it the model is known by name and reported version alone.
    Raises: ValueError if the URL serves another checkpoint, if the model's version changes, or if no document gets a label.
    """
    from post_training.labels.asking import ask_unit, prior_of
    from post_training.synthetic.teacher import one_version, served_version  # it loads JAX, unlike the graph

    served = served_version(config.model, config.name, None if model is None else model.data_version)
    documents = [(identity, text[: config.max_chars]) for identity, text in first_documents(normalized, config.max_documents)]
    starts = range(0, len(documents), config.unit_documents)
    stops = [min(start + config.unit_documents, len(documents)) for start in starts]
    units = {f"unit-{start:08d}-{stop:08d}": documents[start:stop] for start, stop in zip(starts, stops, strict=True)}
    prior = prior_of(config)
    asked = out.map_shards(ask_unit, {name: (config, unit, prior) for name, unit in units.items()}, workers=1)
    version = one_version(out.spec.name, served, (each for unit in asked.values() for each in unit["versions"]))
    paths = [out.folder / SCRATCH_FOLDER / f"{unit[0][0]}.parquet" for unit in units.values()]
    rows = pl.concat([pl.read_parquet(path) for path in paths])
    labels, faults = Counter(rows["label"].drop_nulls()), Counter(f.partition(":")[0] for f in rows["fault"] if f)
    if not labels:
        raise ValueError(f"{out.spec.name}: none of {rows.height} documents got a label: {dict(faults)}")
    rows.write_parquet(out.folder / LABELS_FILE, compression="zstd")
    out.extra["labels"] = {
        "name": config.name,
        "model": config.model.model,
        "version": version,
        "known_by": "url" if model is None else "checkpoint",
        "prompt": text_digest(config.prompt),
        "reading": config.reading,
        "prior": prior,
        "labels": {answer: labels[answer] for answer in config.answers},
        "faults": dict(faults.most_common()),
    }
    out.record(rows_in=rows.height, rows_out=labels.total(), drops=dict(faults.most_common()))


LABELS = Stage(
    "labels.documents",
    "1",
    label_documents,
    description="A model's label of some documents of a source, with its own words; the prompt and the model are recorded.",
    checks=("file_set", "rows_conserved"),
)
