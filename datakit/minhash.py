"""The stage `datakit.minhash`: band hashes of every document, the candidates of fuzzy deduplication.

Two documents of word-5-gram Jaccard similarity J share at least one of 14 bands of 8 rows with probability
1 - (1 - J**8)**14: 0.92 at 0.8, 0.55 at 0.7, 0.05 at 0.5. Candidates are only looked at; `datakit.duplicates` verifies them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from datakit.documents import document_paths, iterate_part, writing_part
from datakit.shingles import batch_shingles, batches, mix
from lineage.stage import Stage
from lineage.store import Artifact, Writer

FOLDER = "minhash"
SCHEMA = pa.schema([("id", pa.string()), ("bands", pa.list_(pa.uint64())), ("num_shingles", pa.int32())])


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
    """Sign one part of the documents, a row group at a time."""
    unsigned = 0
    with writing_part(folder / FOLDER / part.name, SCHEMA) as out:
        for documents in iterate_part(part, ["id", "text"]):
            bands: list[np.ndarray | None] = []
            sizes: list[int] = []
            for batch in batches(documents["text"].to_pylist()):
                batch_bands, batch_sizes = sign_texts(batch, config)
                bands += [row if size else None for row, size in zip(batch_bands, batch_sizes, strict=True)]
                sizes += batch_sizes
            columns = [documents["id"].combine_chunks(), pa.array(bands, pa.list_(pa.uint64())), pa.array(sizes, pa.int32())]
            out.write(pa.Table.from_arrays(columns, schema=SCHEMA))
            unsigned += sizes.count(0)
    return {"rows": out.rows, "unsigned": unsigned}


def sign_texts(texts: Sequence[str], config: MinHashConfig) -> tuple[np.ndarray, list[int]]:
    """uint64 [texts, bands] and the number of distinct shingles of every text; bands of a text without any mean nothing."""
    shingles, bounds = batch_shingles(texts, config.ngram_words)
    sizes = [int(np.unique(shingles[bounds[i] : bounds[i + 1]]).size) for i in range(len(texts))]
    return band_hashes(lowest_hashes(shingles, bounds, config), config), sizes


def lowest_hashes(shingles: np.ndarray, bounds: np.ndarray, config: MinHashConfig) -> np.ndarray:
    """uint64 [texts, bands * rows]: the minima of the permuted shingles, 32 bits each (0 for a text without shingles).

    The permutations are multiply-add-shift (Dietzfelbinger et al. 1997): the high half of an odd multiple plus an offset.
    """
    multipliers, offsets = _permutations(config)
    filled = np.flatnonzero(np.diff(bounds))
    lowest = np.zeros((multipliers.size, bounds.size - 1), np.uint64)
    permuted = np.empty_like(shingles)
    for permutation in range(multipliers.size if filled.size else 0):
        np.multiply(shingles, multipliers[permutation], out=permuted)
        permuted += offsets[permutation]
        lowest[permutation, filled] = np.minimum.reduceat(permuted, bounds[filled])
    return (lowest >> np.uint64(32)).T


def band_hashes(lowest: np.ndarray, config: MinHashConfig) -> np.ndarray:
    """uint64 [texts, bands]: a hash of every band's rows, and of which band it is."""
    rows = lowest.reshape(-1, config.bands, config.rows)
    combined = np.tile(np.arange(1, config.bands + 1, dtype=np.uint64), (rows.shape[0], 1))
    for row in range(config.rows):
        combined = mix(combined * np.uint64(0x9E3779B97F4A7C15) + rows[:, :, row])
    return combined


def _permutations(config: MinHashConfig) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.Generator(np.random.PCG64(config.seed))
    count = config.bands * config.rows
    odd = generator.integers(0, 1 << 63, size=count, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return odd, generator.integers(0, 1 << 63, size=count, dtype=np.uint64)
