"""The stage `datakit.corpus`: documents that survive the declared filters, split into train and held-out.

This join is the only full rewrite of text. Each filter is an attribute table keyed by id, so a threshold or a policy may
change without recomputing what it reads. The first filter that applies names the drop. Held-out documents are chosen by a
hash of their duplicate cluster, so copies never stand on both sides.
"""

from dataclasses import dataclass

import polars as pl
import xxhash

from datakit.documents import read_documents, write_parquet, write_sorted_parts
from datakit.duplicates import DUPLICATES_FILE
from datakit.quality import FOLDER as QUALITY_FOLDER
from datakit.schemas import CORPUS_DROPPED_SCHEMA, DOCUMENT_SCHEMA
from lineage.stage import Stage
from lineage.store import Artifact, Writer

TRAIN = "train"
HELDOUT = "heldout"
MARKS_FOLDER = "marks"
HASH_RANGE = 1 << 64


@dataclass(frozen=True)
class CorpusConfig:
    """Which filters apply, and the held-out share."""

    drop_duplicates: bool = True
    drop_contaminated: bool = True
    drop_low_quality: bool = True
    heldout_frac: float = 0.02
    split_salt: str = "heldout-1"

    def __post_init__(self) -> None:
        if not 0 <= self.heldout_frac < 1:
            raise ValueError(f"corpus.heldout_frac is {self.heldout_frac}; it must be in [0, 1)")


def build_corpus(
    out: Writer,
    config: CorpusConfig,
    normalized: Artifact,
    quality: Artifact,
    contamination: Artifact,
    duplicates: Artifact,
) -> None:
    """Write `train/` and `heldout/` parts and `dropped.parquet` (every drop). Raises ValueError when nothing is left."""
    documents = read_documents(normalized)
    source = str(documents["source"][0])
    reasons = drop_reasons(documents, source, config, quality, contamination, duplicates)
    kept = documents.join(reasons, on="id", how="left", maintain_order="left", validate="1:1")
    dropped = kept.filter(pl.col("reason") != "")
    survivors = kept.filter(pl.col("reason") == "")
    drops = dict(dropped.group_by("reason").len().sort("reason").iter_rows())
    in_heldout = survivors["split_key"].map_elements(lambda key: is_heldout(key, config), return_dtype=pl.Boolean)
    train, heldout = survivors.filter(~in_heldout), survivors.filter(in_heldout)
    if not train.height:
        raise ValueError(f"{out.spec.name}: no document of {documents.height} is left to train on; dropped: {drops}")
    for split, frame in ((TRAIN, train), (HELDOUT, heldout)):
        write_sorted_parts(out.folder, split, frame.select(DOCUMENT_SCHEMA.names))
    write_parquet(out.folder / "dropped.parquet", dropped.select("id", "reason").to_arrow().cast(CORPUS_DROPPED_SCHEMA))
    out.facts["corpus"] = {"source": source, "domain": normalized.manifest.extra["documents"]["domain"]}
    out.record(
        rows_in=documents.height,
        rows_out=survivors.height,
        rows_train=train.height,
        rows_heldout=heldout.height,
        drops=drops,
        bytes_in=int(documents["text"].str.len_bytes().sum()),
        bytes_out=int(survivors["text"].str.len_bytes().sum()),
    )


CORPUS = Stage("datakit.corpus", "1", build_corpus)


def drop_reasons(
    documents: pl.DataFrame,
    source: str,
    config: CorpusConfig,
    quality: Artifact,
    contamination: Artifact,
    duplicates: Artifact,
) -> pl.DataFrame:
    """id, the first reason to drop it ("" for none), and the key that decides its split.

    Raises: ValueError when an attribute table's ids are not the documents'.
    """
    verdict = _aligned(read_documents(quality, QUALITY_FOLDER), documents, quality)
    marks = _aligned(read_documents(contamination, MARKS_FOLDER), documents, contamination)
    clusters = pl.read_parquet(duplicates.files(DUPLICATES_FILE)[0]).filter(pl.col("source") == source)
    strangers = clusters.join(documents.select("id"), on="id", how="anti").height
    if strangers:
        raise ValueError(f"{duplicates.name} names {strangers} documents of {source} that are not there; it is stale")
    joined = (
        documents.select("id")
        .join(verdict.select("id", low_quality="reason"), on="id", how="left", validate="1:1")
        .join(marks.select("id", "contaminated"), on="id", how="left", validate="1:1")
        .join(clusters.select("id", "cluster_id", "is_kept"), on="id", how="left", validate="1:1")
    )
    repeated = pl.lit(config.drop_duplicates) & ~pl.col("is_kept").fill_null(True)
    contaminated = pl.lit(config.drop_contaminated) & pl.col("contaminated")
    poor = pl.lit(config.drop_low_quality) & (pl.col("low_quality") != "")
    reason = (
        pl.when(repeated)
        .then(pl.lit("duplicate"))
        .when(contaminated)
        .then(pl.lit("contaminated"))
        .when(poor)
        .then(pl.concat_str(pl.lit("low_quality:"), "low_quality"))
        .otherwise(pl.lit(""))
    )
    return joined.select("id", reason=reason, split_key=pl.coalesce("cluster_id", "id"))


def _aligned(attributes: pl.DataFrame, documents: pl.DataFrame, artifact: Artifact) -> pl.DataFrame:
    if not attributes["id"].equals(documents["id"]):
        raise ValueError(
            f"{artifact.name} has {attributes.height} rows for {documents.height} documents, or other ids; it was made from "
            "other documents: materialize it again"
        )
    return attributes


def is_heldout(split_key: str, config: CorpusConfig) -> bool:
    """Whether a cluster (or a document without one) is held out: a salted hash below the share."""
    return xxhash.xxh3_64_intdigest(f"{config.split_salt}:{split_key}") < config.heldout_frac * HASH_RANGE
