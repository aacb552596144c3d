"""A bucket folder as a source: listed files arrive whole or are refused. Google's client against the lab's server."""

import base64
import hashlib
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from gcs_server import Fault, GcsServer
from inputs import fetched

from datakit.sources.remote import folder_listing, listing_digest
from datakit.sources.source import FolderFiles, Unverified
from lineage.artifact.store import Artifact
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError
from lineage.storage.gs import BucketFiles

FILES = {"a.jsonl": b"a", "deep/b.jsonl": b"bb" * 50_000, "deep/test.jsonl": b"c"}
UNKNOWN = Unverified("", "nobody has looked")

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def url(server: GcsServer) -> str:
    """A bucket with a folder of texts, a placeholder as consoles make them, and another folder beside it."""
    root = server.bucket(uuid.uuid4().hex)
    for name, content in {**{f"texts/{n}": c for n, c in FILES.items()}, "texts/deep/": b"", "texts-2/x.jsonl": b"x"}.items():
        BucketFiles(root).replace(name, content)
    return f"{root}/texts"


def pinned(url: str, exclude: tuple[str, ...] = ("*test*",)) -> FolderFiles:
    loader = FolderFiles(url, ("*.jsonl",), UNKNOWN, exclude)
    return replace(loader, listing=listing_digest(folder_listing(loader, trainable=True, what="s")))


def contents(artifact: Artifact) -> dict[str, bytes]:
    folder = artifact.folder() / "files"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in artifact.files()}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder_of_a_bucket_comes_as_it_was_listed(workers: int, url: str, tmp_path: Path) -> None:
    artifact = fetched(tmp_path, pinned(url), Execution(workers))
    assert contents(artifact) == {name: content for name, content in FILES.items() if "test" not in name}


def test_what_the_bucket_holds_that_was_not_listed_is_refused(url: str, tmp_path: Path) -> None:
    loader = pinned(url)
    with pytest.raises(ValueError, match=r"test or validation split \(deep/test\.jsonl\)"):
        fetched(tmp_path / "held_out", replace(loader, exclude=()))
    BucketFiles(url).replace("a.jsonl", b"A")  # as many bytes, others
    with pytest.raises(ValueError, match=f"changed: their listing is .* not {loader.listing}"):
        fetched(tmp_path / "changed", loader)


@pytest.mark.parametrize("kind", ["503", "429", "torn", "lost"])
@pytest.mark.parametrize("operation", ["list", "read"])
def test_answers_that_fail_are_asked_for_again(operation: str, kind: str, server: GcsServer, url: str, tmp_path: Path) -> None:
    loader = pinned(url)
    server.faults.append(Fault(operation, server.counts[operation] + 1, kind))  # type: ignore[arg-type]
    assert set(contents(fetched(tmp_path, loader))) == {"a.jsonl", "deep/b.jsonl"}
    assert not server.faults, "the fault was met"


@pytest.mark.parametrize("change", ["crc32c", "md5"])
def test_a_file_that_is_replaced_after_it_was_listed_is_refused(
    change: str, server: GcsServer, url: str, tmp_path: Path
) -> None:
    """The bucket reports no MD5 of a composed object, so both checksums are compared."""
    if change == "md5":
        for (bucket, name), stored in list(server.objects.objects.items()):
            digest = hashlib.md5(stored.data, usedforsecurity=False).digest()
            server.objects.keep(bucket, name, replace(stored, md5=base64.b64encode(digest).decode()))
    loader = pinned(url)
    swap = Fault("read", server.counts["read"] + 1, "call", action=lambda: BucketFiles(url).replace("a.jsonl", b"A"))
    server.faults.append(swap)
    with pytest.raises(IncompleteError, match=r"file a\.jsonl has checksum \S+, its listing says \S+; it changed in between"):
        fetched(tmp_path, loader)
    BucketFiles(url).replace("a.jsonl", b"a")
    if change == "crc32c":
        assert set(contents(fetched(tmp_path, loader))) == {"a.jsonl", "deep/b.jsonl"}


def test_a_bucket_that_is_not_there_is_named(server: GcsServer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gs://no-such-bucket/texts: the bucket refuses to be listed .*check its name"):
        fetched(tmp_path, FolderFiles("gs://no-such-bucket/texts", ("*",), "0" * 32))
