"""Readers of record files: JSONL (plain, gzip, zstd), Parquet and Arrow, streamed.

They read from the path, not from bytes in memory, because a shard of a web corpus is a gigabyte. A bad record is one
named drop, and so is one of more than `MAX_RECORD_BYTES`; a file that is damaged as a whole stops the source with its
name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datakit.readers.conversations import conversation_record
from datakit.readers.lines import MAX_RECORD_BYTES, READ_BYTES, Span, compression_of, numbered_lines
from datakit.readers.pairs import pair_record
from datakit.sources.record import Record, Unreadable, is_damage
from datakit.sources.source import EndsWith, OneOf, Records

ROWS_PER_BATCH = 1024
BATCH_BYTES = 8 << 20
TOO_LARGE = "record_too_large"
COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")
ARROW_FILE = b"ARROW1"


def spans(format: Records, path: Path, target_bytes: int) -> list[Span | None]:
    """Cut a file into pieces of about `target_bytes`; [None], the whole file, if it is small or compressed: pieces of those
    are made in steps (`datakit.readers.packed_cuts`).
    """
    if path.stat().st_size <= target_bytes:
        return [None]
    if format.container == "parquet":
        return list(_row_group_spans(path, target_bytes))
    if format.container == "jsonl" and compression_of(path) is None:
        return list(_line_spans(path, target_bytes))
    return [None]


def _row_group_spans(path: Path, target_bytes: int) -> Iterator[Span]:
    """Yield as many pieces of equal size as come closest to `target_bytes` of the file each."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    sizes = [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups]
    piece_bytes = sum(sizes) / max(1, round(sum(sizes) / target_bytes))
    start = size = rows = before = 0
    for index, group in enumerate(groups):
        size, rows = size + sizes[index], rows + group.num_rows
        if size >= piece_bytes or index + 1 == len(groups):
            yield Span(start, index + 1, before)
            start, size, before = index + 1, 0, rows


def _line_spans(path: Path, target_bytes: int) -> Iterator[Span]:
    size, ends = path.stat().st_size, 0
    with path.open("rb") as stream:
        for start in range(0, size, target_bytes):
            yield Span(start, min(start + target_bytes, size), ends)
            left = target_bytes - (1 if start == 0 else 0)  # Up to the byte before the next piece.
            while left and (piece := stream.read(min(left, READ_BYTES))):
                ends, left = ends + piece.count(b"\n"), left - len(piece)


def read_records(format: Records, name: str, path: Path, span: Span | None = None) -> Iterator[Record | Unreadable]:
    """Yield records of one file or of a piece of it.

    Raises: ValueError for a damaged file, or if no record (of its first piece) has the text field.
    """
    fields: set[str] = set()
    for place, row in _rows(format, name, path, span):
        if isinstance(row, Unreadable):
            yield row
            continue
        fields |= set(row)
        source_id = _source_id(format, row, place)
        if not all(_passes(rule, row) for rule in format.only):
            yield Unreadable(source_id, "not_selected")
        else:
            yield _document(format, source_id, row)
    if fields and (span is None or span.is_first):
        _check_field(format, name, fields)


def value(row: Mapping[str, Any], field: str) -> Any:
    """Return a field of a record by its dotted path; None if absent. `metadata` may itself be a JSON string."""
    first, *others = field.split(".")
    inner = row.get(first)
    for part in others:
        if isinstance(inner, str):
            try:
                inner = json.loads(inner)
            except (ValueError, RecursionError):
                return None
        if not isinstance(inner, Mapping):
            return None
        inner = inner.get(part)
    return inner


def _passes(rule: OneOf | EndsWith, row: Mapping[str, Any]) -> bool:
    field = value(row, rule.field)
    if isinstance(field, list) and len(field) == 1:
        field = field[0]  # Common Pile keeps a file's single extension in a list.
    if isinstance(rule, OneOf):
        return field in rule.values
    return isinstance(field, str) and field.endswith(rule.suffixes)


def _source_id(format: Records, row: Mapping[str, Any], place: str) -> str:
    source_id = value(row, format.id) if format.id is not None else None
    return place if source_id is None or source_id == "" else str(source_id)


