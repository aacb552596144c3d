"""Shards of parsing: several small files, one file, or a piece of a large one.

A map cuts the large files, each where it is read. A compressed record file of several gzip members or zstd frames is read in
pieces, whose lines are counted in a map of its own. One of a single member or frame is one piece; if it is large, another map
writes its lines as files first. All these maps survive a kill, and no output depends on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from datakit.documents.sorted_runs import Cut
from datakit.readers.lines import Span, compression_of
from datakit.readers.packed_cuts import count_part, packed_parts, packed_spans, write_plain_parts
from datakit.readers.record_files import spans
from datakit.sources.record import is_damage
from datakit.sources.remote import FILES
from datakit.sources.source import Format, Records
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.writing.writer import Writer

type Piece = tuple[str, Path, Span | None]
"""Name of a raw file, the path where it is read, and which piece of it if it is cut."""

PARTS = f"{SCRATCH_FOLDER}/parts"


@dataclass(frozen=True)
class RawFile:
    """A file of a source: its name, the path where it is read, and its bytes by the manifest."""

    name: str
    path: Path
    bytes: int


@dataclass(frozen=True)
class _Packed:
    """A large compressed file: its number, path and parts."""

    number: int
    path: Path
    parts: Sequence[tuple[int, int]]

    def is_rewritten(self, cut: Cut) -> bool:
        """Whether one of its parts is so large that its lines are written as files first."""
        return max(stop - start for start, stop in self.parts) > cut.rewritten_bytes


def raw_files(out: Writer, raw: Artifact) -> list[RawFile]:
    """Return the files of a source in name order; on a bucket a file is fetched where a task that names it runs."""
    entries = sorted((e for e in raw.manifest.files if e.path.startswith(f"{FILES}/")), key=lambda entry: entry.path)
    paths = out.input_files(raw, under=f"{FILES}/")
    return [RawFile(e.path.removeprefix(f"{FILES}/"), path, e.bytes) for e, path in zip(entries, paths, strict=True)]


def groups_of_pieces(
    out: Writer, files: Sequence[RawFile], format: Format | Records, cut: Cut
) -> Iterator[tuple[int, list[Piece]]]:
    """Yield bytes and pieces of shards of about `cut.shard_bytes` in name order."""
    cuts = _cut_pieces(out, files, format, cut) if isinstance(format, Records) else {}
    group: list[Piece] = []
    size = 0
    for number, file in enumerate(files):
        pieces = cuts.get(number) or [(file.name, file.path, None)]
        for piece in pieces:
            group.append(piece)
            size += file.bytes // len(pieces)
            if size >= cut.shard_bytes or piece[-1] is not None:
                yield size, group
                group, size = [], 0
    if group:
        yield size, group


def cut_file(folder: Path, path: Path, format: Records, shard_bytes: int) -> dict[str, list[Any]]:
    """One shard: say where to cut a large file. `parts`: of a compressed one, byte ranges whose lines are still to be counted;
    `spans`: of others, whole pieces. A damaged file has neither, so that its reader says where.
    """
    del folder
    try:
        if format.container == "jsonl" and compression_of(path) is not None:
            return {"parts": [list(part) for part in packed_parts(path, shard_bytes)]}
        return {"spans": [list(astuple(span)) for span in spans(format, path, shard_bytes) if span is not None]}
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        return {}


def _cut_pieces(out: Writer, files: Sequence[RawFile], format: Records, cut: Cut) -> Mapping[int, list[Piece]]:
    """Return the pieces of the large files that have several, by the file's number."""
    large = {f"cut-{number:05d}": number for number, file in enumerate(files) if file.bytes > cut.shard_bytes}
    tasks = {name: (files[number].path, format, cut.shard_bytes) for name, number in large.items()}
    made = out.map_shards(cut_file, tasks, lazy=True, in_runs=out.fetches_inputs) if tasks else {}
    pieces, packed = dict[int, list[Piece]](), list[_Packed]()
    for name, number in large.items():
        file, done = files[number], made[name]
        pieces[number] = [(file.name, file.path, Span(*span)) for span in done.get("spans", ())]
        if done.get("parts"):
            packed.append(_Packed(number, file.path, [(start, stop) for start, stop in done["parts"]]))
    return pieces | _packed_pieces(out, files, packed, cut)


def _packed_pieces(out: Writer, files: Sequence[RawFile], large: Sequence[_Packed], cut: Cut) -> dict[int, list[Piece]]:
    """Return the pieces of the large compressed files that have several, by the file's number."""
    rewritten = [file for file in large if file.is_rewritten(cut)]
    counted = [file for file in large if not file.is_rewritten(cut) and len(file.parts) > 1]
    pieces = {
        file.number: _rewritten_pieces(out, files[file.number].name, made) for file, made in _rewrite(out, rewritten, cut)
    }
    for file, counts in _count(out, counted):
        pieces[file.number] = [(files[file.number].name, file.path, span) for span in packed_spans(file.parts, counts)]
    return pieces


def _count(out: Writer, files: Sequence[_Packed]) -> Iterator[tuple[_Packed, list[Mapping[str, Any]]]]:
    names = {file.number: [f"count-{file.number:05d}-{i:05d}" for i in range(len(file.parts))] for file in files}
    parts = ((name, file, part) for file in files for name, part in zip(names[file.number], file.parts, strict=True))
    tasks = {name: (file.path, *part) for name, file, part in parts}
    counts = out.map_shards(count_part, tasks, lazy=True, in_runs=out.fetches_inputs) if tasks else {}
    for file in files:
        yield file, [counts[name] for name in names[file.number]]


def _rewrite(out: Writer, files: Sequence[_Packed], cut: Cut) -> Iterator[tuple[_Packed, Mapping[str, Any]]]:
    tasks = {f"rewrite-{file.number:05d}": (file.path, f"{PARTS}/{file.number:05d}", cut.run_bytes) for file in files}
    made = out.map_shards(write_plain_parts, tasks, lazy=True, in_runs=out.fetches_inputs) if tasks else {}
    for file, name in zip(files, tasks, strict=True):
        yield file, made[name]


def _rewritten_pieces(out: Writer, name: str, made: Mapping[str, Any]) -> list[Piece]:
    """Return the files that hold the lines of a file; none if it is damaged, so that its reader says where."""
    pieces: list[Piece] = []
    before = 0
    for part, size, line_ends in made["parts"] if made["is_whole"] else ():
        pieces.append((name, out.folder / part, Span(0, size, before)))
        before += line_ends
    return pieces
