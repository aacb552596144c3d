"""Fetch files for `datakit.raw` from the Hugging Face hub, over HTTP(S), or from any fsspec URL.

A loader is first resolved to exact files; an unverified pin is refused before any request. Then each file is a shard of
the artifact: a killed stage fetches only what is missing, and resumes a large file where it stopped.
"""

import gzip
import hashlib
import logging
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urljoin

import fsspec
import xxhash
from fsspec.implementations.local import LocalFileSystem

from datakit.sources.download import download
from datakit.sources.file_choice import choose
from datakit.sources.source import FolderFiles, HttpFile, HttpFiles, HttpListing, HubFiles, Revision, Source, Unverified
from lineage.storage.digests import READ_BYTES, identity_digest
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

BUCKET = "gs://"
CONTENT_MARKS = ("md5Hash", "ETag", "etag")
"""Fields of bucket listings that identify a file's content (gcsfs, s3fs), best first: an MD5 is equal in every region."""
FILES = "files"
"""Folder of a raw artifact that holds its files."""


def fetch_hub(out: Writer, source: Source, loader: HubFiles) -> int:
    """Fetch files of a revision of the Hugging Face hub; return how many. Records the revision."""
    from datakit.sources import hub  # Imported here because it loads an HTTP client that readers of the catalogue do not need.

    revision = verified(loader.revision, _name(source), "revision")
    listed, partial = hub.hub_listing(loader, revision, trainable=source.refuses_held_out), _partial(out)
    out.extra["commit"] = listed[0].revision  # the recorded name, which manifests have
    return _fetch_all(out, _fetch_hub_file, {_shard(f.path): (f, partial / _shard(f.path)) for f in listed})


def fetch_http(out: Writer, source: Source, loader: HttpFiles) -> int:
    """Fetch files by their addresses; return how many."""
    return _fetch_addresses(out, _pinned_files(loader, _name(source)))


def fetch_listing(out: Writer, source: Source, loader: HttpListing) -> int:
    """Fetch files that a pinned list names; return how many."""
    return _fetch_addresses(out, _listed(loader, source, out.store.downloads))


def fetch_folder(out: Writer, source: Source, loader: FolderFiles) -> int:
    """Fetch files below a folder of any fsspec URL; return how many."""
    files = _pinned_folder(loader, source, _name(source))
    return _fetch_all(out, _fetch_folder_file, {_shard(f.name): (loader.url, f) for f in files})


def _fetch_addresses(out: Writer, files: Sequence[HttpFile]) -> int:
    partial = _partial(out)
    return _fetch_all(out, _fetch_http_file, {_shard(f.name): (f, partial / _shard(f.name)) for f in files})


def _fetch_all(out: Writer, fetch: Callable[..., Mapping[str, object]], tasks: Mapping[str, tuple[Any, ...]]) -> int:
    """Fetch every file as a shard, then remove what downloads left behind."""
    out.map_shards(fetch, dict(tasks), lazy=True)
    if (partial := _partial(out)).exists():
        shutil.rmtree(partial)
    return len(tasks)


def _partial(out: Writer) -> Path:
    """Return the folder for unfinished downloads; it belongs to this artifact, so that two that fetch one file do not
    collide.
    """
    return out.store.downloads / "remote" / out.spec.version


def _name(source: Source) -> str:
    return f"source {source.name}"


def verified[T: (str, Revision)](pin: T | Unverified, what: str, field: str) -> T:
    """Return the pin if somebody has checked it. Raises: ValueError that says how to pin it."""
    if isinstance(pin, Unverified):
        claim = f" (said to be {pin.claim!r})" if pin.claim else ""
        raise ValueError(
            f"{what}: its {field} is unverified{claim}: {pin.why}. Look it up at the origin and put it into the source's "
            "entry; docs/recipes/add_a_source.md says how. Nothing was fetched"
        )
    return pin


def _pinned_files(loader: HttpFiles, what: str) -> tuple[HttpFile, ...]:
    names = tuple(file.name for file in loader.files)
    for file in loader.files:
        verified(file.sha256, what, f"sha256 of {file.url}")
    if len(choose(names, names, (), trainable=False, what=what)) < len(names):
        raise ValueError(f"{what}: two of its files have the same name, of {', '.join(sorted(names))}")
    return loader.files


@dataclass(frozen=True)
class FolderFile:
    """A file below a folder: its relative name, its size in bytes, and an identifier of its content."""

    name: str
    size: int
    content: str


