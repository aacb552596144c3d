"""Look at files of text that nobody has declared yet: which formats they have, how much text, how many words.

`marin train` and `marin init` make a declared source of what is found.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from datakit.readers.lines import decompressed
from datakit.readers.read import read_file
from datakit.readers.record_files import read_records
from datakit.sources.file_choice import is_held_out
from datakit.sources.record import Record
from datakit.sources.source import Domain, Format, Records

SAMPLE_CHARS = 4_000_000
PASSAGE_FILE_BYTES = 64_000
"""Text files that are larger on average hold many passages each, and are cut into documents."""
COMPRESSED_RATIO = 3
"""Bytes of text in a byte of a compressed file, roughly."""
HEAD_BYTES = 1 << 13
FIRST_LINE_BYTES = 1 << 22
TEXT_FIELDS = ("text", "content", "body", "document")
RECORDS = "records"
_WORD = re.compile(r"\w+|[^\w\s]+")


@dataclass(frozen=True)
class Kind:
    """Files that are read alike: by suffix, with the format and the domain of their source."""

    name: str
    suffixes: tuple[str, ...]
    format: Format
    domain: Domain


KINDS = (
    Kind("text", (".txt", ".text", ".rst"), "text", "prose"),
    Kind("markdown", (".md", ".markdown"), "markdown", "docs"),
    Kind("html", (".html", ".htm"), "html", "web"),
    Kind("code", (".py", ".c", ".h", ".cpp", ".rs", ".go", ".js", ".ts", ".java", ".sh"), "python", "code"),
)
CONTAINERS = {".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".jsonl.zst": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True)
class TextFiles:
    """Files of one kind below a folder: names relative to it, and how their source reads them."""

    kind: str
    suffixes: tuple[str, ...]
    """As the names spell them."""

    names: tuple[str, ...]
    format: Format | Records
    domain: Domain
    num_bytes: int


@dataclass(frozen=True)
class Survey:
    """What lies below `folder`. `left_out`: names of files by the reason why they are not read."""

    folder: Path
    text_files: tuple[TextFiles, ...]
    left_out: dict[str, tuple[str, ...]]
    num_words: int
    """Different words of the sample that occur at least twice: a tokenizer has a token for most of them."""

    num_documents: int
    """Documents, estimated from the sample."""

    @property
    def num_bytes(self) -> int:
        return sum(kind.num_bytes for kind in self.text_files)


def survey(folder: Path, names: Sequence[str], text_field: str | None = None) -> Survey:
    """Look at files below a folder.

    Raises: ValueError if none of them holds text that a reader reads.
    """
    left_out: dict[str, list[str]] = {}
    chosen: dict[str, list[str]] = {}
    for name in sorted(names):
        kind = _kind_of(name)
        reason = _refusal(folder / name, name, kind)
        (left_out.setdefault(reason, []) if reason else chosen.setdefault(str(kind), [])).append(name)
    if not chosen:
        raise ValueError(f"{folder} holds no text: {_reasons(left_out, len(names))}; read are {', '.join(suffixes())}")
    kinds = tuple(_text_files(folder, kind_name, tuple(files), text_field) for kind_name, files in chosen.items())
    words, documents, characters = Counter[str](), 0, 0
    for text in _sample(folder, kinds):
        words.update(_WORD.findall(text[:SAMPLE_CHARS]))
        documents, characters = documents + 1, characters + len(text)
    if not documents:
        raise ValueError(f"{folder} holds no text: none of {len(names)} files has a record that can be read")
    whole = sum(each.num_bytes for each in kinds)
    estimate = documents if characters < SAMPLE_CHARS else round(documents * whole / characters)
    kept = {reason: tuple(files) for reason, files in left_out.items()}
    return Survey(folder, kinds, kept, sum(count > 1 for count in words.values()), estimate)


def suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that are read."""
    return (*(suffix for kind in KINDS for suffix in kind.suffixes), *CONTAINERS)


