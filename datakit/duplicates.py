"""The stage `datakit.duplicates`: verified duplicate clusters across the sources of a scope.

A document leaves only for a verified match with a document that stays, so nothing is removed through a chain of
look-alikes (unverified, transitive clusters wiped whole sources out: marin#6854). Documents are walked in the order of their
ids; each is compared with the *kept* documents that share a band with it. The outcome depends on texts and on the declared
order of the sources alone, and a cluster of a million copies costs a million comparisons, not their square. Documents that
share a band with very many others and repeat none of them (a boilerplate half) would cost that square: a band keeps its
first `max_band_documents` kept documents, and a log line says when one was full.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.documents import read_documents, write_parquet
from datakit.minhash import FOLDER as MINHASH_FOLDER
from datakit.shingles import jaccard, shingle_hashes
from lineage.progress import track
from lineage.stage import Stage
from lineage.store import Artifact, Writer

log = logging.getLogger(__name__)

DUPLICATES_FILE = "duplicates.parquet"
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("id", pa.string()),
        ("cluster_id", pa.string()),
        ("kind", pa.string()),
        ("is_kept", pa.bool_()),
        ("matched_id", pa.string()),
        ("jaccard", pa.float64()),
    ]
)
CACHED_SHINGLE_SETS = 4096


@dataclass(frozen=True)
class DuplicatesConfig:
    """Word n-gram Jaccard similarity from which two documents are duplicates, and the guard against giant bands."""

    min_jaccard: float = 0.8
    ngram_words: int = 5
    max_band_documents: int = 256

    def __post_init__(self) -> None:
        if not 0 < self.min_jaccard <= 1:
            raise ValueError(f"duplicates.min_jaccard is {self.min_jaccard}; it must be in (0, 1]")
        for name in ("ngram_words", "max_band_documents"):
            if getattr(self, name) < 1:
                raise ValueError(f"duplicates.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True)
class Match:
    """A document that leaves, the kept one it repeats, and how similar they are."""

    id: str
    kept_id: str
    jaccard: float


def find_duplicates(
    out: Writer, config: DuplicatesConfig, normalized: tuple[Artifact, ...], minhash: tuple[Artifact, ...]
) -> None:
    """Write `duplicates.parquet`: a row for every document of a cluster, the kept one included; singletons have none."""
    signatures = pl.concat([read_documents(m, MINHASH_FOLDER).with_columns(order=pl.lit(i)) for i, m in enumerate(minhash)])
    names = [read_documents(n, columns=["source"])["source"][0] for n in normalized]
    exact = exact_rows(signatures, names)
    unique = signatures.sort("id", "order").unique(subset="id", keep="first", maintain_order=True)
    texts = _candidate_texts(unique, normalized)
    matches = near_matches(unique, texts, config)
    near = near_rows(matches, unique, names)
    table = merge_rows(exact, near)
    write_parquet(out.folder / DUPLICATES_FILE, table.select(SCHEMA.names).to_arrow().cast(SCHEMA))
    dropped = table.filter(~pl.col("is_kept"))
    out.extra["duplicates"] = {
        "clusters": table["cluster_id"].n_unique(),
        "exact": dropped.filter(pl.col("kind") == "exact").height,
        "near": dropped.filter(pl.col("kind") == "near").height,
        "verified_candidates": len(texts),
    }
    out.record(rows_in=signatures.height, rows_out=signatures.height - dropped.height, drops=_by_kind(dropped))


DUPLICATES = Stage("datakit.duplicates", "1", find_duplicates)


def near_matches(signatures: pl.DataFrame, texts: Mapping[str, str], config: DuplicatesConfig) -> list[Match]:
    """Every document that verifiably repeats a kept one; `signatures` has unique ids and a `bands` column."""
    kept_by_band: dict[int, list[str]] = {}
    not_listed = 0
    sets = _ShingleSets(texts, config.ngram_words)
    found = []
    rows = signatures.filter(pl.col("id").is_in(list(texts))).sort("id").select("id", "bands").iter_rows()
    for document_id, bands in track(rows, "verifying near-duplicates", len(texts)):
        candidates = sorted({kept for band in bands for kept in kept_by_band.get(band, ())})
        match = _first_match(document_id, candidates, sets, config.min_jaccard)
        if match is not None:
            found.append(match)
            continue
        for band in bands:
            listed = kept_by_band.setdefault(band, [])
            if len(listed) < config.max_band_documents:
                listed.append(document_id)
            else:
                not_listed += 1
    if not_listed:
        log.warning("bands were full %d times (max_band_documents %d): recall is lower", not_listed, config.max_band_documents)
    return found


def _first_match(document_id: str, candidates: Sequence[str], sets: "_ShingleSets", threshold: float) -> Match | None:
    """The kept candidate of the smallest id that is similar enough."""
    own = sets.of(document_id) if candidates else np.zeros(0, np.uint64)
    for candidate in candidates:
        similarity = jaccard(own, sets.of(candidate))
        if similarity >= threshold:
            return Match(document_id, candidate, similarity)
    return None


@dataclass
class _ShingleSets:
    """Shingle sets by document, the latest few kept."""

    texts: Mapping[str, str]
    words: int
    cached: OrderedDict[str, np.ndarray] = field(default_factory=OrderedDict)

    def of(self, document_id: str) -> np.ndarray:
        if document_id not in self.cached:
            self.cached[document_id] = shingle_hashes(self.texts[document_id], self.words)
            if len(self.cached) > CACHED_SHINGLE_SETS:
                self.cached.popitem(last=False)
        return self.cached[document_id]


def _candidate_texts(unique: pl.DataFrame, normalized: tuple[Artifact, ...]) -> dict[str, str]:
    """Texts of the documents that share a band with another; the others are never read."""
    bands = unique.select("id", "bands").explode("bands").drop_nulls()
    shared = bands.filter(pl.col("bands").is_duplicated())["id"].unique().sort()
    texts: dict[str, str] = {}
    for artifact in normalized:
        documents = read_documents(artifact, columns=["id", "text"]).filter(pl.col("id").is_in(shared.implode()))
        texts |= dict(documents.iter_rows())
    return texts


def exact_rows(signatures: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Rows of ids that several sources hold; the first source in the declared order keeps the document."""
    repeated = signatures.filter(pl.col("id").is_duplicated()).sort("id", "order")
    return repeated.select(
        pl.col("order").map_elements(lambda i: names[i], return_dtype=pl.String).alias("source"),
        "id",
        pl.col("id").alias("cluster_id"),
        pl.lit("exact").alias("kind"),
        (pl.col("order") == pl.col("order").min().over("id")).alias("is_kept"),
        pl.col("id").alias("matched_id"),
        pl.lit(1.0).alias("jaccard"),
    )


