"""What the stages found in a large corpus beside what was planted, by a slow counter that shares no code with them.

Words are runs of letters and digits of the text in NFKC, case folded. Shingles are tuples of words in Python sets. A pair is
a planted copy that is not exact and the document that it copies: it shares a band by the signatures on storage, it is found
if not both of it stay.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean

import polars as pl

from datakit.dedup.minhash import MinHashConfig
from datakit.documents.parts import document_paths
from datakit.documents.schemas import DUPLICATES_FILE
from lineage.artifact.store import Artifact

WORD = re.compile(r"[^\W_]+")
SIGNED = MinHashConfig()
BINS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
POOLED_FROM, REPEATS_FROM, UNRELATED_BELOW = 0.85, 0.75, 0.3
UNRELATED_DOCUMENTS = 500
SAMPLED_BY = 3
type Shingles = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Pair:
    """A planted copy and its original."""

    jaccard: float
    shares_band: bool
    found: bool


@dataclass(frozen=True)
class Judged:
    """What came out, of a sample where there is more."""

    pairs: Sequence[Pair]
    removed: Sequence[float]
    """Similarity of each removed near-duplicate to the kept document of its cluster."""

    strangers: int
    """Removed near-duplicates of all, whose kept document is of another planted family."""

    unrelated: Sequence[float]
    """Similarities of documents that copy nothing to each other."""

    exact_left: int
    """Exact copies that normalization left."""

    documents: int
    kept: int
    kept_bytes: int
    sizes: pl.Series
    """Copies of each document that has some."""

    def recall(self) -> float:
        """Return the share of pairs of [.85, 1) that are found; `nan` without pairs."""
        found = [pair.found for pair in self.pairs if POOLED_FROM <= pair.jaccard < 1]
        return fmean(found) if found else math.nan

    def precision(self) -> float:
        """Return the share of removed near-duplicates that repeat what stays; `nan` without any."""
        return fmean(similarity >= REPEATS_FROM for similarity in self.removed) if self.removed else math.nan


def shingles_of(text: str, words: int = SIGNED.ngram_words) -> Shingles:
    """Return every run of so many words."""
    found = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return frozenset(zip(*(found[start:] for start in range(words)), strict=False))


def jaccard(a: Shingles, b: Shingles) -> float:
    """Return the share of the union that both have; 0 if both are empty."""
    both = len(a & b)
    return both / (len(a) + len(b) - both) if a or b else 0.0


def theory(similarity: float, signed: MinHashConfig = SIGNED) -> float:
    """Return the probability that two documents share a band."""
    return 1 - (1 - similarity**signed.rows) ** signed.bands


def judge(truth: Path, made: Mapping[str, Artifact], most: int) -> Judged:
    """Compare what the stages made with the files of `generated_text.TRUTH`; at most so many pairs and removed documents."""
    origins = pl.read_parquet(truth / "*.parquet").with_columns(family=pl.coalesce("of", "number")).rename({"id": "source"})
    documents = pl.concat(map(_sources, document_paths(made["normalized"]))).join(origins, on="source")
    rows = pl.read_parquet(made["duplicates"].file(DUPLICATES_FILE), columns=["id", "cluster_id", "kind", "is_kept"])
    originals = documents.select(of="number", other="source", other_id="id")
    pairs = _sampled(documents.filter(pl.col("edited") > 0).join(originals, on="of"), most)
    bands = _bands(made["minhash"], {*pairs["id"], *pairs["other_id"]})
    removed_ids = set(rows.filter(~pl.col("is_kept"))["id"])
    judged = [
        Pair(similarity, not bands[a].isdisjoint(bands[b]), a in removed_ids or b in removed_ids)
        for similarity, a, b in zip(_similarities(made["raw"], pairs), pairs["id"], pairs["other_id"], strict=True)
    ]
    kept = documents.select(cluster_id="id", other="source", other_family="family")
    near = rows.filter((pl.col("kind") == "near") & ~pl.col("is_kept")).join(documents, on="id").join(kept, on="cluster_id")
    corpus = made["corpus"].manifest.statistics
    return Judged(
        pairs=judged,
        removed=list(_similarities(made["raw"], _sampled(near, most))),
        strangers=near.filter(pl.col("family") != pl.col("other_family")).height,
        unrelated=_unrelated(made["raw"], documents.filter(pl.col("of").is_null())["source"]),
        exact_left=documents.filter(pl.col("edited") == 0).height,
        documents=origins.height,
        kept=int(corpus["rows_out"]),
        kept_bytes=int(corpus["bytes_out"]),
        sizes=origins["of"].drop_nulls().value_counts()["count"],
    )


def recall_table(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield the rows of a table by similarity, with what the preset's theory says."""
    yield "| Jaccard | pairs | mean | theory | share a band | found |"
    yield "|---|---|---|---|---|---|"
    for low, high, own in _binned(pairs):
        expected, shared, found = (100 * fmean(values) for values in _of_bin(own))
        mean = fmean(pair.jaccard for pair in own)
        yield f"| {low:g} to {high:g} | {len(own):,} | {mean:.3f} | {expected:.2f} % | {shared:.2f} % | {found:.2f} % |"


