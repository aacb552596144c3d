"""The stage `datakit.paragraphs`: paragraphs that occur in an earlier document of the scope, as spans to cut.

A paragraph is a block of text between blank lines, without the whitespace around it. Two are equal if their UTF-8 bytes
are (xxh3_128). Only paragraphs of at least `min_words` words count, so headings and brackets may repeat. Words are
separated by white space; in a script without spaces each character is one (`datakit.text.word_kinds`). The first
occurrence owns a paragraph: first by declared source, then by document id, then by place. Every later one is a span.
Documents that `datakit.duplicates` removes neither own nor repeat: text that is only in a removed copy must not be cut
elsewhere. Later filters do not count here: a paragraph whose owner is dropped for its quality is lost to that corpus.

Nothing in memory grows with the scope. Every part writes 40 bytes a paragraph to scratch. A shuffle (`lineage.tables`)
brings equal digests together, one range at a time; a second one brings the repeats into the order of their documents, so
that every part reads its own from one or two files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from datakit.dedup.duplicates import SMALL_SCOPE_ROWS
from datakit.dedup.numbered import Numbered, numbered
from datakit.dedup.part_files import PartFiles, save_part
from datakit.dedup.scope_parts import ScopePart, scope_parts, tables_of_scope
from datakit.documents.parts import iterate_part, writing_part
from datakit.documents.schemas import CLUSTERS_FOLDER, SPANS_FOLDER
from datakit.text.word_kinds import ALONE, word_kinds
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.tables.local import LocalEngine
from lineage.tables.ranges import is_first, sorted_by
from lineage.tables.shuffle import Shuffle, grouped, range_count
from lineage.writing.writer import Writer

SCHEMA = pa.schema([("id", pa.string()), ("starts", pa.list_(pa.int64())), ("ends", pa.list_(pa.int64()))])
"""One row for each document, in the documents' order: `[start, end)` in characters of the text, ascending, disjoint."""

BLOCK = re.compile(r"\S(?:.*\S)?(?:[^\S\n]*\n[^\S\n]*\S(?:.*\S)?)*")
"""From the first to the last character that is not whitespace, in lines between blank ones."""

PARAGRAPH_BYTES = 40


@dataclass(frozen=True)
class ParagraphsConfig:
    """Which paragraphs count."""

    min_words: int = 20

    def __post_init__(self) -> None:
        if self.min_words < 1:
            raise ValueError(f"paragraphs.min_words is {self.min_words}; it must be at least 1")


def find_repeats(out: Writer, config: ParagraphsConfig, normalized: tuple[Artifact, ...], duplicates: Artifact) -> None:
    """Write `spans/<source>/part-*.parquet` beside the documents' parts: same names, same ids, same order."""
    parts, documents = scope_parts(out, normalized)
    clusters = tables_of_scope(out, duplicates, CLUSTERS_FOLDER, parts)
    rows = parts[-1].end
    workers = 1 if rows < SMALL_SCOPE_ROWS else None
    scratch = PartFiles(out.folder / SCRATCH_FOLDER)
    finds = {f"find-{p.index:06d}": (p, documents[p.index], clusters[p.index], config.min_words) for p in parts}
    repeated = out.map_shards(find_in_part, finds, workers, lazy=True)
    paragraphs = sum(int(str(s["paragraphs"])) for s in repeated.values())
    size = paragraphs * PARAGRAPH_BYTES
    tasks = [(scratch.reading(("digests", "places"), group), group) for group in grouped(parts, size)]
    step = Shuffle("repeats", paragraph_rows, tasks, "high", repeats_of_range, range_count(size))
    engine = out.execution.tables or LocalEngine(SCRATCH_FOLDER, workers)
    repeated_rows = engine.shuffle(out, step)
    repeats = numbered(out, engine, repeated_rows, ("document", "start", "end"), rows, "repeats")
    spans = {f"spans-{p.index:06d}": (p, documents[p.index], repeats) for p in parts}
    done = out.map_shards(write_spans, spans, workers, lazy=True)
    totals = {name: sum(int(str(s[name])) for s in done.values()) for name in ("documents", "spans", "characters")}
    out.extra["paragraphs"] = {"seen": paragraphs, "repeated": totals["spans"], "characters": totals["characters"]}
    out.record(rows_in=rows, rows_out=rows, documents_with_spans=totals["documents"])


