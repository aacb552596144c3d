"""Debian archives: a real .deb from a loopback mirror, checked by hash and unpacked without running anything."""

import hashlib
import io
import random
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from http_site import Site, serving
from hypothesis import given
from hypothesis import strategies as st

from datakit.sources.debian import MIRROR_VARIABLE, mirrors, unpack
from datakit.sources.raw import RAW
from datakit.sources.remote import file_system
from datakit.sources.source import DebianFiles, Source
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.config import from_jsonable, to_jsonable

FILES = {"./usr/share/doc/a/one.txt": b"first\n", "./usr/share/doc/a/two.txt": b"second\n", "./usr/bin/tool": b"\x7fELF"}
GLOBS = ("usr/share/doc/*.txt",)
POOL = "pool/main/a/a-doc/a-doc_1.0-2_all.deb"


def deb(files: Mapping[str, bytes] | Sequence[tuple[str, bytes]], compression: str) -> bytes:
    """An archive as dpkg-deb writes it: ar of debian-binary, control.tar, data.tar."""
    files = list(files.items()) if isinstance(files, Mapping) else files
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode=f"w:{compression.replace('zst', '')}") as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("./usr/share/doc/a/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    data = pa.compress(tar.getvalue(), codec="zstd", asbytes=True) if compression == "zst" else tar.getvalue()
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar.{compression}".rstrip("."): data}
    packed = b"!<arch>\n"
    for name, content in members.items():
        packed += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
        )
    return packed


def pinned(content: bytes, members: tuple[str, ...] = GLOBS) -> DebianFiles:
    return DebianFiles("a-doc", "1:1.0-2", POOL, hashlib.sha256(content).hexdigest(), members)


def fetched(root: Path, loader: DebianFiles) -> Artifact:
    source = Source(
        name="a_doc",
        loader=loader,
        format="text",
        domain="docs",
        licence="GPL-2.0-only",
        terms="share alike",
        mixture_weight=1.0,
    )
    return build(Store(str(root)), Node(("raw",), "a_doc", RAW, source)).artifact


@pytest.mark.parametrize("compression", ["xz", "zst"])
def test_files_come_from_the_first_mirror_that_has_them(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = deb(FILES, compression)
    site = Site({f"/debian/{POOL}": content}, cut_first_at=60, redirects={}, failures=[])
    with serving(site) as base:
        monkeypatch.setenv(MIRROR_VARIABLE, f"{base}/elsewhere {base}/debian/")
        artifact = fetched(tmp_path, pinned(content))
    copied = {p.relative_to(artifact.folder()).as_posix(): p.read_bytes() for p in artifact.files()}
    assert copied == {f"files/{name[2:]}": text for name, text in FILES.items() if "doc" in name}


def test_what_is_not_the_pinned_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = deb(FILES, "xz")
    with serving(Site({f"/{POOL}": content[:-9] + b"x" * 9})) as base:
        monkeypatch.setenv(MIRROR_VARIABLE, base)
        with pytest.raises(ValueError, match=r"none of 1 Debian mirrors has it as pinned: .*sha256"):
            fetched(tmp_path, pinned(content))
    monkeypatch.setenv(MIRROR_VARIABLE, "")
    with pytest.raises(ValueError, match=r"pool is 'pool/b_1_all.deb'"):
        DebianFiles("a-doc", "1.0-2", "pool/b_1_all.deb", "0" * 64, GLOBS)


@pytest.mark.parametrize(
    ("content", "globs", "message"),
    [
        (deb(FILES, "xz")[:-40], GLOBS, "not a whole Debian archive"),
        (b"PK\x03\x04 no deb", GLOBS, "it is no ar archive"),
        (deb(FILES, "xz"), ("usr/share/man/*",), r"no file matches the glob 'usr/share/man/\*'"),
        (deb({"./usr/share/doc/../../../x.txt": b"!"}, "xz"), GLOBS, "would leave the artifact's folder"),
        (
            deb([*FILES.items(), ("./usr/share/doc/a/one.txt", b"!")], "xz"),
            GLOBS,
            r"more than once \(usr/share/doc/a/one\.txt\)",
        ),
        (deb([*FILES.items(), ("usr/share/doc/a/one.txt", b"!")], "zst"), GLOBS, "more than once"),
        (deb({"./usr/share/doc/a/test.txt": b"!"}, "xz"), GLOBS, r"test or validation split \(usr/share/doc/a/test\.txt\)"),
    ],
)
def test_damaged_and_hostile_archives_are_named(
    content: bytes, globs: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Site({f"/{POOL}": content})) as base:
        monkeypatch.setenv(MIRROR_VARIABLE, base)
        with pytest.raises(ValueError, match=message):
            fetched(tmp_path, pinned(content, globs))


def unpacked(content: bytes, folder: Path) -> dict[str, bytes] | ValueError:
    """What an archive becomes; anything but a ValueError that names it is raised."""
    archive, target = folder / "a-doc.deb", folder / "files"
    archive.write_bytes(content)
    try:
        unpack(archive, ("*",), target, trainable=False)
    except ValueError as error:
        assert "a-doc.deb" in str(error), f"it must name the archive: {error!r}"
        return error
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}


