"""The vectors of a scope as flat files, and their exact cosines.

Documents are numbered source by source, part by part, row by row. Those with a vector that `datakit.duplicates` keeps take
part. Dot products of int8 vectors of 384 components stay below 2**24, so float32 matrix products give them exactly: no
result depends on how rows are cut into blocks, on threads or on the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datakit.dedup.duplicates import document_source
from datakit.dedup.part_files import PartFiles, save_part
from datakit.documents.parts import document_paths
from datakit.documents.schemas import CLUSTERS_FOLDER
from datakit.semantics.embeddings import FOLDER
from datakit.semantics.encoder import WIDTH
from lineage.artifact.store import Artifact

type Vectors = NDArray[np.int8]


@dataclass(frozen=True)
class VectorPart:
    """One part of one source: its documents are the numbers `first <= n < first + rows`."""

    index: int
    source: str
    documents: Path
    vectors: Path
    clusters: Path
    first: int
    rows: int


@dataclass(frozen=True)
class Scope(PartFiles):
    """The parts of a scope, and the flat files that `spill_vectors` wrote below a folder: `ids` uint64 [rows, 2]; of the n
    documents that take part `rows` int64 [n] and `vectors` int8 [n, width].
    """

    parts: tuple[VectorPart, ...]

    @property
    def rows(self) -> int:
        return self.parts[-1].first + self.parts[-1].rows

    def part_of(self, number: int) -> VectorPart:
        """Return the part that holds a document."""
        return self.parts[int(np.searchsorted([part.first for part in self.parts], number, side="right")) - 1]

    def ids(self, numbers: np.ndarray) -> list[str]:
        """Return the ids of documents in any order."""
        parts = np.searchsorted([part.first for part in self.parts], numbers, side="right") - 1
        halves = np.zeros((numbers.size, 2), np.uint64)
        for index in np.unique(parts).tolist():
            here = parts == index
            halves[here] = self.load("ids", self.parts[index])[numbers[here] - self.parts[index].first]
        text = halves.astype(">u8").tobytes().hex()
        return [text[i : i + 32] for i in range(0, len(text), 32)]

    def cosines(self, numbers: np.ndarray, others: np.ndarray) -> NDArray[np.float64]:
        """Return float64 [pairs]: the cosines of pairs of documents that take part."""
        found = np.zeros(numbers.size)
        for at, pair in enumerate(zip(numbers.tolist(), others.tolist(), strict=True)):
            one, other = (self._vector(number).astype(np.int64) for number in pair)
            found[at] = (one @ other) / np.sqrt(float((one @ one) * (other @ other)))
        return found

    def _vector(self, number: int) -> Vectors:
        part = self.part_of(number)
        return self.load("vectors", part)[np.searchsorted(self.load("rows", part), number - part.first)]


def vector_parts(
    normalized: Sequence[Artifact], embeddings: Sequence[Artifact], duplicates: Artifact
) -> tuple[VectorPart, ...]:
    """Return the parts of every source in the declared order.

    Raises: ValueError if vectors are of other parts than documents, or of different configs.
    """
    models = {str({k: v for k, v in sorted(a.spec.config.items()) if k not in ("domain", "read_code")}) for a in embeddings}
    if len(models) > 1:
        raise ValueError(f"vectors of different configs cannot be compared: {'; '.join(sorted(models))}")
    parts: list[VectorPart] = []
    for documents, vectors in zip(normalized, embeddings, strict=True):
        source = document_source(documents)
        clusters = duplicates.below(f"{CLUSTERS_FOLDER}/{source}")
        paths, embedded = document_paths(documents), document_paths(vectors, FOLDER)
        if [path.name for path in paths] != [path.name for path in embedded]:
            raise ValueError(f"{vectors.name} has other parts than {documents.name}: materialize it again")
        for path, vector in zip(paths, embedded, strict=True):
            first = parts[-1].first + parts[-1].rows if parts else 0
            rows = pq.read_metadata(path).num_rows
            parts.append(VectorPart(len(parts), source, path, vector, clusters / path.name, first, rows))
    return tuple(parts)


def spill_vectors(folder: Path, part: VectorPart) -> dict[str, int]:
    """Write the ids of one part, and the rows and vectors of those that take part, as flat files.

    Raises: ValueError if the vectors are of other documents.
    """
    table = pq.read_table(part.vectors, use_threads=False)
    ids = table["id"].to_pylist()
    if ids != pq.read_table(part.documents, columns=["id"], use_threads=False)["id"].to_pylist():
        raise ValueError(f"{part.vectors.name} of {part.source}: ids of vectors and documents differ: materialize it again")
    clusters = pl.read_parquet(part.clusters)
    removed = set(clusters.filter(~pl.col("is_kept"))["id"])
    found = table["vector"].to_pylist() if "vector" in table.column_names else [None] * len(ids)
    rows = [row for row, (name, vector) in enumerate(zip(ids, found, strict=True)) if vector and name not in removed]
    vectors = np.frombuffer(b"".join(found[row] for row in rows), np.int8).reshape(-1, WIDTH)
    halves = np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64).reshape(-1, 2)
    save_part(folder, part, ids=halves, rows=np.array(rows, np.int64), vectors=vectors)
    return {"vectors": len(rows), "removed": len(removed)}


def lengths(vectors: Vectors) -> NDArray[np.float64]:
    """Return float64 [vectors]."""
    wide = vectors.astype(np.float32)
    return np.sqrt(np.einsum("ij,ij->i", wide, wide).astype(np.float64))
