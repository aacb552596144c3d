"""HTTP and folder loaders: exactly the pinned files, each whole, or a refusal that names the remedy."""

import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import xxhash
from http_site import Site, serving
from hypothesis import given
from hypothesis import strategies as st
from inputs import JSONL, fetched, source_of

from datakit.sources.raw import RAW
from datakit.sources.remote import FolderFile, folder_listing, list_lines, listing_digest
from datakit.sources.source import Domain, FolderFiles, Format, HttpFile, HttpFiles, HttpListing, Records, Unverified
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.shards.failures import IncompleteError

CONTENT = bytes(range(256)) * 4096
UNKNOWN = Unverified("", "nobody has looked")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def contents(artifact: Artifact) -> dict[str, bytes]:
    folder = artifact.folder() / "files"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in artifact.files()}


def http_files(base: str, files: Mapping[str, bytes]) -> HttpFiles:
    return HttpFiles(tuple(HttpFile(f"{base}/{name}", name, sha256(content)) for name, content in files.items()))


def test_files_come_by_their_hashes_from_a_server_that_cuts_waits_and_moves(tmp_path: Path) -> None:
    files = {"a/big.bin": CONTENT, "a/small.jsonl": b"{}\n", "moved.jsonl": b"[]\n"}
    site = Site(
        {"/a/big.bin": CONTENT, "/a/small.jsonl": b"{}\n", "/elsewhere": b"[]\n"},
        cut_first_at=500_000,
        failures=[503, 429],
        redirects={"/moved.jsonl": "/elsewhere"},
        chunk_seconds=0.001,
    )
    with serving(site) as base:
        artifact = fetched(tmp_path / "one", http_files(base, files))
        assert contents(artifact) == files
        again = fetched(tmp_path / "two", http_files(base, files), Execution(2))
    assert again.data_version == artifact.data_version


def test_after_a_wrong_hash_only_that_file_is_fetched_again(tmp_path: Path) -> None:
    files = {name: name.encode() for name in ("a", "b", "c")}
    site = Site({f"/{name}": content for name, content in files.items()} | {"/b": b"?"})
    with serving(site) as base:
        with pytest.raises(IncompleteError, match=f"its pin says {sha256(b'b')}"):
            fetched(tmp_path, http_files(base, files))
        site.files["/b"] = b"b"
        artifact = fetched(tmp_path, http_files(base, files))
    assert contents(artifact) == files
    assert site.visits == len(files) + 1


def test_an_unverified_hash_is_refused_before_the_server_is_asked(tmp_path: Path) -> None:
    site = Site({"/a": b"a", "/list": b"a\n"})
    with serving(site) as base:
        with pytest.raises(ValueError, match=r"source s: its sha256 of \S+/a is unverified: nobody has looked. Look it up"):
            fetched(tmp_path, HttpFiles((HttpFile(f"{base}/a", "a", UNKNOWN),)))
        with pytest.raises(ValueError, match=r"its sha256 of \S+/list is unverified"):
            fetched(tmp_path, HttpListing(HttpFile(f"{base}/list", "list", UNKNOWN), base, ("*",)))
    assert not site.visits


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    file = HttpFile("http://127.0.0.1:1/a", "a", "0" * 64)
    with pytest.raises(ValueError, match="two of its files have the same name"):
        fetched(tmp_path, HttpFiles((file, file)))


@pytest.mark.parametrize("compressed", [True, False])
def test_a_pinned_list_names_the_files(compressed: bool, tmp_path: Path) -> None:
    """By path, as Common Crawl does, or by address, as Dolma does."""
    files = {"crawl/quality=high/1.jsonl": b"1", "crawl/quality=high/2.jsonl": b"2", "crawl/quality=low/3.jsonl": b"3"}
    site = Site({f"/{name}": content for name, content in files.items()}, etag='"same"')
    with serving(site) as base:
        lines = "\n".join([*list(files)[:2], f"{base}/{list(files)[2]}"]).encode()
        listed = gzip.compress(lines) if compressed else lines
        site.files["/paths"] = listed
        listing = HttpFile(f"{base}/paths", "paths", sha256(listed))
        high = fetched(tmp_path / "high", HttpListing(listing, f"{base}/", ("*/quality=high/*",)))
        low = fetched(tmp_path / "low", HttpListing(listing, f"{base}/", ("*/quality=low/*",)))
    assert contents(high) == dict(list(files.items())[:2])
    assert contents(low) == dict(list(files.items())[2:])


