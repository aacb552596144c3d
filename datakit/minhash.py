"""The stage `datakit.minhash`: band hashes of every document, the candidates of fuzzy deduplication.

Two documents of word-5-gram Jaccard similarity J share at least one of 14 bands of 8 rows with probability
1 - (1 - J**8)**14: 0.92 at 0.8, 0.55 at 0.7, 0.05 at 0.5. Candidates are only looked at; `datakit.duplicates` verifies them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.documents import document_paths, write_parquet
from datakit.shingles import mix, shingle_hashes
from lineage.plan import Stage
from lineage.store import Artifact, Writer

FOLDER = "minhash"
SCHEMA = pa.schema([("id", pa.string()), ("bands", pa.list_(pa.uint64())), ("num_shingles", pa.int32())])
CHUNK_SHINGLES = 1 << 14


@dataclass(frozen=True)
class MinHashConfig:
    """Bands times rows hashes over word n-grams."""

    bands: int = 14
    rows: int = 8
    ngram_words: int = 5
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("bands", "rows", "ngram_words"):
            if getattr(self, name) < 1:
                raise ValueError(f"minhash.{name} is {getattr(self, name)}; it must be at least 1")


def sign_documents(out: Writer, config: MinHashConfig, normalized: Artifact) -> None:
    """Write `minhash/part-*.parquet` beside the documents' parts: same names, same ids, same order."""
    tasks = {path.stem: (path, config) for path in document_paths(normalized)}
    done = out.map_shards(sign_part, tasks)
    rows = sum(int(str(s["rows"])) for s in done.values())
    out.record(rows_in=rows, rows_out=rows, too_short_to_sign=sum(int(str(s["unsigned"])) for s in done.values()))


MINHASH = Stage("datakit.minhash", "1", sign_documents)


def sign_part(folder: Path, part: Path, config: MinHashConfig) -> dict[str, int]:
    """Sign one part of the documents."""
    documents = pl.read_parquet(part, columns=["id", "text"])
    multipliers, offsets = _permutations(config)
    bands, sizes = [], []
    for text in documents["text"]:
        shingles = shingle_hashes(text, config.ngram_words)
        sizes.append(int(shingles.size))
        bands.append(band_hashes(shingles, multipliers, offsets, config) if shingles.size else None)
    table = pa.Table.from_arrays(
        [documents["id"].to_arrow().cast(pa.string()), pa.array(bands, pa.list_(pa.uint64())), pa.array(sizes, pa.int32())],
        schema=SCHEMA,
    )
    write_parquet(folder / FOLDER / part.name, table)
    return {"rows": documents.height, "unsigned": sum(size == 0 for size in sizes)}


def band_hashes(shingles: np.ndarray, multipliers: np.ndarray, offsets: np.ndarray, config: MinHashConfig) -> np.ndarray:
    """uint64 [bands] of a document's shingle hashes (multiply-add-shift permutations, Dietzfelbinger et al. 1997)."""
    lowest = np.full(multipliers.size, np.iinfo(np.uint32).max, dtype=np.uint32)
    for start in range(0, shingles.size, CHUNK_SHINGLES):
        chunk = shingles[start : start + CHUNK_SHINGLES]
        permuted = (multipliers[:, None] * chunk[None, :] + offsets[:, None]) >> np.uint64(32)
        np.minimum(lowest, permuted.min(axis=1).astype(np.uint32), out=lowest)
    rows = lowest.reshape(config.bands, config.rows).astype(np.uint64)
    combined = np.arange(1, config.bands + 1, dtype=np.uint64)
    for row in range(config.rows):
        combined = mix(combined * np.uint64(0x9E3779B97F4A7C15) + rows[:, row])
    return combined


def _permutations(config: MinHashConfig) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.Generator(np.random.PCG64(config.seed))
    count = config.bands * config.rows
    odd = generator.integers(0, 1 << 63, size=count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return odd, generator.integers(0, 1 << 63, size=count, dtype=np.uint64)
