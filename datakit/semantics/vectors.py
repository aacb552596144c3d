"""The vectors of a scope as flat files, and their exact cosines.

Documents are numbered source by source, part by part, row by row. Those with a vector that `datakit.duplicates` keeps take
part. Dot products of int8 vectors of 384 components stay below 2**24, so float32 matrix products give them exactly: no
result depends on how rows are cut into blocks, on threads or on the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datakit.dedup.paragraphs import removed_ids
from datakit.dedup.part_files import save_part
from datakit.dedup.scope_parts import ScopeFiles, ScopePart, tables_of_sources
from datakit.semantics.embeddings import FOLDER
from datakit.semantics.encoder import WIDTH
from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer

type Vectors = NDArray[np.int8]


@dataclass(frozen=True)
class Scope(ScopeFiles):
    """What `spill_vectors` wrote: `ids`; of the n documents that take part `rows` int64 [n] and `vectors` int8 [n, width]."""

    def part_with(self, number: int) -> ScopePart:
        """Return the part that holds a document."""
        return self.parts[int(self.part_of(np.array([number]))[0])]

    def cosines(self, numbers: np.ndarray, others: np.ndarray) -> NDArray[np.float64]:
        """Return float64 [pairs]: the cosines of pairs of documents that take part."""
        found = np.zeros(numbers.size)
        for at, pair in enumerate(zip(numbers.tolist(), others.tolist(), strict=True)):
            one, other = (self._vector(number).astype(np.int64) for number in pair)
            found[at] = (one @ other) / np.sqrt(float((one @ one) * (other @ other)))
        return found

    def _vector(self, number: int) -> Vectors:
        part = self.part_with(number)
        return self.load("vectors", part)[np.searchsorted(self.load("rows", part), number - part.first)]


def vector_files(
    out: Writer, embeddings: Sequence[Artifact], normalized: Sequence[Artifact], parts: Sequence[ScopePart]
) -> list[Path]:
    """Return the vectors of every part.

    Raises: ValueError if vectors are of other parts than documents, or of different configs.
    """
    models = {str({k: v for k, v in sorted(a.spec.config.items()) if k not in ("domain", "read_code")}) for a in embeddings}
    if len(models) > 1:
        raise ValueError(f"vectors of different configs cannot be compared: {'; '.join(sorted(models))}")
    return tables_of_sources(out, embeddings, FOLDER, normalized, parts)


def spill_vectors(folder: Path, part: ScopePart, documents: Path, vectors: Path, clusters: Path) -> dict[str, int]:
    """Write the ids of one part, and the rows and vectors of those that take part, as flat files.

    Raises: ValueError if the vectors are of other documents.
    """
    table = pq.read_table(vectors, use_threads=False)
    ids = table["id"].to_pylist()
    part.check_rows(len(ids), vectors)
    if ids != pq.read_table(documents, columns=["id"], use_threads=False)["id"].to_pylist():
        raise ValueError(f"{part.name} of {part.source}: ids of vectors and documents differ: materialize it again")
    removed = removed_ids(clusters)
    found = table["vector"].to_pylist() if "vector" in table.column_names else [None] * len(ids)
    rows = [row for row, (name, vector) in enumerate(zip(ids, found, strict=True)) if vector and name not in removed]
    flat = np.frombuffer(b"".join(found[row] for row in rows), np.int8).reshape(-1, WIDTH)
    halves = np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64).reshape(-1, 2)
    save_part(folder, part, ids=halves, rows=np.array(rows, np.int64), vectors=flat)
    return {"vectors": len(rows), "removed": len(removed)}


def lengths(vectors: Vectors) -> NDArray[np.float64]:
    """Return float64 [vectors]."""
    wide = vectors.astype(np.float32)
    return np.sqrt(np.einsum("ij,ij->i", wide, wide).astype(np.float64))
