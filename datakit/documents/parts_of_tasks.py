"""Parts of an input that a stage names before they are here: on a bucket, a part is fetched where a task that names it runs."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datakit.documents.parts import DOCUMENTS
from datakit.documents.schemas import SOURCE
from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer

FOOTER_END_BYTES = 8
"""The length of the metadata in 4 bytes, and `PAR1`."""


def parts_of_tasks(out: Writer, artifact: Artifact, split: str = DOCUMENTS) -> list[Path]:
    """Return `document_paths` for the tasks of a map: a part on a bucket is fetched where a task that names it runs.

    Raises: ValueError if the artifact has none.
    """
    paths = out.input_files(artifact, ".parquet", f"{split}/")
    if not paths:
        raise ValueError(f"{artifact.name} has no documents under {split}/")
    return paths


def footer(artifact: Artifact, part: Path, split: str = DOCUMENTS) -> pq.FileMetaData:
    """Return the metadata of a part of `parts_of_tasks`; of one that is not here only these bytes are read."""
    if part.exists():
        return pq.read_metadata(part)
    name = f"{split}/{part.name}"
    size = next(entry.bytes for entry in artifact.manifest.files if entry.path == name)
    end = size - FOOTER_END_BYTES
    length = int.from_bytes(artifact.read_range(name, end, end + 4), "little")
    return pq.read_metadata(pa.BufferReader(artifact.read_range(name, end - length, size)))


def parts_beside(out: Writer, artifact: Artifact, folder: str, parts: Sequence[str]) -> Path:
    """Return the folder of an artifact that has a file for each of the documents' parts, by their names.

    A file on a bucket is fetched where a task that names it runs. Raises: ValueError naming a part that is missing.
    """
    files = out.input_files(artifact, ".parquet", f"{folder}/")
    if missing := set(parts) - {file.name for file in files}:
        raise ValueError(
            f"{artifact.name}: {folder}/ has no part {min(missing)}; it was made from other documents: materialize it again"
        )
    return files[0].parent


def source_in_footers(artifact: Artifact, parts: Sequence[Path]) -> str:
    """Return the source of the documents of `parts_of_tasks`. Raises: ValueError without documents, or with two sources."""
    for part in parts:
        metadata = footer(artifact, part)
        if metadata.num_rows:
            column = metadata.schema.to_arrow_schema().get_field_index(SOURCE)
            names = metadata.row_group(0).column(column).statistics
            if names.min != names.max:
                raise ValueError(
                    f"{artifact.name}: documents of {part.name} are of {names.min!r} and {names.max!r}; allowed: one"
                )
            return str(names.min)
    raise ValueError(f"{artifact.name}: there is no document in {len(parts)} parts")