def test_lines_that_a_list_repeats_are_one_file_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By path and by address, which are the same file; a name with a blank is one name."""
    files = {"a one.jsonl": b"1", "b.jsonl": b"2"}
    site = Site({"/a%20one.jsonl": b"1", "/b.jsonl": b"2"}, etag='"same"')
    with serving(site) as base:
        site.files["/list"] = listed = f"a one.jsonl\r\nb.jsonl\n\n{base}/b.jsonl\n".encode()
        loader = HttpListing(HttpFile(f"{base}/list", "list", sha256(listed)), f"{base}/", ("*.jsonl",))
        assert contents(fetched(tmp_path, loader)) == files
    assert "source s: its list names 1 files more than once, b.jsonl among them" in caplog.messages


LIST = gzip.compress("".join(f"crawl/{number}/é.jsonl\n" for number in range(30)).encode(), mtime=0)


@given(data=st.data())
def test_a_damaged_list_of_files_is_named(data: st.DataObject) -> None:
    """It is pinned, so only a list that was damaged when it was pinned comes this far: lines of it, or a ValueError."""
    assert len(list_lines(LIST, "the list")) == len(list_lines(LIST + bytes(512), "the list")) == 30
    start = data.draw(st.integers(0, len(LIST) - 1))
    edited = LIST[:start] + data.draw(st.binary(max_size=20)) + LIST[data.draw(st.integers(start, len(LIST))) :]
    try:
        lines = list_lines(edited, "the list")
    except ValueError as error:
        assert "the list is no list of files" in str(error)
    else:
        assert edited[:2] != LIST[:2] or len(lines) == 30, "what gzip's checksum lets pass is the list"


def folder(root: Path) -> Path:
    (root / "deep").mkdir(parents=True)
    (root / "a.jsonl").write_text("a")
    (root / "deep" / "b.jsonl").write_text("bb")
    (root / "test.jsonl").write_text("c")
    return root


def mirrored(files: dict[str, bytes]) -> list[FolderFile]:
    """Return the files of a listing without content marks: they were read."""
    return [FolderFile(name, len(content), xxhash.xxh3_128_hexdigest(content)) for name, content in files.items()]


def test_a_bucket_that_tells_of_contents_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    system.pipe({"/told/a.jsonl": b"a"})
    listing = system.find("told", detail=True)
    entry = next(iter(listing.values())) | {"md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg==", "etag": "CJ"}
    monkeypatch.setattr(type(system), "find", lambda *_, **__: {"/told/a.jsonl": entry})
    monkeypatch.setattr(type(system), "_open", lambda *_, **__: pytest.fail("the file was read"))
    loader = FolderFiles("memory://told", ("*",), UNKNOWN)
    assert folder_listing(loader, trainable=True, what="s") == (FolderFile("a.jsonl", 1, "1B2M2Y8AsgTpgAmY7PhCfg=="),)


def test_a_folder_is_pinned_by_its_listing(tmp_path: Path) -> None:
    root = folder(tmp_path / "texts")
    unpinned = FolderFiles(str(root), ("*.jsonl",), UNKNOWN, ("test*",))
    listing = listing_digest(folder_listing(unpinned, trainable=True, what="s"))
    assert listing == listing_digest(mirrored({"deep/b.jsonl": b"bb", "a.jsonl": b"a"}))
    with pytest.raises(ValueError, match=rf"its listing \(this one is {listing}\) is unverified"):
        fetched(tmp_path / "store", unpinned)
    pinned = FolderFiles(str(root), ("*.jsonl",), listing, ("test*",))
    assert contents(fetched(tmp_path / "store", pinned)) == {"a.jsonl": b"a", "deep/b.jsonl": b"bb"}
    (root / "a.jsonl").write_text("A")  # as many bytes, others
    with pytest.raises(ValueError, match=f"changed: their listing is .* not {listing}"):
        fetched(tmp_path / "other", pinned)
    (root / "a.jsonl").write_text("a")
    (root / "new.jsonl").write_text("d")
    with pytest.raises(ValueError, match=f"changed: their listing is .* not {listing}"):
        fetched(tmp_path / "another", pinned)


def test_any_fsspec_address_is_a_folder(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe({"/bucket/texts/a.jsonl": b"a", "/bucket/texts/deep/b.jsonl": b"bb", "/bucket/other/c.jsonl": b"c"})
    listing = listing_digest(mirrored({"a.jsonl": b"a", "deep/b.jsonl": b"bb"}))
    loader = FolderFiles("memory://bucket/texts", ("*.jsonl",), listing)
    assert contents(fetched(tmp_path, loader)) == {"a.jsonl": b"a", "deep/b.jsonl": b"bb"}


def test_a_validation_file_in_a_training_folder_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path / "texts")
    loader = FolderFiles(str(root), ("*.jsonl",), "0" * 32)
    with pytest.raises(ValueError, match=r"test or validation split \(test\.jsonl\)"):
        fetched(tmp_path / "store", loader)


def pinned_folder(root: Path, *globs: str) -> FolderFiles:
    """The files of a local folder, pinned as they are."""
    unpinned = FolderFiles(str(root), globs, UNKNOWN)
    return replace(unpinned, listing=listing_digest(folder_listing(unpinned, trainable=False, what="s")))


@pytest.mark.parametrize(
    ("format", "domain", "is_taken"),
    [
        ("python", "code", True),
        ("docstrings", "docs", True),
        ("text", "code", True),
        ("text", "prose", False),
        (JSONL, "code", False),
    ],
)
def test_a_tests_folder_is_refused_in_text_and_not_in_source_code(
    format: Format | Records, domain: Domain, is_taken: bool, tmp_path: Path
) -> None:
    """Django has `auth/password_validation.py` and `core/management/commands/test.py`, which are not benchmarks."""
    root = tmp_path / "django"
    (root / "auth").mkdir(parents=True)
    (root / "auth" / "password_validation.py").write_text("def validate_password(): ...")
    node = Node(("raw",), "s", RAW, source_of(pinned_folder(root, "*.py"), format, domain))
    store = Store(str(tmp_path / "store"))
    if is_taken:
        assert list(contents(build(store, node).artifact)) == ["auth/password_validation.py"]
    else:
        with pytest.raises(ValueError, match=r"test or validation split \(auth/password_validation\.py\)"):
            build(store, node)


def test_a_file_name_that_is_not_utf_8_is_refused_before_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = folder(tmp_path / "texts")
    (root / os.fsdecode(b"bad\xff.jsonl")).write_text("d")
    loader = FolderFiles(str(root), ("*.jsonl",), UNKNOWN)
    with pytest.raises(ValueError, match=r"file b'bad\\xff.jsonl' has a name that is not UTF-8; rename it, or exclude it"):
        folder_listing(loader, trainable=False, what="s")
    kept = folder_listing(replace(loader, exclude=("bad?.jsonl",)), trainable=False, what="s")
    assert [file.name for file in kept] == ["a.jsonl", "deep/b.jsonl", "test.jsonl"]
    assert "are excluded: bad\\udcff.jsonl" in caplog.text  # a message with a lone surrogate cannot be written anywhere


def test_links_that_leave_a_folder_or_lead_to_folders_are_refused(tmp_path: Path) -> None:
    root = folder(tmp_path / "texts")
    (tmp_path / "secret.jsonl").write_text("of another licence")
    (root / "inside.jsonl").symlink_to(root / "a.jsonl")
    assert contents(fetched(tmp_path / "store", pinned_folder(root, "[ai]*.jsonl"))) == {"a.jsonl": b"a", "inside.jsonl": b"a"}
    for name, target in (("out.jsonl", "secret.jsonl"), ("folder.jsonl", "texts/deep"), ("broken.jsonl", "nowhere")):
        (root / name).symlink_to(tmp_path / target)
        with pytest.raises(ValueError, match=f"{name} is a link to {tmp_path / target}, not a file of this folder; copy"):
            folder_listing(FolderFiles(str(root), (name,), UNKNOWN), trainable=False, what="s")


def test_files_of_one_name_and_content_in_many_folders_all_come(tmp_path: Path) -> None:
    files = {f"{number}/_SUCCESS": b"same" for number in range(8)}
    with serving(Site({f"/{name}": content for name, content in files.items()})) as base:
        assert contents(fetched(tmp_path, http_files(base, files), Execution(4))) == files
