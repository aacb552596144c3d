"""The stage `datakit.normalize`: any record becomes a document with a content id, or a counted drop with its reason.

Runs of whitespace longer than 128 characters are capped (128 is the longest run that one Llama token absorbs; multi-megabyte
runs made Marin's tokenizers run out of memory, marin#4588). Raw files are parsed in shards of about 8 MiB that survive a kill;
the merge sorts by id and keeps the first record of every id, so the result depends on neither workers nor shard order.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from datakit.documents import DOCUMENTS, TARGET_PART_BYTES, write_parquet, write_sorted_parts
from datakit.raw import FILES
from datakit.readers import read_file
from datakit.record import Record, Unreadable
from datakit.schemas import DOCUMENT_SCHEMA, DROPPED_SCHEMA
from datakit.sources import Domain, Format, Records
from lineage.digests import text_digest
from lineage.stage import Stage
from lineage.store import SCRATCH_FOLDER, Artifact, Writer

SHARD_BYTES = 8 << 20
SAMPLES_PER_REASON = 20
SAMPLE_CHARS = 200
PARSED_SCHEMA = pa.schema([*DOCUMENT_SCHEMA, pa.field("order", pa.int64())])


@dataclass(frozen=True)
class NormalizeConfig:
    """How a source's files are read and its texts cleaned."""

    source: str
    format: Format | Records
    domain: Domain
    max_whitespace_run_chars: int = 128
    target_part_bytes: int = TARGET_PART_BYTES

    def __post_init__(self) -> None:
        if self.format == "none":
            raise ValueError(f"source {self.source} has format 'none': its files are no documents and cannot be normalized")
        if self.max_whitespace_run_chars < 1:
            raise ValueError(f"max_whitespace_run_chars is {self.max_whitespace_run_chars}; it must be at least 1")


def normalize(out: Writer, config: NormalizeConfig, raw: Artifact) -> None:
    """Write `documents/part-*.parquet` and `dropped.parquet`. Raises ValueError when no document survives."""
    files = [(path.relative_to(raw.folder() / FILES).as_posix(), path) for path in raw.files(under=f"{FILES}/")]
    if not files:
        raise ValueError(f"source {config.source}: {raw.name} holds no file below {FILES}/; materialize it again")
    tasks = {f"parse-{i:05d}": (i, group, config) for i, group in enumerate(_groups(files))}
    parsed = out.map_shards(parse_shard, tasks)
    scratch = out.folder / SCRATCH_FOLDER
    documents = pl.concat([pl.read_parquet(path) for path in sorted(scratch.glob("parsed-*.parquet"))])
    dropped = pl.concat([pl.read_parquet(path) for path in sorted(scratch.glob("dropped-*.parquet"))])
    unique = documents.sort("id", "order").unique(subset="id", keep="first", maintain_order=True)
    drops: dict[str, int] = dict(dropped.group_by("reason").len().sort("reason").iter_rows())
    if documents.height > unique.height:
        drops["exact_duplicate"] = documents.height - unique.height
    rows_in = documents.height + dropped.height
    if not unique.height:
        raise ValueError(f"source {config.source}: no document survives of {rows_in} records; dropped: {drops}")
    write_sorted_parts(out.folder, DOCUMENTS, unique, config.target_part_bytes)
    write_parquet(out.folder / "dropped.parquet", _samples(documents, unique, dropped))
    out.facts["documents"] = {"domain": config.domain}
    out.record(
        rows_in=rows_in,
        rows_out=unique.height,
        drops=drops,
        bytes_in=sum(path.stat().st_size for _, path in files),
        bytes_out=int(unique["text"].str.len_bytes().sum()),
        whitespace_runs_capped=sum(int(str(statistics["whitespace_runs_capped"])) for statistics in parsed.values()),
    )


