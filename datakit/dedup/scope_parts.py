"""The parts of a scope: documents of several sources, numbered source by source, part by part, row by row.

A part of a scope has no path. Tasks of later maps hold all parts of a scope, and a runner fetches every path that its task
holds. So what reads a part of an input is given its path beside the part.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datakit.dedup.part_files import PartFiles
from datakit.documents.parts import DOCUMENTS
from datakit.documents.parts_of_tasks import parts_of_tasks, rows_of_parts, source_of
from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer

NO_DOCUMENT = -1
"""The number of no document."""


@dataclass(frozen=True)
class ScopePart:
    """One part of one source: its documents are the numbers `first <= n < first + rows`, in the order of their ids."""

    index: int
    source: str
    name: str
    """Of its file, in the documents and in every table beside them."""

    first: int
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    def check_rows(self, rows: int, path: Path) -> None:
        """Raises: ValueError if a file does not have the rows by which the documents are numbered."""
        if rows != self.rows:
            raise ValueError(
                f"{path} of source {self.source} has {rows} rows, the manifest of its documents says {self.rows}: "
                "verify both artifacts"
            )


@dataclass(frozen=True)
class ScopeFiles(PartFiles):
    """The parts of a scope and their flat files, of which `ids` uint64 [rows, 2] has the halves of every document's id."""

    parts: tuple[ScopePart, ...]

    @property
    def rows(self) -> int:
        return self.parts[-1].end

    def part_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64 [numbers]: the index of the part that holds each document."""
        return np.searchsorted([part.first for part in self.parts], numbers, side="right") - 1

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Return uint64 [numbers, 2]: the ids of documents in any order, as two halves."""
        parts, ids = self.part_of(numbers), np.zeros((numbers.size, 2), np.uint64)
        for index in np.unique(parts).tolist():
            here = parts == index
            ids[here] = self.load("ids", self.parts[index])[numbers[here] - self.parts[index].first]
        return ids


def scope_parts(out: Writer, normalized: Sequence[Artifact]) -> tuple[tuple[ScopePart, ...], list[Path]]:
    """Return the parts of every source in the declared order, and the path of the documents of each.

    Numbers of rows are those of the manifests: no part is opened. Raises: ValueError for a source without documents, or one
    that is given twice.
    """
    counts = Counter(artifact.name for artifact in normalized)
    if repeated := [name for name, count in counts.items() if count > 1]:
        times = counts[repeated[0]]
        raise ValueError(
            f"{repeated[0]} is given {times} times, where every document would repeat itself; give each source once"
        )
    parts, paths, named = list[ScopePart](), list[Path](), dict[str, str]()
    for artifact in normalized:
        source = source_of(artifact)
        if (other := named.setdefault(source, artifact.name)) != artifact.name:
            raise ValueError(f"{other} and {artifact.name} both hold documents of source {source}; give each source once")
        rows = rows_of_parts(artifact, DOCUMENTS)
        for path in parts_of_tasks(out, artifact):
            parts.append(ScopePart(len(parts), source, path.name, parts[-1].end if parts else 0, rows[path.name]))
            paths.append(path)
    return tuple(parts), paths


def tables_of_sources(
    out: Writer, tables: Sequence[Artifact], folder: str, normalized: Sequence[Artifact], parts: Sequence[ScopePart]
) -> list[Path]:
    """Return the file of every part in tables that each source has for itself, in the order of the sources.

    Raises: ValueError naming a table that has other parts or rows than its documents.
    """
    paths = list[Path]()
    for table, documents in zip(tables, normalized, strict=True):
        if rows_of_parts(table, folder) != rows_of_parts(documents, DOCUMENTS):
            raise ValueError(f"{table.name} has other parts or rows than {documents.name}: materialize it again")
        paths += parts_of_tasks(out, table, folder)
    assert [path.name for path in paths] == [part.name for part in parts]
    return paths


def tables_of_scope(out: Writer, scope: Artifact, folder: str, parts: Sequence[ScopePart]) -> list[Path]:
    """Return the file of every part, `<folder>/<source>/<name>`, in an artifact that an earlier stage made of the same scope.

    Raises: ValueError naming a part that it does not have.
    """
    files = {f"{path.parent.name}/{path.name}": path for path in out.input_files(scope, ".parquet", f"{folder}/")}
    wanted = [f"{part.source}/{part.name}" for part in parts]
    if missing := [name for name in wanted if name not in files]:
        raise ValueError(
            f"{scope.name}: {folder}/ has no part {missing[0]}; it was made from other documents: materialize it again"
        )
    return [files[name] for name in wanted]
