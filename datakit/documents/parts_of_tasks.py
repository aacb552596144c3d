"""Parts of an input that a stage names before they are here: on a bucket, a part is fetched where a task that names it runs."""

from collections.abc import Sequence
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.parquet as pq

from datakit.documents.parts import DOCUMENTS
from datakit.documents.schemas import SOURCE
from lineage.artifact.manifest import FileEntry
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


def rows_of_parts(artifact: Artifact, split: str = DOCUMENTS) -> dict[str, int]:
    """Return name -> rows of the parts of a split, by name. Rows are those that the manifest has: no part is opened.

    Raises: ValueError if the artifact has none.
    """
    entries = parts_of_split(artifact, split)
    return {PurePath(entry.path).name: int(entry.rows or 0) for entry in entries}


def parts_of_split(artifact: Artifact, split: str = DOCUMENTS) -> list[FileEntry]:
    """Return the manifest's entries of the parts of a split, by name. Raises: ValueError if the artifact has none."""
    listed = [e for e in artifact.manifest.files if e.path.startswith(f"{split}/") and e.path.endswith(".parquet")]
    if not listed:
        raise ValueError(f"{artifact.name} has no documents under {split}/")
    return sorted(listed, key=lambda entry: entry.path)


def footer(artifact: Artifact, part: FileEntry) -> pq.FileMetaData:
    """Return the metadata of a Parquet file of an artifact; of one that is not here only these bytes are read."""
    name, end = part.path, part.bytes - FOOTER_END_BYTES
    length = int.from_bytes(artifact.read_range(name, end, end + 4), "little")
    return pq.read_metadata(pa.BufferReader(artifact.read_range(name, end - length, part.bytes)))


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


def source_of(artifact: Artifact) -> str:
    """Return the source of an artifact's documents, from one footer.

    Raises: ValueError without documents, or with two sources in that part.
    """
    part = next((entry for entry in parts_of_split(artifact) if entry.rows), None)
    if part is None:
        raise ValueError(f"{artifact.name} has no documents")
    metadata = footer(artifact, part)
    names = metadata.row_group(0).column(metadata.schema.to_arrow_schema().get_field_index(SOURCE)).statistics
    if names.min != names.max:
        raise ValueError(f"{artifact.name}: documents of {part.path} are of {names.min!r} and {names.max!r}; allowed: one")
    return str(names.min)