def near_rows(matches: Sequence[Match], unique: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Rows of near-duplicate clusters: every kept document that something repeats, and what repeats it."""
    order_of = dict(unique.select("id", "order").iter_rows())
    kept = sorted({match.kept_id for match in matches})
    rows = [(names[order_of[k]], k, k, "near", True, k, 1.0) for k in kept]
    rows += [(names[order_of[m.id]], m.id, m.kept_id, "near", False, m.kept_id, m.jaccard) for m in matches]
    return pl.DataFrame(rows, schema=_polars_schema(), orient="row")


def merge_rows(exact: pl.DataFrame, near: pl.DataFrame) -> pl.DataFrame:
    """One row a (source, document). A copy of a document that is itself dropped as near is dropped with it."""
    near_drop = near.filter(~pl.col("is_kept")).select(
        "id", pl.col("matched_id").alias("near_kept"), pl.col("jaccard").alias("near_j")
    )
    joined = exact.join(near_drop, on="id", how="left")
    exact = joined.select(
        "source",
        "id",
        pl.coalesce("near_kept", "cluster_id").alias("cluster_id"),
        pl.when(pl.col("near_kept").is_not_null()).then(pl.lit("near")).otherwise("kind").alias("kind"),
        (pl.col("is_kept") & pl.col("near_kept").is_null()).alias("is_kept"),
        pl.coalesce("near_kept", "matched_id").alias("matched_id"),
        pl.coalesce("near_j", "jaccard").alias("jaccard"),
    )
    rest = near.join(exact.select("source", "id"), on=["source", "id"], how="anti")
    return pl.concat([exact, rest]).sort("cluster_id", "id", "source")


def _by_kind(dropped: pl.DataFrame) -> dict[str, int]:
    return {f"{kind}_duplicate": count for kind, count in dropped.group_by("kind").len().sort("kind").iter_rows()}


def _polars_schema() -> dict[str, pl.DataType]:
    empty = pl.from_arrow(SCHEMA.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)
