"""The revision that an origin has today: from a hub on loopback, and from pip's own configuration."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import COMMIT
from test_hub import LOADER, hub_on_loopback, small_hub

from datakit.sources.source import FolderFiles, PypiFiles, Revision, Unverified, WheelPin
from datakit.sources.upstream import Upstream, upstream_of


def test_a_hub_repository_tells_its_newest_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_on_loopback(small_hub(), monkeypatch):
        assert upstream_of(LOADER) == Upstream(COMMIT, COMMIT)
        old = upstream_of(replace(LOADER, revision=Revision("0" * 40)))
        assert old is not None and old.has_moved
        assert upstream_of(replace(LOADER, revision=Unverified("", "nobody has looked"))) is None


def wheel(folder: Path, version: str) -> None:
    with zipfile.ZipFile(folder / f"tinyprose-{version}-py3-none-any.whl", "w") as archive:
        info = f"tinyprose-{version}.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tinyprose\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def test_a_package_has_moved_when_the_index_has_a_newer_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    loader = PypiFiles(WheelPin("tinyprose", "1.0", "0" * 64), ("*",))
    wheel(tmp_path, "1.0")
    assert upstream_of(loader) == Upstream("1.0", "1.0")
    wheel(tmp_path, "1.1")
    assert upstream_of(loader) == Upstream("1.0", "1.1")
    missing = PypiFiles(WheelPin("noprose", "1.0", "0" * 64), ("*",))
    with pytest.raises(ValueError, match="pip cannot resolve noprose"):
        upstream_of(missing)


def test_an_origin_without_revisions_has_none() -> None:
    assert upstream_of(FolderFiles("memory://x", ("*",), "0" * 32)) is None
