"""The attribute table of a tag: parts beside the documents' parts, one row a document, and how often each tag occurs."""

from collections.abc import Callable
from pathlib import Path

import polars as pl

from datakit.documents.parts import as_frame, count_values, document_paths, iterate_part, slices, writing_part
from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer

SLICE_CHARS = 1 << 22
"""Texts that are tagged at once."""

type Tagged = Callable[[pl.DataFrame], pl.DataFrame]
"""Documents with `id` and `text` -> `id` and the tags; `id` alone if the source is not judged."""


def write_tags(
    out: Writer, normalized: Artifact, tag_part: Callable[..., dict[str, int]], config: object, folder: str, column: str
) -> None:
    """Tag every part by a shard of its own; counts of the column's values go into `extra`, the most frequent first."""
    out.map_shards(tag_part, {path.stem: (path, config) for path in document_paths(normalized)})
    paths = sorted((out.folder / folder).glob("*.parquet"))
    is_judged = all(column in pl.read_parquet_schema(path) for path in paths)
    counts = count_values(paths, column if is_judged else "id")
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0])) if is_judged else []
    out.extra["tags"] = {column: dict(shown)}
    out.record(rows_in=sum(counts.values()), rows_out=sum(counts.values()))


def tag_one_part(folder: Path, part: Path, name: str, tagged: Tagged) -> dict[str, int]:
    """Write the tags of one part, a slice of a row group at a time."""
    nothing = pl.DataFrame(schema={"id": pl.String, "text": pl.String})
    with writing_part(folder / name / part.name, tagged(nothing).to_arrow().schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            for rows in slices(as_frame(table), SLICE_CHARS):
                out.write(tagged(rows).to_arrow())
    return {"rows": out.rows}
