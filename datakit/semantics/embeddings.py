"""The stage `datakit.embeddings`: a vector of length 1 for what each document says, by all-MiniLM-L6-v2.

A vector is the mean of the vectors of a document's windows: runs of characters at equal distances from start to end, of
which the model reads the first `max_tokens` tokens each. Vectors are stored as int8, 384 bytes a document: only directions
matter, and dot products of int8 vectors are exact in float32 in any order of summation, so a comparison of stored vectors
gives the same bit on every machine. Rounding moves a cosine by about .0005.

The model is optional (`datakit.semantics.encoder`); its digest is part of the config, so of the identity. The last bits
of a float32 vector depend on the machine's matrix products, so an int8 may differ by one between kinds of processors.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datakit.documents.parts import as_frame, iterate_part, slices, writing_part
from datakit.documents.parts_of_tasks import parts_of_tasks
from datakit.semantics.encoder import MAX_TOKENS, PACKAGE, SHA256, VERSION, WIDTH, SentenceEncoder
from datakit.sources.source import Domain
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

FOLDER = "embeddings"
VECTOR = pa.binary(WIDTH)
SCHEMA = pa.schema([("id", pa.string()), ("vector", VECTOR)])
"""A vector is `WIDTH` int8; null if the document is too short. A source that is not judged has ids alone."""

CHARS_OF_TOKEN = 5
"""A window has this many characters for each token that is read: English has 4 to 5, so little of a window is not read."""
SLICE_CHARS = 1 << 20
"""Texts that are encoded at once."""


class Encoder(Protocol):
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[texts, width] vectors of length 1."""
        ...


@dataclass(frozen=True)
class EmbeddingsConfig:
    """Which model reads how much of a document. Code is not read unless `read_code`."""

    domain: Domain
    windows: int = 3
    max_tokens: int = 128
    """Tokens of each window; the model was trained on up to 256."""
    min_chars: int = 100
    """A shorter text has no vector: few words are near all others of their kind."""
    read_code: bool = False
    model: str = f"{PACKAGE}=={VERSION}"
    sha256: str = SHA256
    """Of the model's two files, one after the other."""

    def __post_init__(self) -> None:
        for name in ("windows", "min_chars"):
            if getattr(self, name) < 1:
                raise ValueError(f"embeddings.{name} is {getattr(self, name)}; it must be at least 1")
        if not 3 <= self.max_tokens <= MAX_TOKENS:
            raise ValueError(f"embeddings.max_tokens is {self.max_tokens}; it is from 3 to {MAX_TOKENS}")
        if (self.model, self.sha256) != (f"{PACKAGE}=={VERSION}", SHA256):
            raise ValueError(
                f"embeddings: model is {self.model} of sha256 {self.sha256}; only {PACKAGE}=={VERSION} of {SHA256} is known"
            )

    @property
    def reads(self) -> bool:
        """Whether documents of the domain get vectors."""
        return self.domain != "code" or self.read_code


def embed_documents(out: Writer, config: EmbeddingsConfig, normalized: Artifact) -> None:
    """Write `embeddings/part-*.parquet` beside the documents' parts: same names, same ids, same order.

    Raises: ModuleNotFoundError, saying how to install the model, when it is absent; ValueError for other bytes.
    """
    if config.reads:
        _encoder(config.max_tokens)
    done = out.map_shards(embed_part, {path.stem: (path, config) for path in parts_of_tasks(out, normalized)}, lazy=True)
    counts = sum((Counter({name: int(str(n)) for name, n in part.items()}) for part in done.values()), Counter[str]())
    skipped = {name: counts[name] for name in ("code", "short") if counts[name]}
    out.extra["embeddings"] = {
        "model": config.model,
        "sha256": config.sha256,
        "embedded": counts["rows"] - sum(skipped.values()),
        "skipped": skipped,
        "windows": counts["windows"],
    }
    out.record(rows_in=counts["rows"], rows_out=counts["rows"])


EMBEDDINGS = Stage(
    "datakit.embeddings",
    "1",
    embed_documents,
    description="A vector of what each document says, by a small sentence encoder (an optional package).",
    checks=("file_set", "attributes_aligned"),
)


def embed_part(folder: Path, part: Path, config: EmbeddingsConfig) -> dict[str, int]:
    """Embed one part, a slice of a row group at a time."""
    counts = Counter[str]()
    schema = SCHEMA if config.reads else pa.schema([SCHEMA.field("id")])
    with writing_part(folder / FOLDER / part.name, schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            if not config.reads:
                counts["code"] += table.num_rows
                out.write(table.select(["id"]))
                continue
            for rows in slices(as_frame(table), SLICE_CHARS):
                texts = rows["text"].to_list()
                vectors, windows = embedded(texts, config, _encoder(config.max_tokens))
                counts["short"] += vectors.count(None)
                counts["windows"] += windows
                out.write(pa.table([pa.array(rows["id"].to_list()), pa.array(vectors, VECTOR)], schema=SCHEMA))
    return {"rows": out.rows, **counts}


def embedded(texts: Sequence[str], config: EmbeddingsConfig, encoder: Encoder) -> tuple[list[bytes | None], int]:
    """Return the stored vector of each text, None if it is too short, and how many windows were read."""
    windows = [windows_of(text, config) for text in texts]
    counts = np.array([len(each) for each in windows])
    total = int(counts.sum())
    if not total:
        return [None] * len(texts), 0
    encoded = encoder.encode([window for each in windows for window in each])
    means = np.add.reduceat(encoded, (np.cumsum(counts) - counts)[counts > 0], axis=0)
    stored = iter(quantized(means))
    return [next(stored).tobytes() if count else None for count in counts], total


def windows_of(text: str, config: EmbeddingsConfig) -> list[str]:
    """Return the windows of a text: it is cut if it is short, else they lie at equal distances from start to end."""
    stripped, chars = text.strip(), CHARS_OF_TOKEN * config.max_tokens
    if len(stripped) < config.min_chars:
        return []
    count = min(config.windows, -(-len(stripped) // chars))
    size = min(chars, -(-len(stripped) // count))
    starts = [(len(stripped) - size) * number // max(1, count - 1) for number in range(count)]
    return [stripped[start : start + size] for start in starts]


def quantized(vectors: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
    """Return int8 [vectors, width] of the same directions: the largest component of each becomes 127; zeros stay."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)


@lru_cache(maxsize=1)
def _encoder(max_tokens: int) -> SentenceEncoder:
    """The model; a worker loads it once, in .2 s."""
    return SentenceEncoder.installed(max_tokens)
