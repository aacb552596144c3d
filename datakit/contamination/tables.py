"""Tables that a scan for benchmark items writes: marks, matches by document, documents by item, statuses of items.

Shards write tables of their row groups and report how many documents these name. The tables are joined one row group at
a time, or merged (`sorted_tables.py`), so memory depends on the number of items and not on the size of the source.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched, chain, groupby, islice
from pathlib import Path
from shutil import copyfile
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.contamination.channels import ITEM_KEY
from datakit.contamination.protocol import ChannelMatch
from datakit.documents.parts import as_frame, iterate_part, iterate_texts, write_parquet, writing_part
from datakit.documents.sorted_tables import merge_tables
from lineage.match_tiers import (
    CLEAN,
    DOUBTED_TIERS,
    MATCHED,
    PARTIAL,
    STANDING_TIERS,
    TIERS,
    UNKNOWN,
    WHOLE_ONLY,
    Tier,
)
from lineage.shards.reads import Folder

MARKS = "marks"
MATCHES = "matches"
HOLDERS = "item_documents"
HELD = "held"
SUMMED_AT_ONCE = 32
TALLIED = (*TIERS, "documents", "contaminated")
MARK_SCHEMA = pa.schema(
    [("id", pa.string()), ("contaminated", pa.bool_()), ("tier", pa.string()), ("best_score", pa.float64())]
)
_KEY_FIELDS = tuple((name, pa.string()) for name in ITEM_KEY)
_FOUND_FIELDS = (
    ("tier", pa.string()),
    ("score", pa.float64()),
    ("start_byte", pa.int64()),
    ("end_byte", pa.int64()),
    ("longest_run", pa.int64()),
)
MATCH_SCHEMA = pa.schema([("id", pa.string()), *_KEY_FIELDS, ("channel", pa.string()), *_FOUND_FIELDS])
"""One row for each document, item and channel, sorted by document."""
HOLDER_SCHEMA = pa.schema(
    [
        *_KEY_FIELDS,
        ("id", pa.string()),
        ("channel", pa.string()),
        ("source", pa.string()),
        ("part", pa.string()),
        *_FOUND_FIELDS,
    ]
)
"""The same rows sorted by item, with the source and the part that hold the document."""
_COUNT_FIELDS = (("num_documents", pa.int64()), ("num_partial", pa.int64()))
HELD_SCHEMA = pa.schema([*_KEY_FIELDS, *_COUNT_FIELDS])
"""Items that documents of a shard hold, and how many documents hold each whole and in part."""
ITEM_STATUS_SCHEMA = pa.schema([*_KEY_FIELDS, ("status", pa.string()), *_COUNT_FIELDS])


@dataclass(frozen=True)
class Piece:
    """Row groups `low` to `high` of a part of a source: the work of one shard."""

    source: str
    part: Path
    low: int
    high: int
    judged: bool = False

    @property
    def name(self) -> str:
        return f"{self.part.stem}-{self.low:05d}"

    def without_documents(self) -> "Piece":
        """Return the piece for a task that reads its tables only, so that nobody fetches its documents."""
        return replace(self, part=Path(self.part.name))

    def table(self, scratch: Folder, kind: str) -> Path:
        """Return the place of one of the piece's tables until they are joined with those of the others."""
        return scratch / f"{'judged' if self.judged else 'scanned'}/{kind}/{self.name}.parquet"

    def documents(self) -> Iterator[pl.DataFrame]:
        """Yield the ids and texts, one row group in memory at a time."""
        with pq.ParquetFile(self.part) as file:
            for group in range(self.low, self.high):
                yield as_frame(file.read_row_group(group, columns=["id", "text"], use_threads=False))


type FoundMatch = tuple[str, ChannelMatch]
"""A document's id, and a channel that it holds."""


def named(matches: Sequence[FoundMatch], names: pl.DataFrame) -> pl.DataFrame:
    """Return MATCH_SCHEMA rows. `names` [channels]: the item key and the name of every channel."""
    channels = names[[match.channel for _, match in matches]]
    values = [(m.tier, m.score, m.start_byte, m.end_byte, m.longest_run) for _, m in matches]
    rows = pl.DataFrame(values, schema=[name for name, _ in _FOUND_FIELDS], orient="row") if matches else _nothing()
    ids = pl.DataFrame({"id": pl.Series([document for document, _ in matches], dtype=pl.String)})
    return pl.concat([ids, channels, rows], how="horizontal").select(MATCH_SCHEMA.names)


