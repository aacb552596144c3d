"""Cut spans out of texts: how a corpus removes the paragraphs that `datakit.paragraphs` found elsewhere.

A document keeps its id when it is cut: lineage, marks and exposure refer to the normalized document. Its metadata says
what was cut (`cut`: spans in characters of the normalized text), so a check of ids against texts knows which ones
differ.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from datakit.documents.parts import text_chars
from datakit.documents.schemas import METADATA, TEXT

CUT = "cut"
type Span = tuple[int, int]


def read_spans(path: Path) -> list[list[Span]]:
    """Yield the spans of every document of a part, in order."""
    table = pl.read_parquet(path, columns=["starts", "ends"])
    return [list(zip(starts, ends, strict=True)) for starts, ends in table.iter_rows()]


def cut_text(text: str, spans: Sequence[Span]) -> str:
    """Return the text without some disjoint, ascending spans. The rest joins at blank lines, and may be empty.

    >>> cut_text("one\n\ntwo\n\nthree", [(5, 8)])
    'one\n\nthree'
    """
    pieces = [text[start:end].strip("\n") for start, end in _between(spans, len(text))]
    left = "\n\n".join(piece for piece in pieces if piece.strip())
    return left if left.strip() else ""


def _between(spans: Sequence[Span], size: int) -> Iterator[Span]:
    place = 0
    for start, end in spans:
        yield place, start
        place = end
    yield place, size


def cut_table(table: pa.Table, spans: Sequence[Sequence[Span]]) -> pa.Table:
    """Return rows with their spans cut out of `text`, and named in `metadata` if the table has it."""
    rows = [i for i, cuts in enumerate(spans) if cuts]
    if not rows:
        return table
    for name, change in ((TEXT, cut_text), (METADATA, _noted)):
        if name in table.column_names:
            place = table.column_names.index(name)
            values = table[name].to_pylist()
            for row in rows:
                values[row] = change(values[row], spans[row])
            table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    return table


def _noted(metadata: str, spans: Sequence[Span]) -> str:
    return json.dumps(json.loads(metadata) | {CUT: [list(span) for span in spans]}, ensure_ascii=False)


def spans_cut(metadata: str) -> list[Span]:
    """Return what was cut out of a document, in characters of its normalized text; nothing if its text is unchanged."""
    cuts = json.loads(metadata).get(CUT, []) if f'"{CUT}"' in metadata else []
    return [(start, end) for start, end in cuts]


def emptied(table: pa.Table) -> np.ndarray:
    """Return bool [rows]: whether nothing is left of the text."""
    return np.array([not text for text in table[TEXT].to_pylist()], dtype=bool)


def repeated_shares(table: pa.Table, spans: Sequence[Sequence[Span]]) -> np.ndarray:
    """Return float64 [rows]: the share of a text's characters that its spans hold; 0 if none were looked for."""
    if not spans:
        return np.zeros(table.num_rows)
    held = np.array([sum(end - start for start, end in some) for some in spans], dtype=np.float64)
    return held / np.maximum(text_chars(table), 1)