def off_theory(pairs: Sequence[Pair]) -> float:
    """Return by how many standard errors the share of a bin is off the theory, at most; a point of each bin is allowed."""
    most = 0.0
    for _, _, own in _binned(pairs):
        expected, shared, _ = _of_bin(own)
        error = math.sqrt(sum(p * (1 - p) for p in expected)) / len(own)
        most = max(most, (abs(fmean(shared) - fmean(expected)) - 0.01) / max(error, 1e-9))
    return most


def _binned(pairs: Sequence[Pair]) -> Iterator[tuple[float, float, Sequence[Pair]]]:
    for low, high in pairwise(BINS):
        if own := [pair for pair in pairs if low <= pair.jaccard < high]:
            yield low, high, own


def _of_bin(pairs: Sequence[Pair]) -> tuple[list[float], list[bool], list[bool]]:
    return [theory(p.jaccard) for p in pairs], [p.shares_band for p in pairs], [p.found for p in pairs]


def _sampled(pairs: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return at most so many rows, those of one `other` together."""
    return pairs.sort("source").sample(min(most, pairs.height), seed=SAMPLED_BY).sort("other", "source")


def _sources(part: Path) -> pl.DataFrame:
    source = pl.col("metadata").str.json_path_match("$.source_id")
    return pl.read_parquet(part, columns=["id", "metadata"]).select("id", source=source)


def _bands(signatures: Artifact, ids: Iterable[str]) -> dict[str, set[int]]:
    wanted = pl.Series(sorted(ids), dtype=pl.String).implode()
    bands: dict[str, set[int]] = {}
    for part in document_paths(signatures, "minhash"):
        own = pl.read_parquet(part, columns=["id", "bands"]).filter(pl.col("id").is_in(wanted))
        bands |= {document: set(values or ()) for document, values in own.iter_rows()}
    return bands


def _similarities(raw: Artifact, pairs: pl.DataFrame) -> Iterator[float]:
    """Yield the similarity of `source` and `other` of each row."""
    texts = _texts(raw, pl.concat([pairs["source"], pairs["other"]]))
    held, of_held = "", frozenset[tuple[str, ...]]()
    for source, other in pairs.select("source", "other").iter_rows():
        if other != held:
            held, of_held = other, shingles_of(texts[other])
        yield jaccard(shingles_of(texts[source]), of_held)


def _unrelated(raw: Artifact, sources: pl.Series) -> list[float]:
    chosen = sources.sort().sample(min(UNRELATED_DOCUMENTS, sources.len()), seed=SAMPLED_BY)
    sets = [shingles_of(text) for text in _texts(raw, chosen).values()]
    return [jaccard(a, b) for a, b in combinations(sets, 2)]


def _texts(raw: Artifact, sources: pl.Series) -> dict[str, str]:
    """Return texts by the name that their record has (`part-row`)."""
    texts: dict[str, str] = {}
    named = pl.DataFrame({"id": sources.unique()}).with_columns(part=pl.col("id").str.split("-").list.first().cast(pl.Int64))
    for (part,), own in named.group_by("part"):
        table = pl.read_parquet(raw.folder() / "files" / f"part-{part:05d}.parquet")
        texts |= dict(table.join(own, on="id", how="semi").select("id", "text").iter_rows())
    return texts