def write_piece(scratch: Path, piece: Piece, ids: pl.Series, matches: pl.DataFrame) -> dict[str, int]:
    """Write the tables of one shard from the matches of all its documents `ids`; return counts in all and by tier."""
    held = matches.with_columns(source=pl.lit(piece.source), part=pl.lit(piece.part.name))
    _write(piece.table(scratch, MATCHES), matches.sort("id", *ITEM_KEY, "channel"), MATCH_SCHEMA)
    _write(piece.table(scratch, HOLDERS), held.select(HOLDER_SCHEMA.names).sort(HOLDER_SCHEMA.names), HOLDER_SCHEMA)
    marks = _marks(ids, matches)
    _write(piece.table(scratch, MARKS), marks, MARK_SCHEMA)
    held_items = matches.filter(pl.col("tier").is_in(DOUBTED_TIERS)).group_by(ITEM_KEY)
    of_tiers = {"num_documents": pl.col("tier").is_in(STANDING_TIERS), "num_partial": pl.col("tier") == PARTIAL}
    counted = {name: pl.col("id").filter(kind).n_unique().cast(pl.Int64) for name, kind in of_tiers.items()}
    _write(piece.table(scratch, HELD), held_items.agg(**counted), HELD_SCHEMA)
    of_tier = dict(matches.group_by("tier").agg(pl.col("id").n_unique()).iter_rows())
    return {"documents": len(ids), "contaminated": int(marks["contaminated"].sum()), **of_tier}


def _nothing() -> pl.DataFrame:
    types = {pa.string(): pl.String, pa.float64(): pl.Float64, pa.int64(): pl.Int64}
    return pl.DataFrame(schema={name: types[kind] for name, kind in _FOUND_FIELDS})


def _marks(ids: pl.Series, matches: pl.DataFrame) -> pl.DataFrame:
    rank = {tier: rank for rank, tier in enumerate(TIERS)}
    best = matches.group_by("id").agg(
        tier=pl.col("tier").sort_by(pl.col("tier").replace_strict(rank, return_dtype=pl.Int8)).first(),
        best_score=pl.col("score").max(),
    )
    marks = ids.to_frame("id").join(best, on="id", how="left", maintain_order="left")
    marks = marks.with_columns(pl.col("tier").fill_null(""), pl.col("best_score").fill_null(0.0))
    return marks.with_columns(contaminated=pl.col("tier").is_in(STANDING_TIERS))


def join_marks(folder: Path, name: str, tables: Sequence[Path]) -> dict[str, int]:
    """One shard: write the marks of a part beside its documents: same name, rows and order."""
    _copy(tables, folder / MARKS / name, MARK_SCHEMA)
    return {}


def join_matches(target: Path, scratch: Path, pieces: Sequence[Piece]) -> None:
    """Write `matches.parquet` and `item_documents.parquet`."""
    _copy(tables_of(scratch, MATCHES, pieces), target / f"{MATCHES}.parquet", MATCH_SCHEMA)
    merge_tables(tables_of(scratch, HOLDERS, pieces), target / f"{HOLDERS}.parquet", HOLDER_SCHEMA, scratch)


def tables_of(scratch: Folder, kind: str, pieces: Sequence[Piece]) -> list[Path]:
    """Return the places of one table of each piece."""
    return [piece.table(scratch, kind) for piece in pieces]


def _copy(paths: Sequence[Path], target: Path, schema: pa.Schema) -> None:
    """Yield the rows of tables one after the other: pieces are in id order. One table keeps its bytes."""
    if len(paths) == 1:
        target.parent.mkdir(parents=True, exist_ok=True)
        copyfile(paths[0], target)
        return
    with writing_part(target, schema) as out:
        for path in paths:
            for table in iterate_part(path):
                out.write(table)


@dataclass(frozen=True)
class Counts:
    """Counts of the whole source. `items`: HELD_SCHEMA; `by_tier`: documents."""

    items: pl.DataFrame
    by_tier: Mapping[Tier, int]
    documents: int
    contaminated: int


