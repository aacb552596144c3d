"""Readers of record files: JSONL (plain, gzip, zstd), Parquet and Arrow, streamed.

They read from the path, not from bytes in memory: a shard of a web corpus is a gigabyte. A bad record is one named drop; a
file that is damaged as a whole stops with its name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datakit.conversations import conversation_record
from datakit.record import Record, Unreadable
from datakit.sources import EndsWith, OneOf, Records

ROWS_PER_BATCH = 1024
COMPRESSIONS = MappingProxyType({b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"})
"""By the first bytes, because names differ: `.zst`, `.zstd`, `.json.gz`, none."""

ARROW_FILE = b"ARROW1"


def read_records(format: Records, name: str, path: Path) -> Iterator[Record | Unreadable]:
    """Records of one file. Raises ValueError for a damaged file, or one where no record has the text field."""
    fields: set[str] = set()
    for place, row in _rows(format, name, path):
        if isinstance(row, Unreadable):
            yield row
            continue
        fields |= set(row)
        source_id = _source_id(format, row, place)
        if not all(_passes(rule, row) for rule in format.only):
            yield Unreadable(source_id, "not_selected")
        else:
            yield _document(format, source_id, row)
    if fields:
        _check_field(format, name, fields)


def value(row: Mapping[str, Any], field: str) -> Any:
    """A field of a record, by its dotted path; None where it is not. `metadata` may itself be a JSON string."""
    found: Any = row
    for part in field.split("."):
        if isinstance(found, str):
            try:
                found = json.loads(found)
            except json.JSONDecodeError:
                return None
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _passes(rule: OneOf | EndsWith, row: Mapping[str, Any]) -> bool:
    found = value(row, rule.field)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]  # Common Pile keeps a file's one extension in a list
    if isinstance(rule, OneOf):
        return found in rule.values
    return isinstance(found, str) and found.endswith(rule.suffixes)


def _source_id(format: Records, row: Mapping[str, Any], place: str) -> str:
    found = value(row, format.id) if format.id is not None else None
    return place if found is None or found == "" else str(found)


def kept_fields(format: Records, row: Mapping[str, Any]) -> dict[str, str]:
    """The fields to keep that a record has, as text (JSON where they are no strings)."""
    found = {name: value(row, name) for name in format.keep}
    return {
        name: kept if isinstance(kept, str) else json.dumps(kept, ensure_ascii=False, default=str)
        for name, kept in found.items()
        if kept is not None
    }


def _document(format: Records, source_id: str, row: Mapping[str, Any]) -> Record | Unreadable:
    found, kept = value(row, format.text), kept_fields(format, row)
    if format.form == "text":
        return _record(source_id, found, kept)
    return conversation_record(source_id, found, kept, None if format.tools is None else value(row, format.tools))


def _record(source_id: str, text: object, fields: Mapping[str, str]) -> Record | Unreadable:
    if text is None or isinstance(text, str):
        return Record(source_id, text, fields)
    return Unreadable(source_id, "not_text")


def _check_field(format: Records, name: str, found: Iterable[str]) -> None:
    wanted = format.text.split(".")[0]
    if wanted not in found:
        raise ValueError(f"{name}: no record has the field {wanted!r}; the records have: {', '.join(sorted(found))}")


def _rows(format: Records, name: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    """(place, record) of a file; places count from 1, as editors count lines."""
    try:
        if format.container == "jsonl":
            yield from _json_lines(name, path)
        else:
            batches = _parquet(format, name, path) if format.container == "parquet" else _arrow(path)
            rows = (row for batch in batches for row in batch.to_pylist())
            yield from ((f"{name}:{number}", row) for number, row in enumerate(rows, start=1))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"{name}: not a whole {format.container} file ({error}); fetch or restore it") from error


def _parquet(format: Records, name: str, path: Path) -> Iterator[pa.RecordBatch]:
    """Only the columns that the format names: a web corpus has twenty more."""
    with pq.ParquetFile(path) as file:
        there = file.schema_arrow.names
        _check_field(format, name, there)
        named = (
            format.text,
            format.id or format.text,
            format.tools or format.text,
            *(rule.field for rule in format.only),
            *format.keep,
        )
        columns = sorted({field.split(".")[0] for field in named} & set(there))
        yield from file.iter_batches(ROWS_PER_BATCH, columns=columns)


def _arrow(path: Path) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as stream:
        is_file = stream.read(len(ARROW_FILE)) == ARROW_FILE
    with pa.memory_map(str(path)) as stream:
        if is_file:
            reader = pa.ipc.open_file(stream)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            yield from pa.ipc.open_stream(stream)


def _json_lines(name: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any] | Unreadable]]:
    with decompressed(path) as stream:
        for number, line in enumerate(_lines(stream), start=1):
            if line.strip():
                yield (place := f"{name}:{number}"), _parse(place, line)


def decompressed(path: Path) -> pa.NativeFile:
    """The bytes of a plain, gzip or zstd file. Reading raises OSError where a compressed file is cut or damaged."""
    with path.open("rb") as raw:
        head = raw.read(4)
    compression = next((kind for magic, kind in COMPRESSIONS.items() if head.startswith(magic)), None)
    return pa.input_stream(str(path), compression=compression)


def _lines(stream: Any) -> Iterator[bytes]:
    """Lines at b"\\n" alone: text holds the other line ends that `splitlines` would cut at."""
    rest = b""
    while piece := stream.read(1 << 20):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _parse(place: str, line: bytes) -> Mapping[str, Any] | Unreadable:
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        return Unreadable(place, "invalid_utf8")
    except (json.JSONDecodeError, RecursionError):
        return Unreadable(place, "unparsable")
    return row if isinstance(row, dict) else Unreadable(place, "not_text")