def _samples(documents: pl.DataFrame, unique: pl.DataFrame, dropped: pl.DataFrame) -> pa.Table:
    """The first few drops of every reason, repeated documents included, in the order of the source."""
    again = documents.join(unique.select("id", "order"), on=["id", "order"], how="anti").sort("order")
    repeated = again.select(
        pl.col("metadata").str.json_path_match("$.source_id").alias("source_id"),
        pl.lit("exact_duplicate").alias("reason"),
        pl.col("text").str.slice(0, SAMPLE_CHARS).alias("sample"),
    )
    every = pl.concat([dropped, repeated])
    first = every.filter(pl.int_range(pl.len()).over("reason") < SAMPLES_PER_REASON)
    return first.select(DROPPED_SCHEMA.names).to_arrow().cast(DROPPED_SCHEMA)


NORMALIZE = Stage("datakit.normalize", "2", normalize)


def parse_shard(folder: Path, index: int, files: list[tuple[str, Path]], config: NormalizeConfig) -> dict[str, int]:
    """Parse some raw files into intermediate documents and drops. `order` numbers records over the whole source."""
    rows: list[tuple[str, str, str, str, int]] = []
    dropped: list[tuple[str, str, str]] = []
    capped = 0
    # The look-behind tries every run once: without it 10 MB of runs of 128 take 4.9 s, with it .3 s.
    pattern = re.compile(rf"(?<!\s)\s{{{config.max_whitespace_run_chars + 1},}}")
    records = (record for name, path in files for record in read_file(config.format, name, path))
    for number, record in enumerate(records):
        text, runs, reason = clean(record, pattern, config.max_whitespace_run_chars)
        capped += runs
        source_id = _encodable(record.source_id)
        if text is None:
            sample = (record.text or "") if isinstance(record, Record) else ""
            dropped.append((source_id, reason, _encodable(sample[:SAMPLE_CHARS])))
        else:
            assert isinstance(record, Record)  # what cannot be read has no text
            kept = {name: _encodable(value) for name, value in record.fields.items()}
            metadata = json.dumps({"source_id": source_id, **kept}, ensure_ascii=False)
            rows.append((text_digest(text), text, config.source, metadata, (index << 40) | number))
    scratch = folder / SCRATCH_FOLDER
    scratch.mkdir()
    _write_rows(scratch / f"parsed-{index:05d}.parquet", rows, PARSED_SCHEMA)
    _write_rows(scratch / f"dropped-{index:05d}.parquet", dropped, DROPPED_SCHEMA)
    return {"documents": len(rows), "dropped": len(dropped), "whitespace_runs_capped": capped}


def clean(record: Record | Unreadable, long_runs: re.Pattern[str], cap: int) -> tuple[str | None, int, str]:
    """(text, capped runs, "") of a record worth keeping, or (None, 0, reason)."""
    if isinstance(record, Unreadable):
        return None, 0, record.reason
    if record.text is None or not record.text:
        return None, 0, "empty"
    if record.text.isspace():
        return None, 0, "whitespace_only"
    if not _is_encodable(record.text):
        return None, 0, "lone_surrogate"
    text, runs = long_runs.subn(lambda match: match.group()[:cap], record.text)
    return text, runs, ""


def _is_encodable(text: str) -> bool:
    """Whether UTF-8 can hold a text; lone surrogates are all that it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encodable(name: str) -> str:
    """A name or sample with lone surrogates written as `\\udc80`: a bad file name or title must not stop its source."""
    return name.encode("utf-8", "backslashreplace").decode()


def _groups(files: list[tuple[str, Path]]) -> Iterator[list[tuple[str, Path]]]:
    """Runs of files of about `SHARD_BYTES`, in name order."""
    group: list[tuple[str, Path]] = []
    size = 0
    for name, path in files:
        group.append((name, path))
        size += path.stat().st_size
        if size >= SHARD_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _write_rows(path: Path, rows: list[tuple], schema: pa.Schema) -> None:
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    arrays = [pa.array(list(column), type=f.type) for column, f in zip(columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd", compression_level=1)
