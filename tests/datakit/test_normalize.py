"""Normalization: content ids, named drops, and bad records that do not stop a source."""

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from inputs import printed_after_a_kill

from datakit.documents.normalize import NORMALIZE, NormalizeConfig, normalize
from datakit.documents.parts import read_documents
from datakit.documents.sorted_runs import Cut
from datakit.readers.html_text import html_to_text
from datakit.readers.read import Record, read_file
from datakit.sources.source import Format, PypiFiles, Records, Source, WheelPin
from evals.audit.takedown_fields import documents_with
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.graph.edges import lineage_tables
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError
from lineage.stage import Stage
from lineage.storage.digests import text_digest
from lineage.writing.writer import Writer

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Files:
    """Raw files by name; bytes are given as latin-1 text."""

    files: Mapping[str, str]


def write_files(out: Writer, config: Files) -> None:
    for name, content in config.files.items():
        (out.folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (out.folder / "files" / name).write_bytes(content.encode("latin-1"))


FILES = Stage("tests.files", "1", write_files)


def in_small_shards(out: Writer, config: NormalizeConfig, raw: Artifact) -> None:
    normalize(out, config, raw, Cut(shard_bytes=1 << 16))


SMALL_SHARDS = Stage("tests.normalize", "1", in_small_shards)


def normalized(
    root: Path, files: Mapping[str, str], format: Format | Records = "text", workers: int = 1, stage: Stage = NORMALIZE
) -> Artifact:
    raw = Node(("raw",), "s", FILES, Files(files))
    node = Node(("normalized",), "s", stage, NormalizeConfig("s", format, "prose"), {"raw": raw})
    store = Store(str(root))
    build(store, raw)
    return build(store, node, execution=Execution(workers)).artifact


def jsonl(*texts: object) -> str:
    lines = "\n".join(json.dumps({"id": i, "text": text}) for i, text in enumerate(texts))
    return lzma.compress(lines.encode()).decode("latin-1")


def test_ids_are_the_digest_of_the_text_sorted_and_unique(tmp_path: Path) -> None:
    artifact = normalized(tmp_path, {"a": "Hello world", "b": "Duplicate text", "c": "Hello world"})
    documents = read_documents(artifact)
    assert documents["id"].to_list() == ["43ce8537fcd01d36852e1e197d151e91", "7351f89812f97382b91d05b31e04dd7f"]
    assert artifact.manifest.statistics["drops"] == {"exact_duplicate": 1}
    assert [json.loads(m)["source_id"] for m in documents["metadata"]] == ["b", "a"], "the first of equal texts stays"


def test_every_drop_has_its_name(tmp_path: Path) -> None:
    texts = ["fine", "", None, " \n\t ", "half a \ud800 pair", "fine", "\u200b", "\x00 \ufeff"]
    artifact = normalized(tmp_path, {"f": jsonl(*texts)}, "xz_text")
    assert artifact.manifest.statistics["drops"] == {
        "empty": 2,
        "exact_duplicate": 1,
        "lone_surrogate": 1,
        "no_visible_character": 2,
        "whitespace_only": 1,
    }
    dropped = pl.read_parquet(artifact.files("dropped.parquet")[0])
    assert set(dropped["reason"]) == {"empty", "exact_duplicate", "lone_surrogate", "no_visible_character", "whitespace_only"}
    assert artifact.manifest.statistics["rows_in"] == artifact.manifest.statistics["rows_out"] + 7


def test_a_file_that_is_not_utf8_is_a_drop(tmp_path: Path) -> None:
    artifact = normalized(tmp_path, {"bad": "\xff\xfe broken", "good": "fine"})
    assert artifact.manifest.statistics["drops"] == {"invalid_utf8": 1}


@pytest.mark.slow
def test_sixteen_megabytes_of_spaces_are_a_drop_or_a_cap(tmp_path: Path) -> None:
    spaces = " " * (16 << 20)
    artifact = normalized(tmp_path, {"all": spaces, "most": f"before{spaces}after"})
    assert artifact.manifest.statistics["drops"] == {"whitespace_only": 1}
    assert artifact.manifest.statistics["whitespace_runs_capped"] == 1
    assert read_documents(artifact)["text"].to_list() == [f"before{' ' * 128}after"]


def test_runs_are_capped_in_the_messages_that_tokens_are_made_of(tmp_path: Path) -> None:
    """In the text alone they would stay in every chat cache."""
    call = {"arguments": "\n" * 200, "name": "x" + " " * 5_000}
    message = {"role": "assistant", "content": f"a{' ' * (1 << 20)}b", "tool_calls": [call]}
    artifact = normalized(tmp_path, {"a.jsonl": json.dumps({"m": [message]})}, Records("jsonl", text="m", form="messages"))
    (kept,) = read_documents(artifact)["metadata"]
    (capped,) = json.loads(json.loads(kept)["conversation"])["messages"]
    assert capped["content"] == f"a{' ' * 128}b"
    assert capped["tool_calls"] == [{"arguments": "\n" * 128, "name": "x" + " " * 128}]


def test_a_run_is_capped_only_when_it_is_longer_than_the_limit(tmp_path: Path) -> None:
    mixed = "\t\n" * 70
    artifact = normalized(tmp_path, {"a": f"a{' ' * 128}b{' ' * 129}c{mixed}d"})
    assert read_documents(artifact)["text"].to_list() == [f"a{' ' * 128}b{' ' * 128}c{mixed[:128]}d"]
    assert artifact.manifest.statistics["whitespace_runs_capped"] == 2


def test_the_characters_of_a_special_token_stay_text(tmp_path: Path) -> None:
    text = "a quoted <|endoftext|> stays"
    assert read_documents(normalized(tmp_path, {"a": text}))["text"].to_list() == [text]


def test_a_source_with_nothing_in_it_stops_with_its_counts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no document survives of 2 records; dropped: \{'empty': 1, 'whitespace_only': 1\}"):
        normalized(tmp_path, {"a": "", "b": "   "})


def test_a_wrong_field_name_stops_and_names_what_is_there(tmp_path: Path) -> None:
    content = json.dumps({"T": {"title": "T", "abstract": "text"}})
    with pytest.raises(IncompleteError, match="no record has the field 'extract'; the records have: abstract, title"):
        normalized(tmp_path, {"w.json": content}, "wiki_json")


def test_workers_change_no_byte(tmp_path: Path) -> None:
    files = {f"{i:02d}": f"document {i} " * 3_000 for i in range(6)}
    versions = {normalized(tmp_path / str(w), files, workers=w, stage=SMALL_SHARDS).data_version for w in (1, 2)}
    assert len(versions) == 1


def test_a_kill_in_normalize_costs_the_shard_and_changes_no_byte(tmp_path: Path) -> None:
    """The child dies inside the second of three shards (its reader kills it); the next run redoes two, not three."""
    files = {f"{i}": f"document {i} " * 9_000 for i in range(3)}
    whole = normalized(tmp_path / "whole", files, stage=SMALL_SHARDS)
    code = (
        "import os, signal, sys, datakit.documents.normalize as n; from pathlib import Path; from test_normalize import *\n"
        "real, marker = n.read_file, Path(sys.argv[1]) / 'read'\n"
        "def read(format, name, path, span):\n"
        "    with marker.open('a') as stream: stream.write(name)\n"
        "    if marker.read_text() == '01': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    yield from real(format, name, path, span)\n"
        "n.read_file = read\n"
        "files = {str(i): f'document {i} ' * 9_000 for i in range(3)}\n"
        "print(normalized(Path(sys.argv[1]), files, stage=SMALL_SHARDS).data_version)"
    )
    root = tmp_path / "killed"
    assert printed_after_a_kill(code, root) == [whole.data_version]
    assert (root / "read").read_text() == "0112"


def test_a_full_disk_leaves_no_artifact_and_the_next_run_is_whole(tmp_path: Path) -> None:
    """The limit on file size stands in for the disk: writing fails in the middle of the merge, after the shards."""
    files = {"a": "".join(f"{text_digest(str(i))} " for i in range(60_000))}
    whole = normalized(tmp_path / "whole", files)
    code = (
        "import resource, signal, sys; from pathlib import Path; from test_normalize import *\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)) if sys.argv[2] == 'full' else None\n"
        "files = {'a': ''.join(f'{text_digest(str(i))} ' for i in range(60_000))}\n"
        "print(normalized(Path(sys.argv[1]), files).data_version)"
    )
    root = tmp_path / "full"
    store = Store(str(root))
    build(store, Node(("raw",), "s", FILES, Files(files)))  # the raw file was there before the disk was full
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}"}
    full, again = (
        subprocess.run(
            [sys.executable, "-c", code, str(root), disk], env=environment, capture_output=True, text=True, timeout=120
        )
        for disk in ("full", "roomy")
    )
    assert full.returncode == 1 and "File too large" in full.stderr
    assert again.stdout.split() == [whole.data_version], again.stderr
    assert [artifact.name for artifact in store.artifacts()] == ["normalized[s]", "raw[s]"]


