"""Members of pinned Debian archives, read as the archives they are: no dpkg, nothing installed, no script run.

A `.deb` is an ar archive that holds a tar of the files (deb(5)). Where it is fetched from is the machine's business: mirrors of
its own apt configuration, or of MARIN_DEBIAN_MIRROR; the bytes are held to the sha256 of the pin, whoever serves them.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pyarrow as pa

from datakit.download import RegistryUnreachableError, download
from datakit.pypi import machine_certificates
from datakit.sources import DebianFiles

MIRROR_VARIABLE = "MARIN_DEBIAN_MIRROR"
APT = Path("/etc/apt")
URI = re.compile(r"https?://[^\s\]]+")
AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60


def mirrors(apt: Path = APT) -> list[str]:
    """Addresses to ask, in order: MARIN_DEBIAN_MIRROR (several, by blanks) if it is set, else what apt is set up for."""
    if told := os.environ.get(MIRROR_VARIABLE, "").split():
        return [mirror.rstrip("/") for mirror in told]
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    lines = [line for path in files if path.is_file() for line in path.read_text().splitlines()]
    found = [uri.rstrip("/") for line in lines if re.match(r"\s*(?:deb\s|URIs:)", line) for uri in URI.findall(line)]
    return list(dict.fromkeys(found))


def fetch_debian(loader: DebianFiles, downloads: Path, target: Path) -> int:
    """Unpack the members that the globs name below `target`; how many.

    Raises: ValueError without a mirror, when none has the archive, for a wrong hash, a damaged archive, or a glob that names
    none; RegistryUnreachableError when no mirror answers.
    """
    name = PurePosixPath(loader.pool).name
    archive = downloads / loader.sha256 / name
    asked, refusals, silences = mirrors(), [], []
    if not archive.exists() and not asked:
        raise ValueError(f"{name}: no Debian mirror is known: apt names none in {APT}; set {MIRROR_VARIABLE} to one's address")
    for mirror in asked if not archive.exists() else ():
        try:
            url = f"{mirror}/{loader.pool}"
            download(url, archive, sha256=loader.sha256, what=name, certificates=machine_certificates())
            break
        except RegistryUnreachableError as error:
            silences.append(str(error))
        except ValueError as error:
            refusals.append(str(error))
    else:
        if refusals:
            raise ValueError(f"{name}: none of {len(asked)} Debian mirrors has it as pinned: {'; '.join(refusals)}")
        if silences:
            raise RegistryUnreachableError(f"{name}: no Debian mirror answers: {'; '.join(silences)}")
    return unpack(archive, loader.members, target)


def unpack(archive: Path, globs: tuple[str, ...], target: Path) -> int:
    """Write the regular files whose path (`usr/share/doc/...`) matches. Raises ValueError as `fetch_debian` does."""
    written, matched = 0, set[str]()
    try:
        with _data(archive) as stream, tarfile.open(fileobj=stream, mode="r|*") as files:
            for member in files:
                name = member.name.removeprefix("./")
                hits = [glob for glob in globs if member.isfile() and fnmatchcase(name, glob)]
                if not hits:
                    continue
                if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
                    raise ValueError(f"{archive.name}: member {name!r} would leave the artifact's folder")
                content = files.extractfile(member)
                assert content is not None  # a regular file has content
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(content.read())
                matched |= set(hits)
                written += 1
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{archive.name}: not a whole Debian archive ({error}); fetch or restore it") from error
    if missing := [glob for glob in globs if glob not in matched]:
        raise ValueError(f"{archive.name}: no file matches the glob {missing[0]!r}")
    return written


def _data(archive: Path) -> pa.NativeFile:
    """The bytes of the archive's `data.tar`, decompressed where tarfile cannot (zstd)."""
    for name, content in _members(archive):
        if name.startswith("data.tar"):
            compression = "zstd" if name.endswith(".zst") else None
            return pa.input_stream(pa.BufferReader(content), compression=compression)
    raise tarfile.ReadError("it has no member data.tar")


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of the members of an ar archive. Raises tarfile.ReadError where it is cut or none."""
    with archive.open("rb") as stream:
        if stream.read(len(AR_MAGIC)) != AR_MAGIC:
            raise tarfile.ReadError("it is no ar archive")
        while header := stream.read(AR_HEADER_BYTES):
            size = header[48:58].strip()
            if len(header) < AR_HEADER_BYTES or header[58:] != b"`\n" or not size.isdigit():
                raise tarfile.ReadError("an ar header is damaged")
            content = stream.read(int(size))
            if len(content) < int(size):
                raise tarfile.ReadError(f"a member has {len(content)} of {int(size)} bytes")
            stream.read(int(size) % 2)
            yield header[:16].decode("ascii", "replace").strip().rstrip("/"), content