def _kind_of(name: str) -> str | None:
    lower = name.lower()
    if lower.endswith(tuple(CONTAINERS)):
        return RECORDS
    return next((kind.name for kind in KINDS if lower.endswith(kind.suffixes)), None)


def _refusal(path: Path, name: str, kind: str | None) -> str:
    """Return why a file is not read; empty if it is."""
    if kind is None:
        return "of another suffix"
    if is_held_out(name):
        return "named like a test or validation split"
    if not path.stat().st_size:
        return "empty"
    if kind == RECORDS:
        return ""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    return "binary" if b"\0" in head else ""


def _reasons(left_out: dict[str, list[str]], total: int) -> str:
    if not total:
        return "it has no file"
    reasons = (f"{len(names)} {reason} ({names[0]})" for reason, names in left_out.items())
    return f"of {total} files are {', '.join(reasons)}"


def _text_files(folder: Path, kind: str, names: tuple[str, ...], text_field: str | None) -> TextFiles:
    sizes = [(folder / name).stat().st_size for name in names]
    if kind == RECORDS:
        used = _spelled(names, tuple(CONTAINERS))
        containers = {CONTAINERS[suffix.lower()] for suffix in used}
        if len(containers) > 1:
            raise ValueError(f"{folder} holds both JSONL and Parquet; give the files of one of them")
        (container,) = containers
        form = _records(folder / names[0], names[0], container, text_field)
        packed = [
            size * (1 if name.lower().endswith(".jsonl") else COMPRESSED_RATIO) for name, size in zip(names, sizes, strict=True)
        ]
        return TextFiles(kind, used, names, form, "prose", sum(packed))
    known = next(each for each in KINDS if each.name == kind)
    used = _spelled(names, known.suffixes)
    long = known.format == "text" and sum(sizes) > PASSAGE_FILE_BYTES * len(names)
    return TextFiles(kind, used, names, "passages" if long else known.format, known.domain, sum(sizes))


def _spelled(names: Sequence[str], endings: Sequence[str]) -> tuple[str, ...]:
    """Return the endings that names have, as they spell them."""
    return tuple(sorted({name[-len(end) :] for end in endings for name in names if name.lower().endswith(end)}))


def _records(path: Path, name: str, container: str, text_field: str | None) -> Records:
    """Return how records are read: by the field given, or the first usual one that the first record has.

    Raises: ValueError with the fields that there are.
    """
    fields = _fields(path, container)
    field = text_field or next((each for each in TEXT_FIELDS if each in fields), None)
    if field is None or field not in fields:
        wanted = repr(field) if field else " or ".join(TEXT_FIELDS)
        raise ValueError(f"{name}: its records have no field {wanted}; they have {', '.join(fields)}: give --text-field")
    form = Records("parquet" if container == "parquet" else "jsonl", text=field, id="id" if "id" in fields else None)
    if not any(isinstance(record, Record) for record in islice(read_records(form, name, path), 100)):
        raise ValueError(f"{name}: field {field!r} holds no text in the first records; give another one with --text-field")
    return form


def _fields(path: Path, container: str) -> list[str]:
    if container == "parquet":
        return list(pq.read_schema(path).names)
    with decompressed(path) as stream:
        line = stream.read(FIRST_LINE_BYTES).partition(b"\n")[0]
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path.name}: its first line is not JSON ({error}); give JSONL, one object a line") from error
    return list(record) if isinstance(record, dict) else []


def _sample(folder: Path, kinds: Sequence[TextFiles]) -> Iterator[str]:
    """Yield texts, an equal share of the sample from each kind."""
    for each in kinds:
        left = SAMPLE_CHARS // len(kinds)
        records = (record for name in each.names for record in read_file(each.format, name, folder / name))
        for record in records:
            if isinstance(record, Record) and record.text:
                yield record.text
                left -= len(record.text)
            if left <= 0:
                break