def _pinned_folder(loader: FolderFiles, source: Source, what: str) -> tuple[FolderFile, ...]:
    files = folder_listing(loader, trainable=source.refuses_held_out, what=what)
    digest = listing_digest(files)
    pinned = verified(loader.listing, what, f"listing (this one is {digest})")
    if digest != pinned:
        raise ValueError(f"{what}: the files of {loader.url} changed: their listing is {digest}, not {pinned}")
    return files


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of an address and the path in it. Raises: ValueError with the install command if its
    package is missing.
    """
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = {"gcs": "gcsfs", "s3": "s3fs", "az": "adlfs", "abfs": "adlfs"}.get(url.partition("://")[0])
        mend = f": .venv/bin/python -m pip install {package}" if package else ""
        raise ValueError(f"{url} wants a package that is not installed ({error}){mend}") from error


def folder_listing(loader: FolderFiles, *, trainable: bool, what: str) -> tuple[FolderFile, ...]:
    """Return the files that the globs match, in name order.

    A bucket's listing gives a file's MD5 or entity tag; if there is none (a local folder), the file is read.
    """
    what = f"{what}, folder {loader.url}"
    if loader.url.startswith(BUCKET):
        listing = _bucket_folder(loader.url).bucket_listing(loader.url)
        chosen = choose(listing, loader.globs, loader.exclude, trainable=trainable, what=what)
        return tuple(FolderFile(name, *listing[name]) for name in chosen)
    system, root = file_system(loader.url)
    entries = {path.removeprefix(root).lstrip("/"): entry for path, entry in system.find(root, detail=True).items()}
    chosen = choose(entries, loader.globs, loader.exclude, trainable=trainable, what=what)
    if isinstance(system, LocalFileSystem):
        check_links(Path(root), chosen, what)
    return tuple(FolderFile(name, int(entries[name]["size"]), _content(system, entries[name])) for name in chosen)


def check_links(root: Path, names: Iterable[str], what: str) -> None:
    """Refuse links out of a folder and links to folders. The text of another place has another origin and licence.

    Raises: ValueError that names the link and where it leads.
    """
    inside = root.resolve()
    for name in names:
        path = root / name
        target = path.resolve()
        if not target.is_relative_to(inside) or not target.is_file():
            raise ValueError(f"{what}: {name} is a link to {target}, not a file of this folder; copy the file, or exclude it")


def _bucket_folder(url: str) -> ModuleType:
    """Import `datakit.sources.bucket_folder`. Raises: ValueError with the install command if its package is missing."""
    try:
        from datakit.sources import bucket_folder
    except ImportError as error:
        mend = ".venv/bin/python -m pip install google-cloud-storage"
        raise ValueError(f"{url} wants a package that is not installed ({error}): {mend}") from error
    return bucket_folder


def _content(system: fsspec.AbstractFileSystem, entry: Mapping[str, object]) -> str:
    content = next((str(entry[mark]) for mark in CONTENT_MARKS if entry.get(mark)), None)
    if content is not None:
        return content
    state = xxhash.xxh3_128()
    with system.open(str(entry["name"]), "rb") as stream:
        while piece := stream.read(READ_BYTES):
            state.update(piece)
    return state.hexdigest()


def listing_digest(files: Sequence[FolderFile]) -> str:
    """Digest names, sizes and contents: the pin of a `FolderFiles`."""
    return identity_digest([[f.name, f.size, f.content] for f in sorted(files, key=lambda f: f.name)])


def _listed(loader: HttpListing, source: Source, downloads: Path) -> tuple[HttpFile, ...]:
    """Return the files that a pinned list names and the globs choose. They have no hashes of their own."""
    what = f"source {source.name}"
    sha256 = verified(loader.listing.sha256, what, f"sha256 of {loader.listing.url}")
    path = downloads / sha256 / Path(loader.listing.name).name
    download(loader.listing.url, path, sha256=sha256, what=f"{what}, its list of files")
    lines = [line.removeprefix(loader.base_url) for line in list_lines(path.read_bytes(), f"{what}: {loader.listing.url}")]
    chosen = choose(lines, loader.globs, loader.exclude, trainable=source.refuses_held_out, what=what)
    counts = Counter(lines)
    if repeated := [name for name in chosen if counts[name] > 1]:  # The same address is the same file: fetch it once.
        log.warning("%s: its list names %d files more than once, %s among them", what, len(repeated), repeated[0])
    none = Unverified("", "the list of files gives no hashes")
    return tuple(HttpFile(urljoin(loader.base_url, name), name, none) for name in chosen)


def list_lines(content: bytes, what: str) -> list[str]:
    """Return the lines of a list of files, plain or gzip. Raises: ValueError if it is damaged."""
    try:
        text = (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{what} is no list of files, plain or gzip ({error})") from error
    return [line for each in text.split("\n") if (line := each.strip())]


def _fetch_hub_file(folder: Path, file: object, partial: Path) -> Mapping[str, int]:
    from datakit.sources import hub  # See above.

    assert isinstance(file, hub.HubFile)
    return hub.fetch_hub_file(folder / FILES, file, partial)


def _fetch_http_file(folder: Path, file: HttpFile, partial: Path) -> Mapping[str, int]:
    sha256 = file.sha256 if isinstance(file.sha256, str) else None
    cached = partial / Path(file.name).name
    download(file.url, cached, sha256=sha256, what=file.name)
    return _keep(cached, folder / FILES / file.name)


def _fetch_folder_file(folder: Path, url: str, file: FolderFile) -> Mapping[str, int]:
    target = folder / FILES / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if url.startswith(BUCKET):
        _bucket_folder(url).fetch_from_bucket(url, file.name, file.content, target)
        return {"bytes": file.size}
    system, root = file_system(url)
    system.get_file(f"{root.rstrip('/')}/{file.name}", str(target))
    if (actual := target.stat().st_size) != file.size:
        raise ValueError(
            f"{url}: file {file.name} has {actual} bytes, its listing says {file.size}; it changed, or the copy was cut"
        )
    return {"bytes": file.size}


def _keep(cached: Path, target: Path) -> Mapping[str, int]:
    """Move a download into the artifact. It is not copied, because a corpus does not fit twice."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(cached, target)
    return {"bytes": target.stat().st_size}


def _shard(name: str) -> str:
    """Return a file name for a shard, for any path: the path's digest."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:24]
