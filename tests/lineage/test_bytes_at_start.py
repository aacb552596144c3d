"""Bytes are verified when a job opens them: an edit that keeps the size does not train, and unchanged files are read once."""

import json
import os
from pathlib import Path

import pytest
from test_token_cache_lies import CACHE, Lie

from lineage.artifact.manifest import MANIFEST_NAME, sealed, sound_manifest
from lineage.artifact.store import Artifact, Store
from lineage.artifact.verified import FOLDER, _remember, verify_once
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.order.token_cache import TokenCache
from lineage.private_files import KEY_FOLDER


def edited_in_place(path: Path, *, keep_times: bool = False) -> None:
    """Change one byte; size and inode stay."""
    before = path.stat()
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def cache(tmp_path: Path) -> Artifact:
    return build(Store(str(tmp_path)), Node(("cache",), None, CACHE, Lie())).artifact


@pytest.mark.parametrize("keep_times", [False, True])
@pytest.mark.parametrize("suffix", ["tokens", "ends", "ids"])
def test_a_cache_edited_at_the_same_size_is_refused(cache: Artifact, suffix: str, *, keep_times: bool) -> None:
    TokenCache.open(cache)
    (path,) = cache.files(f".{suffix}")
    edited_in_place(path, keep_times=keep_times)
    with pytest.raises(ValueError, match=r"has digest|document ends"):
        TokenCache.open(cache)


def test_unchanged_files_are_not_read_again(cache: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    verify_once(cache)
    digested = []
    monkeypatch.setattr("lineage.artifact.verified.file_digest", digested.append)
    verify_once(cache)
    assert digested == []
    (path,) = cache.files(".tokens")
    path.touch()
    with pytest.raises(ValueError, match="has digest None"):
        verify_once(cache)
    assert digested == [path], "only the file that was touched"


def test_a_memory_that_cannot_be_read_or_written_costs_only_time(cache: Artifact, caplog: pytest.LogCaptureFixture) -> None:
    verify_once(cache)
    (memory,) = (cache.store.scratch / FOLDER).iterdir()
    memory.write_text("[")
    verify_once(cache)
    memory.unlink()
    memory.parent.rmdir()
    memory.parent.write_text("a file in the place of the folder")
    verify_once(cache)
    assert "cannot remember" in caplog.text


@pytest.mark.parametrize("how", ["another state", "another artifact's", "without a code", "of another machine"])
def test_what_somebody_else_remembered_does_not_count(cache: Artifact, how: str, tmp_path: Path) -> None:
    """Whoever can edit a cache can also write beside it that the edited bytes were compared."""
    verify_once(cache)
    (memory,) = (cache.store.scratch / FOLDER).iterdir()
    (path,) = cache.files(".tokens")
    edited_in_place(path)
    facts = path.stat()
    name = path.relative_to(cache.folder()).as_posix()
    digest = next(entry.digest for entry in cache.manifest.files if entry.path == name)
    record = json.loads(memory.read_text())
    record["states"][name] = [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, digest]
    if how == "another state":
        memory.write_text(json.dumps(record))
    elif how == "without a code":
        memory.write_text(json.dumps(record["states"]))
    else:
        with pytest.MonkeyPatch.context() as elsewhere:
            if how == "of another machine":
                elsewhere.setenv(KEY_FOLDER, str(tmp_path / "keys"))
            other = memory.with_name("0" * 32 + ".json") if how == "another artifact's" else memory
            _remember(other, record["states"])
        other.replace(memory)
    with pytest.raises(ValueError, match="has digest"):
        verify_once(cache)


@pytest.mark.parametrize(
    "change", [{"eos": 3}, {"bos": 1}, {"tokenizer": "other"}, {"vocab_size": 9}, {"num_documents": 1}], ids=str
)
def test_what_readers_believe_of_a_cache_counts_in_its_data_version(cache: Artifact, change: dict[str, object]) -> None:
    """With another seal, or a schema of before seals."""
    path = cache.folder().parent / MANIFEST_NAME
    record = json.loads(path.read_text())
    del record["seal"]
    record["extra"]["tokens"] |= change
    for text in (sealed(record), json.dumps(record | {"schema": 1})):
        with pytest.raises(ValueError, match="its files and facts give data version"):
            sound_manifest(text, cache.spec.address, "here")