PARAGRAPHS = Stage(
    "datakit.paragraphs",
    "2",
    find_repeats,
    description="Paragraphs that repeat an earlier document, as spans that a corpus cuts.",
    checks=("rows_conserved", "file_set"),
)
"""2: paragraphs of scripts without spaces have words."""


def paragraphs(text: str, min_words: int) -> Iterator[tuple[int, int]]:
    """Return (start, end) in characters of every paragraph that counts."""
    for block in BLOCK.finditer(text):
        start, end = block.span()
        if end - start >= min_words and has_words(block.group(), min_words):
            yield start, end


def has_words(block: str, min_words: int) -> bool:
    """Whether a block has `min_words` words between white space, or as many characters that are a word each."""
    if len(block) >= 2 * min_words - 1 and len(block.split(None, min_words)) >= min_words:
        return True
    if block.isascii():
        return False
    characters = np.frombuffer(block.encode("utf-32-le"), np.uint32)
    return int((word_kinds()[characters] == ALONE).sum()) >= min_words


def find_in_part(folder: Path, part: ScopePart, documents: Path, clusters: Path, min_words: int) -> dict[str, int]:
    """Write the paragraphs of one part, and return their number.

    `digests` uint64 [paragraphs, 2]; `places` int64 [paragraphs, 3] (document, start, end).
    """
    removed = removed_ids(clusters)
    digests, places = bytearray(), []
    number = part.first
    for table in iterate_part(documents, ["id", "text"]):
        for document, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
            if document not in removed:
                for start, end in paragraphs(text, min_words):
                    digests += xxhash.xxh3_128_digest(text[start:end].encode())
                    places.append((number, start, end))
            number += 1
    part.check_rows(number - part.first, documents)
    keys = np.frombuffer(bytes(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    save_part(folder, part, digests=keys, places=np.array(places, np.int64).reshape(-1, 3))
    return {"paragraphs": len(places)}


def paragraph_rows(scratch: PartFiles, parts: Sequence[ScopePart]) -> pa.Table:
    """Return the halves of the digest, and the place, of every paragraph of some parts."""
    digests = np.concatenate([scratch.load("digests", part) for part in parts])
    places = np.concatenate([scratch.load("places", part) for part in parts])
    names = ("high", "low", "document", "start", "end")
    columns = [*digests.T, *places.T]
    return pa.table({name: column.copy() for name, column in zip(names, columns, strict=True)})


def repeats_of_range(rows: pa.Table) -> pa.Table:
    """Return the places that are not the first of their digest, by document."""
    ordered = sorted_by(rows, "high", "low", "document", "start")
    repeats = ordered.filter(pa.array(~is_first(ordered, "high", "low")))
    return sorted_by(repeats.select(["document", "start", "end"]), "document", "start")


def write_spans(folder: Path, part: ScopePart, documents: Path, repeats: Numbered) -> dict[str, int]:
    """Write the spans of one part's documents."""
    spans = repeats.between(part.first, part.end)
    spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    bounds = np.searchsorted(spans[:, 0], part.first + np.arange(part.rows + 1))
    offsets = pa.array(bounds, pa.int32())
    ids = pq.read_table(documents, columns=["id"], use_threads=False)["id"].combine_chunks()
    lists = [pa.ListArray.from_arrays(offsets, pa.array(spans[:, column])) for column in (1, 2)]
    with writing_part(folder / SPANS_FOLDER / part.source / part.name, SCHEMA) as out:
        out.write(pa.Table.from_arrays([ids, *lists], schema=SCHEMA))
    characters = int((spans[:, 2] - spans[:, 1]).sum())
    return {"documents": int(np.unique(spans[:, 0]).size), "spans": len(spans), "characters": characters}


def removed_ids(clusters: Path) -> set[str]:
    """Return ids of a part's documents that are removed as duplicates, from its file of clusters."""
    return set(pl.read_parquet(clusters).filter(~pl.col("is_kept"))["id"])