@pytest.mark.parametrize("compression", ["xz", "zst", "gz", "bz2", ""])
@given(data=st.data())
def test_no_edit_of_an_archive_brings_it_down_or_leaves_the_folder(
    compression: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The three layers that are taken apart here: ar, a compression, tar. Never fewer files in silence.

    A tar that is not compressed has no checksum of what is in a file.
    """
    content, whole = deb(FILES, compression), {name[2:]: text for name, text in FILES.items()}
    folder = tmp_path_factory.mktemp("deb")
    assert unpacked(content, folder) == whole
    start = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(start, min(len(content), start + 50)))
    damaged = folder / "damaged"
    damaged.mkdir()
    outcome = unpacked(content[:start] + data.draw(st.binary(max_size=60)) + content[end:], damaged)
    if not isinstance(outcome, ValueError):
        assert outcome.keys() == whole.keys()
        assert outcome == whole or not compression
    assert {path.name for path in damaged.iterdir()} <= {"a-doc.deb", "files"}


@pytest.mark.parametrize("compression", ["xz", "zst", "gz"])
def test_an_archive_that_is_cut_anywhere_is_never_taken_for_whole(compression: str, tmp_path: Path) -> None:
    noise = random.Random(0).randbytes(3_000)  # so that the compressed files reach to the end
    content = deb({**FILES, "./usr/share/doc/a/three.bin": noise}, compression)
    for cut in range(0, len(content) - 1, 7):
        assert isinstance(unpacked(content[:cut], tmp_path), ValueError), f"cut at {cut} of {len(content)}"


def test_a_size_of_ten_digits_is_refused_before_it_is_read(tmp_path: Path) -> None:
    content = deb(FILES, "xz")
    at = content.index(b"data.tar") + 48
    outcome = unpacked(content[:at] + b"9999999999" + content[at + 10 :], tmp_path)
    assert isinstance(outcome, ValueError) and "of 9999999999 bytes" in str(outcome)


def test_a_machine_that_cannot_open_files_is_no_damage(tmp_path: Path) -> None:
    """An archive's file that is gone, or that this process may not open, does not count as damaged."""
    with pytest.raises(FileNotFoundError):
        unpack(tmp_path / "none.deb", ("*",), tmp_path / "files", trainable=False)


def test_mirrors_are_those_of_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MIRROR_VARIABLE, raising=False)
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.invalid x\ndeb [signed-by=/k] http://one.invalid/debian/ stable main\n"
    )
    (tmp_path / "sources.list.d" / "d.sources").write_text(
        "Types: deb\nURIs: https://two.invalid/debian http://one.invalid/debian\n"
    )
    assert mirrors(tmp_path) == ["http://one.invalid/debian", "https://two.invalid/debian"]
    assert mirrors(tmp_path / "none") == []


def test_a_debian_source_survives_json() -> None:
    source = Source(name="a_doc", loader=pinned(b""), format="text", domain="docs", licence="MIT", terms="", mixture_weight=1.0)
    assert from_jsonable(Source, to_jsonable(source)) == source


def test_an_address_whose_package_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(ValueError, match=r"s3://bucket/x wants a package .*pip install s3fs"):
        file_system("s3://bucket/x")