def kept_fields(format: Records, row: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields to keep that a record has, as text (JSON if they are no strings)."""
    fields = {name: value(row, name) for name in format.keep}
    return {
        name: kept if isinstance(kept, str) else json.dumps(kept, ensure_ascii=False, default=str)
        for name, kept in fields.items()
        if kept is not None
    }


def _document(format: Records, source_id: str, row: Mapping[str, Any]) -> Record | Unreadable:
    content, kept = value(row, format.text), kept_fields(format, row)
    if format.form == "text":
        return _record(source_id, content, kept)
    if format.rejected is not None:
        prompt = None if format.prompt is None else value(row, format.prompt)
        return pair_record(source_id, content, value(row, format.rejected), prompt, kept)
    return conversation_record(source_id, content, kept, None if format.tools is None else value(row, format.tools))


def _record(source_id: str, text: object, fields: Mapping[str, str]) -> Record | Unreadable:
    if isinstance(text, str | bytes) and len(text) > MAX_RECORD_BYTES:  # Of a column; lines are never held.
        return Unreadable(source_id, TOO_LARGE)
    if isinstance(text, bytes):  # A column of bytes, from writers older than Parquet's string type.
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            return Unreadable(source_id, "invalid_utf8")
    if text is None or isinstance(text, str):
        return Record(source_id, text, fields)
    return Unreadable(source_id, "not_text")


def _check_field(format: Records, name: str, fields: Iterable[str]) -> None:
    wanted = format.text.split(".")[0]
    if wanted not in fields:
        raise ValueError(f"{name}: no record has the field {wanted!r}; the records have: {', '.join(sorted(fields))}")


def _rows(format: Records, name: str, path: Path, span: Span | None) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    """Yield (place, record) of a file; places count from 1, as editors count lines."""
    try:
        if format.container == "jsonl":
            yield from _json_lines(name, path, span)
        else:
            batches = _parquet(format, name, path, span) if format.container == "parquet" else _arrow(path)
            rows = (row for batch in batches for row in _batch_rows(batch))
            first = 1 if span is None else span.before + 1
            for number, row in enumerate(rows, start=first):
                yield (place := f"{name}:{number}"), Unreadable(place, "invalid_utf8") if row is None else row
    except (pa.ArrowException, OSError, EOFError) as error:
        if not is_damage(error):
            raise
        raise ValueError(f"{name}: not a whole {format.container} file ({error}); fetch or restore it") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: the name of a column is not UTF-8 ({error}); fetch or restore it") from error


def _batch_rows(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any] | None]:
    """Return rows of a batch; None for one that is not UTF-8, which neither Parquet nor Arrow guarantees."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            yield None
        else:
            for number in range(batch.num_rows):
                yield from _batch_rows(batch.slice(number, 1))


def _parquet(format: Records, name: str, path: Path, span: Span | None) -> Iterator[pa.RecordBatch]:
    """Read only the columns that the format names: a web corpus has twenty more. Row groups may be gigabytes, so a
    column is read through a buffer, and a batch holds fewer rows if rows are long.
    """
    with pq.ParquetFile(
        path, buffer_size=READ_BYTES, page_checksum_verification=True
    ) as file:  # For pages that have checksums.
        there = file.schema_arrow.names
        _check_field(format, name, there)
        named = (
            format.text,
            format.id or format.text,
            format.tools or format.text,
            format.rejected or format.text,
            format.prompt or format.text,
            *(rule.field for rule in format.only),
            *format.keep,
        )
        columns = sorted({field.split(".")[0] for field in named} & set(there))
        groups = range(file.num_row_groups) if span is None else range(span.start, span.stop)
        size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        batch_rows = max(1, min(ROWS_PER_BATCH, BATCH_BYTES * rows // max(size, 1)))
        yield from file.iter_batches(batch_rows, row_groups=list(groups), columns=columns, use_threads=False)


def _arrow(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as stream:
        is_file = stream.read(len(ARROW_FILE)) == ARROW_FILE
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.memory_map(str(path)) as stream:
        if is_file:
            reader = pa.ipc.open_file(stream, options=options)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = pa.ipc.open_stream(stream, options=options)
        for batch in batches:
            batch.validate(full=True)  # Offsets of a damaged file may point anywhere, and Arrow would read there.
            yield batch


def _json_lines(name: str, path: Path, span: Span | None) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    if name.endswith(COMPRESSED_SUFFIXES) and not path.stat().st_size:
        raise EOFError("it is empty")  # Plain text under such a name is possible: servers decompress what they send.
    for number, line in numbered_lines(path, span):
        if line is None:
            yield (place := f"{name}:{number}"), Unreadable(place, TOO_LARGE)
        elif line and not line.isspace():
            held = [line]
            del line  # A line of 100 MB is not held beside what is parsed of it.
            yield (place := f"{name}:{number}"), _parse(place, held)


def _parse(place: str, held: list[bytes | bytearray]) -> Mapping[str, Any] | Unreadable:
    """Parse the one line that a list holds, and take it out, so that it is freed when it is decoded."""
    line = held.pop()
    try:
        text = line.decode(json.detect_encoding(line), "surrogatepass")  # As `json.loads` does.
    except UnicodeDecodeError:
        return Unreadable(place, "invalid_utf8")
    del line
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):  # Not JSON, or a number with more digits than Python reads.
        return Unreadable(place, "unparsable")
    return row if isinstance(row, dict) else Unreadable(place, "not_text")
