"""The attribute table of a tag: parts beside the documents' parts, one row a document, and how often each tag occurs."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from datakit.documents.parts import as_frame, iterate_part, slices, writing_part
from datakit.documents.parts_of_tasks import parts_of_tasks
from lineage.artifact.store import Artifact
from lineage.writing.writer import Writer

SLICE_CHARS = 1 << 22
"""Texts that are tagged at once."""

type Tagged = Callable[[pl.DataFrame], pl.DataFrame]
"""Documents with `id` and `text` -> `id` and the tags; `id` alone if the source is not judged."""


def write_tags(out: Writer, normalized: Artifact, tag_part: Callable[..., dict[str, Any]], config: object, column: str) -> None:
    """Tag every part by a shard of its own; counts of the column's values go into `extra`, the most frequent first."""
    tagged = out.map_shards(tag_part, {path.stem: (path, config) for path in parts_of_tasks(out, normalized)}, lazy=True)
    counts = sum((Counter(part["counts"]) for part in tagged.values()), Counter[str]())
    rows = sum(part["rows"] for part in tagged.values())
    out.extra["tags"] = {column: dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))}
    out.record(rows_in=rows, rows_out=rows)


def tag_one_part(folder: Path, part: Path, name: str, column: str, tagged: Tagged) -> dict[str, Any]:
    """Write the tags of one part, a slice of a row group at a time. Returns its rows, and how often each tag occurs."""
    nothing = pl.DataFrame(schema={"id": pl.String, "text": pl.String})
    counts = Counter[str]()
    with writing_part(folder / name / part.name, tagged(nothing).to_arrow().schema) as out:
        for table in iterate_part(part, ["id", "text"]):
            for rows in slices(as_frame(table), SLICE_CHARS):
                tags = tagged(rows)
                counts.update(tags[column] if column in tags.columns else ())
                out.write(tags.to_arrow())
    return {"rows": out.rows, "counts": dict(counts)}