def test_a_name_that_utf8_cannot_hold_stops_nothing(tmp_path: Path) -> None:
    articles = {"half a \ud800 title": {"title": "t", "extract": "lead"}, "\udc80": {"extract": None}}
    artifact = normalized(tmp_path, {"w": json.dumps(articles)}, "wiki_json")
    (metadata,) = read_documents(artifact)["metadata"]
    assert json.loads(metadata)["source_id"] == "half a \\ud800 title"
    assert pl.read_parquet(artifact.files("dropped.parquet")[0])["source_id"].to_list() == ["\\udc80"]


def test_the_sample_of_drops_is_bounded_and_names_its_places(tmp_path: Path) -> None:
    artifact = normalized(tmp_path, {f"{i:02d}": "same text" if i < 30 else "" for i in range(60)})
    dropped = pl.read_parquet(artifact.files("dropped.parquet")[0])
    assert artifact.manifest.statistics["drops"] == {"empty": 30, "exact_duplicate": 29}
    assert dict(dropped.group_by("reason").len().iter_rows()) == {"empty": 20, "exact_duplicate": 20}
    repeated = dropped.filter(pl.col("reason") == "exact_duplicate")
    assert repeated["source_id"].to_list() == [f"{i:02d}" for i in range(1, 21)]
    assert set(repeated["sample"]) == {"same text"}


