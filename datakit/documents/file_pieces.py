"""Shards of parsing: several small files, one file, or a piece of a large one.

A compressed record file of several gzip members or zstd frames is read in pieces, whose lines are counted in a map of its
own. One of a single member or frame is one piece; if it is large, another map writes its lines as files first. Both maps
survive a kill, and no output depends on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datakit.documents.sorted_runs import Cut
from datakit.readers.lines import Span, compression_of
from datakit.readers.packed_cuts import count_part, packed_parts, packed_spans, write_plain_parts
from datakit.readers.record_files import spans
from datakit.sources.source import Format, Records
from lineage.shards.run import SCRATCH_FOLDER
from lineage.writing.writer import Writer

type Piece = tuple[str, Path, Span | None]
"""Name of a raw file, the path where it is read, and which piece of it if it is cut."""

PARTS = f"{SCRATCH_FOLDER}/parts"


@dataclass(frozen=True)
class _Packed:
    """A large compressed file: its number, path and parts."""

    number: int
    path: Path
    parts: Sequence[tuple[int, int]]

    def is_rewritten(self, cut: Cut) -> bool:
        """Whether one of its parts is so large that its lines are written as files first."""
        return max(stop - start for start, stop in self.parts) > cut.rewritten_bytes


def groups_of_pieces(
    out: Writer, files: Sequence[tuple[str, Path]], format: Format | Records, cut: Cut
) -> Iterator[tuple[int, list[Piece]]]:
    """Yield bytes and pieces of shards of about `cut.shard_bytes` in name order."""
    packed = _packed_pieces(out, files, format, cut)
    group: list[Piece] = []
    size = 0
    for number, (name, path) in enumerate(files):
        cuts = [(name, path, span) for span in spans(format, path, cut.shard_bytes)] if isinstance(format, Records) else None
        pieces = packed.get(number) or cuts or [(name, path, None)]
        for piece in pieces:
            group.append(piece)
            size += path.stat().st_size // len(pieces)
            if size >= cut.shard_bytes or piece[-1] is not None:
                yield size, group
                group, size = [], 0
    if group:
        yield size, group


def _packed_pieces(
    out: Writer, files: Sequence[tuple[str, Path]], format: Format | Records, cut: Cut
) -> Mapping[int, list[Piece]]:
    """Return the pieces of the large compressed files that have several, by the file's number."""
    if not isinstance(format, Records) or format.container != "jsonl":
        return {}
    large = [
        _Packed(number, path, packed_parts(path, cut.shard_bytes))
        for number, (_, path) in enumerate(files)
        if path.stat().st_size > cut.shard_bytes and compression_of(path) is not None
    ]
    rewritten = [file for file in large if file.is_rewritten(cut)]
    counted = [file for file in large if not file.is_rewritten(cut) and len(file.parts) > 1]
    pieces = {file.number: _rewritten_pieces(out, files[file.number][0], made) for file, made in _rewrite(out, rewritten, cut)}
    for file, counts in _count(out, counted):
        name, path = files[file.number]
        pieces[file.number] = [(name, path, span) for span in packed_spans(file.parts, counts)]
    return pieces


def _count(out: Writer, files: Sequence[_Packed]) -> Iterator[tuple[_Packed, list[Mapping[str, Any]]]]:
    names = {file.number: [f"count-{file.number:05d}-{i:05d}" for i in range(len(file.parts))] for file in files}
    parts = ((name, file, part) for file in files for name, part in zip(names[file.number], file.parts, strict=True))
    tasks = {name: (file.path, *part) for name, file, part in parts}
    counts = out.map_shards(count_part, tasks, lazy=True) if tasks else {}
    for file in files:
        yield file, [counts[name] for name in names[file.number]]


def _rewrite(out: Writer, files: Sequence[_Packed], cut: Cut) -> Iterator[tuple[_Packed, Mapping[str, Any]]]:
    tasks = {f"rewrite-{file.number:05d}": (file.path, f"{PARTS}/{file.number:05d}", cut.run_bytes) for file in files}
    made = out.map_shards(write_plain_parts, tasks, lazy=True) if tasks else {}
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
