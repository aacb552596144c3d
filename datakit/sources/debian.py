"""Members of pinned Debian archives. They are read as archives: without dpkg, without installing, without running
scripts.

A `.deb` is an ar archive that holds a tar of the files (deb(5)). The mirrors are those of the machine's apt
configuration, or of MARIN_DEBIAN_MIRROR. The bytes must have the pinned sha256, whichever mirror serves them.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Self

import pyarrow as pa

from datakit.sources.download import RegistryUnreachableError, download
from datakit.sources.file_choice import check_once, choose
from datakit.sources.record import is_damage
from datakit.sources.source import DebianFiles
from lineage.storage.digests import READ_BYTES

MIRROR_VARIABLE = "MARIN_DEBIAN_MIRROR"
APT = Path("/etc/apt")
URI = re.compile(r"https?://[^\s\]]+")
AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60


def mirrors(apt: Path = APT) -> list[str]:
    """Return addresses to ask, in order: MARIN_DEBIAN_MIRROR (several, separated by blanks) if set, else apt's mirrors."""
    if configured := os.environ.get(MIRROR_VARIABLE, "").split():
        return [mirror.rstrip("/") for mirror in configured]
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    lines = [line for path in files if path.is_file() for line in path.read_text().splitlines()]
    mirrors_found = [uri.rstrip("/") for line in lines if re.match(r"\s*(?:deb\s|URIs:)", line) for uri in URI.findall(line)]
    return list(dict.fromkeys(mirrors_found))


def fetch_debian(loader: DebianFiles, downloads: Path, target: Path, *, trainable: bool) -> int:
    """Unpack the members that the globs name below `target`; return how many.

    Raises: ValueError without a mirror, if none has the archive, for a wrong hash, for a damaged archive, and as
    `choose` and `check_once` do; RegistryUnreachableError if no mirror answers.
    """
    name = PurePosixPath(loader.pool).name
    archive = downloads / loader.sha256 / name
    candidates, refusals, silences = mirrors(), [], []
    if not archive.exists() and not candidates:
        raise ValueError(f"{name}: no Debian mirror is known: apt names none in {APT}; set {MIRROR_VARIABLE} to one's address")
    for mirror in candidates if not archive.exists() else ():
        try:
            url = f"{mirror}/{loader.pool}"
            download(url, archive, sha256=loader.sha256, what=name)
            break
        except RegistryUnreachableError as error:
            silences.append(str(error))
        except ValueError as error:
            refusals.append(str(error))
    else:
        if refusals:
            raise ValueError(f"{name}: none of {len(candidates)} Debian mirrors has it as pinned: {'; '.join(refusals)}")
        if silences:
            raise RegistryUnreachableError(f"{name}: no Debian mirror answers: {'; '.join(silences)}")
    return unpack(archive, loader.members, target, trainable=trainable)


def unpack(archive: Path, globs: tuple[str, ...], target: Path, *, trainable: bool) -> int:
    """Write the regular files whose path (`usr/share/doc/...`) matches a glob; return their number.

    The archive is read twice: the whole listing is checked before the first byte is written.
    Raises: ValueError for a damaged archive, for a chosen name that occurs twice, and, if `trainable`, for chosen files
    that look like a test or validation split.
    """
    there = [name for name, _ in _files(archive)]
    names = frozenset(choose(there, globs, (), trainable=trainable, what=archive.name))
    check_once((name for name in there if name in names), archive.name)
    for name, content in _files(archive, names):
        if name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)
    return len(names)


def _files(archive: Path, wanted: frozenset[str] = frozenset()) -> Iterator[tuple[str, bytes]]:
    """Yield (path, bytes if wanted) of every regular file. Raises: ValueError if the archive is cut, damaged or not an
    archive.
    """
    try:
        with _data(archive) as stream, tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as files:
            for member in files:
                name = member.name.removeprefix("./")
                content = files.extractfile(member) if name in wanted else None
                if member.isfile():
                    yield name, b"" if content is None else content.read()
            while stream.read(READ_BYTES):  # Read to the end, where gzip and xz have their checksums.
                pass
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        if not is_damage(error):
            raise
        raise ValueError(f"{archive.name}: not a whole Debian archive ({error}); fetch or restore it") from error


class _Header(tarfile.TarInfo):
    """Refuse an unreadable header: tarfile would silently take it for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf == bytes(tarfile.BLOCKSIZE):  # the end
                raise
            raise tarfile.ReadError(f"a header is damaged or missing: {error}") from error


def _data(archive: Path) -> IO[bytes] | pa.NativeFile:
    """Return the bytes of the archive's `data.tar`, decompressed."""
    for name, content in _members(archive):
        if name.startswith("data.tar"):
            return _decompressed(name.removeprefix("data.tar"), content)
    raise tarfile.ReadError("it has no member data.tar")


def _decompressed(suffix: str, content: bytes) -> IO[bytes] | pa.NativeFile:
    match suffix:
        case "":
            return io.BytesIO(content)
        case ".gz":
            return gzip.GzipFile(fileobj=io.BytesIO(content))
        case ".xz" | ".lzma":
            return lzma.LZMAFile(io.BytesIO(content))
        case ".bz2":
            return bz2.BZ2File(io.BytesIO(content))
        case ".zst":
            return pa.input_stream(pa.BufferReader(content), compression="zstd")
    raise tarfile.ReadError(f"its data.tar{suffix} is compressed in a way that dpkg does not know")


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of the members of an ar archive. Raises: tarfile.ReadError if it is cut or not an archive."""
    size_bytes = archive.stat().st_size
    with archive.open("rb") as stream:
        if stream.read(len(AR_MAGIC)) != AR_MAGIC:
            raise tarfile.ReadError("it is no ar archive")
        while header := stream.read(AR_HEADER_BYTES):
            size = header[48:58].strip()
            if len(header) < AR_HEADER_BYTES or header[58:] != b"`\n" or not size.isdigit():
                raise tarfile.ReadError("an ar header is damaged")
            left = size_bytes - stream.tell()
            if int(size) > left:  # Checked before reading, because a damaged size may have ten digits.
                raise tarfile.ReadError(f"a member has {left} of {int(size)} bytes")
            content = stream.read(int(size))
            stream.read(int(size) % 2)
            yield header[:16].decode("ascii", "replace").strip().rstrip("/"), content