@pytest.mark.parametrize(
    ("format", "name", "content", "texts"),
    [
        ("python", "a.py", "x = 1\n", ["x = 1\n"]),
        ("html", "a.html", "<h1>A</h1><p>b&amp;c</p>", ["A\n\nb&c"]),
        ("bible_python", "b.py", 'bible = Bible(V, """one\n\ntwo""")', ["one\ntwo"]),
        ("topics_python", "t.py", "topics = {'b': 'B', 'a': 'A'}", ["A", "B"]),
        ("metadata", "m", "Name: x\nVersion: 1\n\n# Title\nbody\n", ["# Title\nbody\n"]),
        ("wiki_json", "w", json.dumps({"T": {"title": "T", "extract": "lead"}, "U": {"extract": None}}), ["T\n\nlead", None]),
        ("docstrings", "d.py", f'def f():\n    """{"word " * 90}."""\n', [f"{'word ' * 90}."]),
    ],
)
def test_each_format_is_read(tmp_path: Path, format: Format, name: str, content: str, texts: list) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert [record.text for record in read_file(format, name, path) if isinstance(record, Record)] == texts


def test_html_keeps_preformatted_text_and_drops_scripts() -> None:
    page = "<body><script>x()</script><nav>menu</nav><p>a\n b</p><pre>  x\n   y</pre><ul><li>one</li><li>two</li></ul></body>"
    assert html_to_text(page) == "a b\n\n  x\n   y\n\none\n\ntwo"


def test_bad_sources_are_refused_by_name() -> None:
    pin = WheelPin("p", "1", "0" * 64)
    with pytest.raises(ValueError, match="domain is 'poetry'; allowed: prose"):
        Source(
            name="s", loader=PypiFiles(pin, ("*",)), format="text", domain="poetry", licence="MIT", terms="", mixture_weight=1.0
        )
    with pytest.raises(ValueError, match="not 64 hex digits"):
        WheelPin("p", "1", "abc")
    assert text_digest("before" + " " * 100 + "after") == "3007bdcb3f524688adef263561047c77"


def test_fields_that_a_takedown_may_ask_for_are_kept(tmp_path: Path) -> None:
    """An author as text, anything else as JSON, nothing where a record has none; the lineage finds the documents by it."""
    rows = [
        {"id": "1", "text": "one", "meta": {"author": "Ann O'Dee"}, "year": 1999, "more": "not kept"},
        {"id": "2", "text": "two", "meta": {"author": 'Bob "B" Ray'}},
        {"id": "3", "text": "three"},
    ]
    source = Records("jsonl", keep=("meta.author", "year"))
    artifact = normalized(tmp_path, {"a.jsonl": "\n".join(json.dumps(row) for row in rows)}, source)
    kept = {row["text"]: json.loads(row["metadata"]) for row in read_documents(artifact).iter_rows(named=True)}
    assert kept == {
        "one": {"source_id": "1", "meta.author": "Ann O'Dee", "year": "1999"},
        "two": {"source_id": "2", "meta.author": 'Bob "B" Ray'},
        "three": {"source_id": "3"},
    }
    tables = lineage_tables(artifact.store)
    assert documents_with(artifact.store, tables, "meta.author", 'Bob "B" Ray') == (text_digest("two"),)
    assert documents_with(artifact.store, tables, "year", "1999") == (text_digest("one"),)
    with pytest.raises(ValueError, match=r"field 'meta.author' with the value 'Bob'"):
        documents_with(artifact.store, tables, "meta.author", "Bob")
    with pytest.raises(ValueError, match="source_id"):
        Records("jsonl", keep=("source_id",))
