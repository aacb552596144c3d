"""The second pass of a corpus: write output parts from documents that the first pass (`build.py`) keeps."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from datakit.dedup.paragraph_cuts import Span, cut_table, read_spans
from datakit.documents.parts import has_long_texts, iterate_part, part_bounds, part_name, text_bytes, writing_part
from datakit.documents.schemas import DOCUMENT_SCHEMA
from lineage.shards.reads import FilesOf, Folder, files_of
from lineage.shards.run import DIGESTED

TRAIN = "train"
HELDOUT = "heldout"
SPLITS = (TRAIN, HELDOUT)
CUT_COUNTS = ("cut_bytes", "cut_paragraphs")


@dataclass(frozen=True)
class Slice:
    """Survivors `[start, stop)` of one split in one part of the input, counted from the part's first survivor.

    `fates` is what the first pass decided about the part's documents; None if `part` holds survivors of the split only,
    already cut.
    """

    part: Path
    fates: Path | None
    start: int
    stop: int


def layout(
    split: str, parts: Sequence[tuple[Path, Path | None]], counts: list[int], num_bytes: int, target_bytes: int
) -> Iterator[tuple[str, tuple[Slice, ...]]]:
    """Return (name of an output part, where its documents come from) for every part of a split.

    `parts` of the input: the documents, and what the first pass decided about them (`Slice`); `counts` are survivors by
    part.
    """
    bounds = part_bounds(sum(counts), num_bytes, target_bytes)
    for index, (start, stop) in enumerate(bounds):
        slices, first = [], 0
        for (part, fate), count in zip(parts, counts, strict=True):
            low, high = max(start, first) - first, min(stop, first + count) - first
            if low < high:
                slices.append(Slice(part, fate, low, high))
            first += count
        yield f"{split}/{part_name(index, len(bounds))}", tuple(slices)


def spans_of(spans: Path | None, parts: Sequence[Path]) -> FilesOf | None:
    """Return the folder of spans for a task that reads those of some parts; None if no spans are cut."""
    return files_of(spans, (part.name for part in parts)) if spans else None


def write_split_part(folder: Path, name: str, slices: tuple[Slice, ...], spans: Folder | None = None) -> Mapping[str, object]:
    """Copy a split's documents into one output part, one row group of the input at a time; return counts of what was
    cut.
    """
    counts = Counter[str]()
    with writing_part(folder / name, long_texts=any(has_long_texts(piece.part) for piece in slices)) as out:
        for piece in slices:
            for table, row_spans in _survivors(piece, spans):
                left = cut_table(table, row_spans)
                counts += cut_counts(table, left, row_spans)
                out.write(left)
    return {"rows": out.rows, **counts, DIGESTED: {name: out.digested}}


def cut_counts(table: pa.Table, left: pa.Table, row_spans: list[list[Span]]) -> Counter[str]:
    """Count what cutting the spans `found` took from the rows of `table`; nothing if none were looked for."""
    if not row_spans:
        return Counter()
    bytes_and_paragraphs = int(text_bytes(table).sum() - text_bytes(left).sum()), sum(len(some) for some in row_spans)
    return Counter(dict(zip(CUT_COUNTS, bytes_and_paragraphs, strict=True)))


def with_spans(
    part: Path, names: list[str], spans: Folder | None, first: int = 0, end: int | None = None
) -> Iterator[tuple[pa.Table, list[list[Span]]]]:
    """Yield rows `[first, end)` of a part, one row group at a time, with the spans to cut out of each row."""
    of_part = read_spans(spans / part.name) if spans else None
    for table in iterate_part(part, names, first, end):
        yield table, of_part[first : first + table.num_rows] if of_part is not None else []
        first += table.num_rows


def _survivors(piece: Slice, spans: Folder | None) -> Iterator[tuple[pa.Table, list[list[Span]]]]:
    """Yield documents of a slice, with the spans to cut out of each."""
    if piece.fates is None:
        yield from with_spans(piece.part, DOCUMENT_SCHEMA.names, None, piece.start, piece.stop)
        return
    rows = (pl.read_parquet(piece.fates, columns=["split"])["split"] == TRAIN).arg_true()[piece.start : piece.stop]
    first, end = int(rows[0]), int(rows[-1]) + 1
    is_mine = pl.int_range(first, end, eager=True).is_in(rows.implode())
    for table, row_spans in with_spans(piece.part, DOCUMENT_SCHEMA.names, spans, first, end):
        mine, is_mine = is_mine.head(table.num_rows), is_mine.tail(-table.num_rows)
        yield table.filter(mine.to_arrow()), chosen(row_spans, mine)


def chosen(row_spans: list[list[Span]], is_mine: pl.Series) -> list[list[Span]]:
    """Return spans of the chosen rows; none if no row has any."""
    return [some for some, mine in zip(row_spans, is_mine, strict=bool(row_spans)) if mine]