def count(scratch: Path, tallies: Mapping[Piece, Mapping[str, Any]]) -> Counts:
    """Add up what `write_piece` reported for the shards: a document lies in one of them."""
    items = summed(tables_of(scratch, HELD, list(tallies)), ITEM_KEY)
    total = Counter[str]()
    for tally in tallies.values():
        total.update({name: int(tally.get(name, 0)) for name in TALLIED})
    return Counts(items, {tier: total[tier] for tier in TIERS}, total["documents"], total["contaminated"])


def summed(paths: Sequence[Path], key: Sequence[str]) -> pl.DataFrame:
    """Sum counts of several shards, one row a key. It reads a few tables at a time, so memory holds keys and not all
    shards.
    """
    total: list[pl.DataFrame] = []
    for some in batched(paths, SUMMED_AT_ONCE):
        total = [pl.concat([*total, pl.read_parquet(list(some))]).group_by(key).sum()]
    return pl.concat(total)


def pieces_with(scratch: Folder, pieces: Sequence[Piece], channels: pl.DataFrame) -> list[Piece]:
    """Return pieces that match some channels (the item key and the name of each); it reads a few tables at a time, as
    `summed`.
    """
    of_path, having = {str(piece.table(scratch, MATCHES)): piece for piece in pieces}, []
    for some in batched(of_path, SUMMED_AT_ONCE):
        matches = pl.scan_parquet(list(some), include_file_paths="path").select("path", *channels.columns).collect()
        held = set(matches.join(channels, on=channels.columns, how="semi")["path"])
        having += [of_path[path] for path in some if path in held]
    return having


def write_statuses(
    path: Path, items: pl.DataFrame, matchable: pl.Series, in_part: pl.Series, cleared: pl.DataFrame, counts: Counts
) -> pl.DataFrame:
    """Return ITEM_STATUS_SCHEMA of every item. `matchable`: rows of the items with a channel that can be matched.
    `in_part`: rows of items of whose question half or an edited copy would be found too. `cleared`: items with matches on a
    template's words. These, and matches in part, are no evidence for or against a leak.
    """
    is_doubted = pl.col("is_cleared").is_not_null() | (pl.col("num_partial") > 0)
    status = (
        pl.when(pl.col("num_documents") > 0)
        .then(pl.lit(MATCHED))
        .when(~pl.int_range(pl.len()).is_in(matchable.unique().implode()) | is_doubted)
        .then(pl.lit(UNKNOWN))
        .when(pl.int_range(pl.len()).is_in(in_part.unique().implode()))
        .then(pl.lit(CLEAN))
        .otherwise(pl.lit(WHOLE_ONLY))
    )
    joined = items.select(ITEM_KEY).join(counts.items, on=ITEM_KEY, how="left", maintain_order="left")
    listed = cleared.select(*ITEM_KEY, is_cleared=pl.lit(True))
    joined = joined.join(listed, on=ITEM_KEY, how="left", maintain_order="left")
    statuses = joined.with_columns(pl.col("num_documents", "num_partial").fill_null(0)).with_columns(status=status)
    _write(path, statuses, ITEM_STATUS_SCHEMA)
    return statuses


def clean_texts(scratch: Path, pieces: Sequence[Piece], num_texts: int, bring: Callable[[Path], None]) -> list[str]:
    """Return texts of the first documents without a match (ids are hashes, so the first are as good as random).

    `bring` fetches a part and a table of marks before it is read (`lineage.writing.writer.Writer.bring`).
    """
    sampled: list[str] = []
    for part, of_part in groupby(pieces, key=lambda piece: piece.part):
        bring(part)
        tiers = _tiers(tables_of(scratch, MARKS, list(of_part)), bring)
        texts = chain.from_iterable(iterate_texts(part))
        clean = (text for text, tier in zip(texts, tiers, strict=True) if tier == "")
        sampled += islice(clean, num_texts - len(sampled))
        if len(sampled) == num_texts:
            break
    return sampled


def _tiers(marks: Sequence[Path], bring: Callable[[Path], None]) -> Iterator[str]:
    for path in marks:
        bring(path)
        yield from pl.read_parquet(path, columns=["tier"])["tier"]


def _write(path: Path, frame: pl.DataFrame, schema: pa.Schema) -> None:
    write_parquet(path, frame.select(schema.names).to_arrow().cast(schema))
