"""The stage `datakit.minhash`: band hashes of every document, the candidates of fuzzy deduplication.

Two documents of word-5-gram Jaccard similarity J share at least one of b bands of r rows with probability 1 - (1 - J**r)**b.
Candidates are only looked at; `datakit.duplicates` verifies them. Presets, and that probability:

| preset | J = .95 | .9 | .8 | .7 | .5 | for |
|---|---|---|---|---|---|---|
| 14x8 | 1.000 | 1.000 | .924 | .565 | .053 | webs: few candidates |
| 20x5 | 1.000 | 1.000 | 1.000 | .975 | .470 | small curated sets: nothing is missed |
| 26x11 | 1.000 | 1.000 | .903 | .404 | .013 | what Marin runs (over other shingles: `benchmarks/marin_duplicates.py`) |

The minima come from rensa's compiled kernel, a required package: there is no second engine that could differ. Its values are
pinned by a golden test, because signatures on storage are compared with new ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from rensa import RMinHash  # pyrefly: ignore[missing-module-attribute]  (a compiled module without stubs)

from datakit.documents.parts import iterate_part, writing_part
from datakit.documents.parts_of_tasks import parts_of_tasks
from datakit.text.shingles import batch_shingles, batches, distinct_in_segments, mix
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

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


PRESETS: Mapping[str, MinHashConfig] = MappingProxyType(
    {"14x8": MinHashConfig(14, 8), "20x5": MinHashConfig(20, 5), "26x11": MinHashConfig(26, 11)}
)


def preset(name: str) -> MinHashConfig:
    """Return a preset by name. Raises: ValueError listing the names."""
    if name not in PRESETS:
        raise ValueError(f"minhash preset is {name!r}; allowed: {', '.join(PRESETS)}")
    return PRESETS[name]


def sign_documents(out: Writer, config: MinHashConfig, normalized: Artifact) -> None:
    """Write `minhash/part-*.parquet` beside the documents' parts: same names, same ids, same order."""
    tasks = {path.stem: (path, config) for path in parts_of_tasks(out, normalized)}
    done = out.map_shards(sign_part, tasks, lazy=True)
    rows = sum(int(str(s["rows"])) for s in done.values())
    out.record(rows_in=rows, rows_out=rows, too_short_to_sign=sum(int(str(s["unsigned"])) for s in done.values()))


MINHASH = Stage(
    "datakit.minhash",
    "4",
    sign_documents,
    description="MinHash bands of every document, from its word 5-grams: candidates of fuzzy deduplication.",
    checks=("file_set", "attributes_aligned"),
)
"""4: words are folded (`datakit.text.folding`). 3: words are those of any script (`datakit.text.word_kinds`)."""


def sign_part(folder: Path, part: Path, config: MinHashConfig) -> dict[str, int]:
    """Sign one part of the documents, one row group at a time."""
    unsigned = 0
    with writing_part(folder / FOLDER / part.name, SCHEMA) as out:
        for table in iterate_part(part, ["id", "text"]):
            bands, sizes = sign_texts(table["text"].to_pylist(), config)
            out.write(_signed(table["id"].combine_chunks(), bands, sizes))
            unsigned += int((sizes == 0).sum())
    return {"rows": out.rows, "unsigned": unsigned}


def _signed(ids: pa.Array, bands: np.ndarray, sizes: np.ndarray) -> pa.Table:
    """Return rows of the table; a document without shingles has no bands."""
    is_signed = sizes > 0
    counts = np.where(is_signed, bands.shape[1], 0)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(bands[is_signed].ravel()), mask=pa.array(~is_signed))
    return pa.Table.from_arrays([ids, lists, pa.array(sizes, pa.int32())], schema=SCHEMA)


def sign_texts(texts: Sequence[str], config: MinHashConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return uint64 [texts, bands] and int64 [texts], the number of distinct shingles. Bands of a text without shingles
    are meaningless.
    """
    parts = [distinct_in_segments(*batch_shingles(batch, config.ngram_words)) for batch in batches(texts)]
    if not parts:
        return np.zeros((0, config.bands), np.uint64), np.zeros(0, np.int64)
    lowest = np.concatenate([lowest_hashes(shingles, bounds, config) for shingles, bounds in parts])
    return band_hashes(lowest, config), np.concatenate([np.diff(bounds) for _, bounds in parts])


def lowest_hashes(shingles: np.ndarray, bounds: np.ndarray, config: MinHashConfig) -> np.ndarray:
    """Return uint64 [texts, bands * rows]: the minima of the permuted shingles, 32 bits each."""
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        shingles, bounds.astype(np.uint64), config.bands * config.rows, config.seed
    )
    return np.array(matrix.to_rows(), np.uint64).reshape(bounds.size - 1, -1)


def band_hashes(lowest: np.ndarray, config: MinHashConfig) -> np.ndarray:
    """Return uint64 [texts, bands]: a hash of each band's rows and of the band's number."""
    rows = lowest.reshape(-1, config.bands, config.rows)
    combined = np.tile(np.arange(1, config.bands + 1, dtype=np.uint64), (rows.shape[0], 1))
    for row in range(config.rows):
        combined = mix(combined * np.uint64(0x9E3779B97F4A7C15) + rows[:, :, row])
    return combined
