"""Compressed record files are normalized in pieces, and no byte of the documents depends on the pieces."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from inputs import made, printed_after_a_kill, random_texts

from datakit.documents.file_pieces import cut_file
from datakit.documents.normalize import NORMALIZE, NormalizeConfig, normalize
from datakit.documents.sorted_runs import Cut
from datakit.sources.remote import FILES
from datakit.sources.source import Records
from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.shards.failures import IncompleteError
from lineage.stage import Stage
from lineage.writing.writer import Writer

PIECES = Cut(shard_bytes=1_500, run_bytes=900)


@dataclass(frozen=True)
class Packed:
    """How many bytes of lines a member and a frame of the two files hold."""

    member_bytes: int


@dataclass(frozen=True)
class CutConfig:
    config: NormalizeConfig
    cut: Cut


def packed_lines(pack: Callable[[bytes], bytes], config: Packed, seed: int) -> bytes:
    """Lines without ids, so that their numbers are in the documents; one of them is bad."""
    lines = [json.dumps({"text": text}).encode() for text in random_texts(120, 12, seed=seed)]
    content = b"\n".join([*lines[:70], b"{half", *lines[70:]])
    return b"".join(pack(content[i : i + config.member_bytes]) for i in range(0, len(content), config.member_bytes))


def write_files(out: Writer, config: Packed) -> None:
    (out.folder / "files").mkdir()
    packed = {
        "a.jsonl.gz": lambda piece: gzip.compress(piece, mtime=0),
        "b.jsonl.zst": lambda piece: pa.compress(piece, codec="zstd", asbytes=True),
    }
    for seed, (name, pack) in enumerate(packed.items()):
        (out.folder / "files" / name).write_bytes(packed_lines(pack, config, seed))


def cut_otherwise(out: Writer, config: CutConfig, raw: Artifact) -> None:
    normalize(out, config.config, raw, config.cut)
    out.record(shards=sorted(out.shard_names))


RAW = Stage("tests.packed_files", "1", write_files)
CUT_OTHERWISE = Stage(NORMALIZE.name, NORMALIZE.version, cut_otherwise)


def normalized(root: Path, packed: Packed, cut: Cut) -> Artifact:
    raw = Node(("raw",), "s", RAW, packed)
    config = NormalizeConfig("s", Records("jsonl", id=None), "prose", target_part_bytes=4_000)
    return made(root, Node(("normalized",), "s", CUT_OTHERWISE, CutConfig(config, cut), {"raw": raw}))


def shards(artifact: Artifact, kind: str) -> int:
    return sum(name.startswith(kind) for name in artifact.manifest.statistics["shards"])


def test_members_and_frames_are_parsed_alone_and_change_no_byte(tmp_path: Path) -> None:
    whole, pieces = (normalized(tmp_path / str(i), Packed(900), cut) for i, cut in enumerate((Cut(), PIECES)))
    assert shards(whole, "parse") == 1 and shards(pieces, "parse") == shards(pieces, "count") > 4
    assert whole.manifest.statistics["drops"]["unparsable"] == 2
    assert pieces.data_version == whole.data_version


def test_a_single_member_is_rewritten_above_a_size_and_changes_no_byte(tmp_path: Path) -> None:
    one = Packed(1 << 20)
    cuts = (Cut(), PIECES, Cut(shard_bytes=1_500, run_bytes=900, rewritten_bytes=1_600))
    whole, streamed, rewritten = (normalized(tmp_path / str(i), one, cut) for i, cut in enumerate(cuts))
    assert shards(streamed, "parse") == shards(rewritten, "rewrite") == 2 and shards(rewritten, "parse") > 9
    assert {streamed.data_version, rewritten.data_version} == {whole.data_version}


def write_broken(out: Writer, config: str) -> None:
    (out.folder / FILES).mkdir()
    (out.folder / FILES / "broken.bin").write_bytes(b"PAR1" + bytes(4_000))


def test_a_large_damaged_file_has_no_cuts_and_its_reader_names_it(tmp_path: Path) -> None:
    raw = Node(("raw",), "s", Stage("tests.broken_file", "1", write_broken), "")
    (broken,) = made(tmp_path, raw).files()
    assert cut_file(tmp_path, broken, Records("parquet"), 1_000) == {}
    config = CutConfig(NormalizeConfig("s", Records("parquet"), "prose"), Cut(shard_bytes=1_000))
    with pytest.raises(IncompleteError, match=r"parse-00000 .*broken\.bin"):
        made(tmp_path, Node(("normalized",), "s", CUT_OTHERWISE, config, {"raw": raw}))


@pytest.mark.slow
def test_a_kill_while_pieces_are_parsed_rewrites_nothing_again(tmp_path: Path) -> None:
    """The child dies in the third piece; the next run decompresses no file and parses the pieces from that one on."""
    cut = "Cut(shard_bytes=1_500, run_bytes=900, rewritten_bytes=1_600)"
    code = (
        "import os, signal, sys, datakit.documents.file_pieces as f, datakit.documents.normalize as n\n"
        "from test_file_pieces import *\n"
        "real, write, marker = n.read_file, f.write_plain_parts, Path(sys.argv[1]) / 'steps'\n"
        "def step(letter):\n"
        "    with marker.open('a') as stream: stream.write(letter)\n"
        "    if marker.read_text() == 'wwppp': os.kill(os.getpid(), signal.SIGKILL)\n"
        "def written(*arguments):\n"
        "    step('w')\n"
        "    return write(*arguments)\n"
        "def parsed(*arguments):\n"
        "    step('p')\n"
        "    yield from real(*arguments)\n"
        "f.write_plain_parts, n.read_file = written, parsed\n"
        f"print(normalized(Path(sys.argv[1]), Packed(1 << 20), {cut}).data_version)"
    )
    whole, root = normalized(tmp_path / "whole", Packed(1 << 20), Cut()), tmp_path / "killed"
    assert printed_after_a_kill(code, root) == [whole.data_version]
    steps = (root / "steps").read_text()
    assert steps.startswith("wwppp") and steps.count("w") == 2
