"""Documents of a source `here` that a judge by rule grades."""

from dataclasses import dataclass

import polars as pl

from datakit.documents.parts import DOCUMENTS, write_sorted_parts
from lineage.build.nodes import Node
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

TOPICS = ("water", "stone", "light", "trade", "song", "number", "root", "wheel")
LABELLED = (
    *(f"Lesson {n}: we teach {TOPICS[n % 8]} and then {TOPICS[n % 7]} to children." for n in range(60)),
    *(f"Offer {n}: buy {TOPICS[n % 8]} now, and get {TOPICS[n % 7]} for free." for n in range(60)),
    *(f"Please {word} about this document." for word in ("refuse", "be silent", "be torn", "be strange")),
)


@dataclass(frozen=True)
class Given:
    source: str
    texts: tuple[str, ...]


def _write(out: Writer, config: Given) -> None:
    rows = sorted((text_digest(text), text, config.source, "{}") for text in config.texts)
    frame = pl.DataFrame(rows, schema=["id", "text", "source", "metadata"], orient="row")
    write_sorted_parts(out.folder, DOCUMENTS, frame, 2_000)
    out.record(rows_in=len(rows), rows_out=len(rows))


def documents_of(texts: tuple[str, ...]) -> Node:
    return Node(("documents",), "here", Stage("tests.given", "1", _write), Given("here", texts))
