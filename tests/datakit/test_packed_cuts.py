"""Pieces of compressed record files hold the records of the whole file, each once, wherever members and frames end."""

import gzip
import json
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datakit.readers import lines
from datakit.readers.packed_cuts import count_part, packed_parts, packed_spans, write_plain_parts
from datakit.readers.record_files import read_records, spans
from datakit.sources.record import Record, Unreadable
from datakit.sources.source import Records

JSONL = Records("jsonl")
SKIPPED = b"\x50\x2a\x4d\x18\x03\x00\x00\x00\n\n\n"


def member(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def bgzf(content: bytes) -> bytes:
    """One block of BGZF: a member whose header has its size."""
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(content) + packer.flush()
    header = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", len(packed) + 25)
    return header + packed + struct.pack("<II", zlib.crc32(content), len(content))


def frame(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


def streamed_frame(content: bytes) -> bytes:
    """A frame whose header says no size, with several blocks."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": member,
    "bgzf": bgzf,
    "zstd": frame,
    "zstd_streamed": streamed_frame,
    "zstd_skipped": lambda content: SKIPPED + frame(content),
}


def read(path: Path, pieces: Sequence[lines.Span | None]) -> list[Record | Unreadable]:
    return [record for span in pieces for record in read_records(JSONL, "a", path, span)]


def spans_of(path: Path, target: int) -> list[lines.Span | None]:
    parts = packed_parts(path, target)
    return packed_spans(parts, [count_part(path.parent, path, *part) for part in parts])


def line_spans(path: Path, target: int) -> list[lines.Span | None]:
    return spans(JSONL, path, target)


LINE = st.one_of(st.just(b""), st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"\r")), st.just(b'{"text": "a"}'))


@given(
    st.lists(LINE, min_size=1, max_size=12),
    st.booleans(),
    st.lists(st.integers(0, 300), max_size=6),
    st.sampled_from(list(PACKERS)),
    st.integers(1, 90),
)
@example([b'{"text": "%s"}' % (b"x" * 200)] * 2, False, [40, 80, 120, 230, 231], "zstd", 1)  # Pieces inside a line.
@example([b"a"], True, [19, 19, 21], "gzip", 1)  # A cut at a line end, and a member without a byte.
def test_pieces_of_a_compressed_file_are_its_records(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], is_ended: bool, cuts: list[int], kind: str, target: int
) -> None:
    content = b'{"text": "first"}\n' + b"\n".join(rows) + (b"\n" if is_ended else b"")
    bounds = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    packed = [PACKERS[kind](content[i:j]) for i, j in pairwise(bounds)]
    path = tmp_path_factory.mktemp("packed") / "a"
    path.write_bytes(b"".join(packed))
    found = spans_of(path, target)
    assert target > 1 or len(found) >= len(packed)
    assert read(path, found) == read(path, [None])


@pytest.mark.parametrize("kind", PACKERS)
def test_pieces_have_about_the_size_that_is_asked_for(kind: str, tmp_path: Path) -> None:
    packed = [PACKERS[kind](json.dumps({"text": os.urandom(400).hex()}).encode() + b"\n") for _ in range(60)]
    (tmp_path / "a").write_bytes(b"".join(packed))
    parts = packed_parts(tmp_path / "a", 2_000)
    assert parts[0][0] == 0 and parts[-1][1] == sum(map(len, packed)) and len(parts) > 9
    assert all(2_000 <= stop - start < 2_000 + 2 * len(packed[0]) for start, stop in parts[:-1])
    assert len(read(tmp_path / "a", spans_of(tmp_path / "a", 2_000))) == 60


def test_a_member_inside_a_member_is_no_cut(tmp_path: Path) -> None:
    """Stored blocks hold it as it is, so it decompresses, with its checksum; the piece before it does not."""
    inner = member(b'{"text": "inner"}\n')
    packer = zlib.compressobj(0, wbits=31)
    outer = packer.compress(b'{"text": "a"}\n' + inner + b'\n{"text": "b"}\n') + packer.flush()
    (tmp_path / "a").write_bytes(outer + member(b'{"text": "c"}\n'))
    assert len(packed_parts(tmp_path / "a", 1)) == 3
    assert spans_of(tmp_path / "a", 1) == [None]
    assert [r.text for r in read_records(JSONL, "a", tmp_path / "a") if isinstance(r, Record)] == ["a", "b", "c"]


@pytest.mark.parametrize("pack", [member, frame], ids=["gzip", "zstd"])
def test_bytes_that_look_like_a_beginning_are_no_cut(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    noise = b"".join(os.urandom(20) + b"\x1f\x8b\x08\x00\x28\xb5\x2f\xfd" for _ in range(200)).replace(b"\n", b"")
    (tmp_path / "a").write_bytes(pack(noise + b"\n") * 3)
    assert len(packed_parts(tmp_path / "a", 1)) == 3


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "garbage"])
def test_a_damaged_file_is_one_piece_and_stops_with_its_name(kind: str, damage: str, tmp_path: Path) -> None:
    packed = bytearray(b"".join(PACKERS[kind](b'{"text": "%s"}\n' % os.urandom(40).hex().encode()) for _ in range(9)))
    if damage == "flipped":
        packed[len(packed) // 2 :] = bytes(byte ^ 0x55 for byte in packed[len(packed) // 2 :])
    (tmp_path / "a").write_bytes({"cut": packed[:-7], "garbage": packed + b"garbage of some length"}.get(damage, packed))
    assert spans_of(tmp_path / "a", 100) == [None]
    with pytest.raises(ValueError, match="a: not a whole jsonl file"):
        read(tmp_path / "a", [None])


def test_zeros_between_and_after_members_are_no_damage(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes((member(b'{"text": "a"}\n') + bytes(100)) * 4)
    assert len(found := spans_of(tmp_path / "a", 60)) > 2
    assert read(tmp_path / "a", found) == read(tmp_path / "a", [None])


@given(st.lists(LINE, max_size=12), st.booleans(), st.integers(1, 60), st.sampled_from(["gzip", "zstd"]))
def test_a_file_of_one_member_is_written_as_files_of_its_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], is_ended: bool, target: int, kind: str
) -> None:
    folder = tmp_path_factory.mktemp("rewritten")
    content = b'{"text": "first"}\n' + b"\n".join(rows) + (b"\n" if is_ended else b"")
    (folder / "a").write_bytes(PACKERS[kind](content))
    made = write_plain_parts(folder, folder / "a", "parts/a", target)
    held = [lines.decompressed(folder / name).read() for name, *_ in made["parts"]]
    assert b"".join(held) == content and [part.count(b"\n") for part in held] == [ends for *_, ends in made["parts"]]
    assert all(len(part) >= target and part.endswith(b"\n") for part in held[:-1])
    assert all(len(part[:-1].rpartition(b"\n")[0]) < target for part in held)
    assert [size for _, size, _ in made["parts"]] == [(folder / name).stat().st_size for name, *_ in made["parts"]]
    if made["parts"][-1][2]:
        before = [sum(ends for *_, ends in made["parts"][:i]) for i in range(len(held))]
        whole = [lines.Span(0, size, b) for (_, size, _), b in zip(made["parts"], before, strict=True)]
        pieces = zip(made["parts"], whole, strict=True)
        records = [record for (name, *_), span in pieces for record in read_records(JSONL, "a", folder / name, span)]
        assert records == read(folder / "a", [None])


@pytest.mark.parametrize("kind", ["plain", *PACKERS])
@pytest.mark.parametrize("target", [None, 30])
def test_a_line_above_the_limit_is_one_drop(
    kind: str, target: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_RECORD_BYTES", 100)
    monkeypatch.setattr(lines, "READ_BYTES", 64)
    rows = [{"text": text} for text in ("a", "b" * 88, "c" * 89, "d" * 1_000, "e")]  # The limit is the second's line.
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    pack = PACKERS.get(kind, bytes)
    (tmp_path / "a").write_bytes(b"".join(pack(content[i : i + 90]) for i in range(0, len(content), 90)))
    found = [None] if target is None else (line_spans if kind == "plain" else spans_of)(tmp_path / "a", target)
    assert target is None or len(found) > 5
    dropped = [Unreadable("a:3", "record_too_large"), Unreadable("a:4", "record_too_large")]
    assert read(tmp_path / "a", found) == [Record("a:1", "a"), Record("a:2", "b" * 88), *dropped, Record("a:5", "e")]
