"""Download one file over HTTP(S): resumed by Range, checked by sha256, visible under its name only when it is complete."""

import fcntl
import logging
import os
import shutil
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import requests
import urllib3
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from lineage.storage.digests import file_sha256

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18
ATTEMPTS = 5
TIMEOUT_SECONDS = 30
"""Seconds without a byte before the connection is given up."""
SLOWEST_BYTES_PER_SECOND = 1_000
PACE_SECONDS = 60
"""Seconds that a server may be slower than that. A server that drips would never be silent for `TIMEOUT_SECONDS`."""
MAX_WAIT_SECONDS = 20.0
type Headers = Mapping[str, str]
NO_HEADERS: Headers = MappingProxyType({})
RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})


class RegistryUnreachableError(ConnectionError):
    """No server answered. The caller may continue without the file, but must say so."""


@dataclass
class _Partial:
    """A partial file. `validator` is the ETag of the whole file, for downloads without a hash."""

    path: Path
    hashed: bool
    validator: str | None = None

    def resume_headers(self) -> dict[str, str]:
        """Return the headers that ask for the rest; none if the file must start over because nobody knows whose bytes
        it has.
        """
        have = self.path.stat().st_size if self.path.exists() else 0
        if not have or not (self.hashed or self.validator):
            return {}
        return {"Range": f"bytes={have}-"} | ({"If-Range": self.validator} if self.validator else {})


def download(
    url: str, target: Path, *, sha256: str | None, what: str, certificates: str | None = None, headers: Headers = NO_HEADERS
) -> None:
    """Fetch `url` into `target`.

    A `.partial` file beside the target keeps what has arrived, also across kills. A second process that wants the same
    file waits for the first. If a server answers 429 or 5xx, cuts the connection, sends nothing for `TIMEOUT_SECONDS`,
    or sends less than `SLOWEST_BYTES_PER_SECOND`, the request is repeated, after Retry-After if given, `ATTEMPTS` times
    in all. `certificates` is a file or folder of certificates; None takes REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE, else
    the machine's. If `sha256` is None, only the length is checked, and a file is resumed only within this call and
    while its strong ETag is the same.

    Raises: ValueError for a wrong hash (the partial file is deleted) or a refusal such as 404; RegistryUnreachableError
    if the server does not answer.
    """
    with _locked(target) as partial:
        if target.exists():  # Another process finished it while this one waited.
            return
        trusted = certificates or requests_certificates() or machine_certificates()
        _fetch_patiently(url, _Partial(partial, hashed=sha256 is not None), what, trusted, headers)
        _accept(partial, target, sha256, what)


def requests_certificates() -> str | None:
    """Return the certificates that the environment lets requests trust."""
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or None


def machine_certificates() -> str | None:
    """Return the file or folder that this Python's OpenSSL reads certificates from, if any; SSL_CERT_FILE and
    SSL_CERT_DIR set it.
    """
    paths = ssl.get_default_verify_paths()
    folder = paths.capath if paths.capath is not None and any(Path(paths.capath).iterdir()) else None
    return paths.cafile or folder


def _fetch_patiently(url: str, partial: _Partial, what: str, certificates: str | None, headers: Headers) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _fetch_rest(url, partial, what, certificates, headers)
            return
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            failure, wait = error, min(2.0**attempt * 0.125, MAX_WAIT_SECONDS)
        except requests.HTTPError as error:
            if error.response.status_code not in RETRIED_STATUS:
                raise ValueError(f"{what}: the server refuses {error.response.status_code} for its file") from error
            failure, wait = error, _retry_after(error.response, attempt)
        if attempt == ATTEMPTS:
            raise RegistryUnreachableError(f"{what}: no answer after {ATTEMPTS} attempts ({failure})") from failure
        log.warning("%s: %s; attempt %d of %d, again in %.1f s", what, failure, attempt, ATTEMPTS, wait)
        time.sleep(wait)


def copy_local(path: Path, target: Path, *, sha256: str, what: str) -> None:
    """Copy a file that the user's package index keeps on this machine, with the same guarantees."""
    with _locked(target) as partial:
        shutil.copyfile(path, partial)
        _accept(partial, target, sha256, what)


@contextmanager
def _locked(target: Path) -> Iterator[Path]:
    """Hold the partial file of a target: two processes that append at once would mix their bytes.

    The lock is on the target's folder, so it leaves no file behind, and it ends with the process that holds it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield target.with_name(f"{target.name}.partial")
    finally:
        os.close(folder)


def _accept(partial: Path, target: Path, sha256: str | None, what: str) -> None:
    if sha256 is not None and (actual := file_sha256(partial)) != sha256:
        partial.unlink()
        raise ValueError(f"{what}: the file that was fetched has sha256 {actual}, its pin says {sha256}; it was deleted")
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.replace(target)


def _fetch_rest(url: str, partial: _Partial, what: str, certificates: str | None, more_headers: Headers) -> None:
    """Append what is missing. A server without ranges sends everything, and the file starts over."""
    resume = partial.resume_headers()
    have = partial.path.stat().st_size if resume else 0
    headers = {**more_headers, "Accept-Encoding": "identity", **resume}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS, verify=certificates) as response:
        if (
            response.status_code == 416 and partial.hashed
        ):  # Nothing is missing, or the partial file is too long: the hash decides.
            return
        response.raise_for_status()
        resumed = response.status_code == 206
        header = response.headers.get("Content-Range", f"bytes {have}-")
        if resumed and not header.startswith(f"bytes {have}-"):
            partial.path.unlink()  # These bytes are of another file; the next attempt asks for the whole file.
            raise requests.ConnectionError(f"requested bytes from {have}, the server sent {header!r}")
        if resumed:
            log.info("%s: resuming at byte %d", what, have)
        total = int(response.headers.get("Content-Length", 0)) + (have if resumed else 0)
        if not (partial.hashed or "Content-Length" in response.headers or "Transfer-Encoding" in response.headers):
            raise ValueError(
                f"{what}: the server gives no length and there is no hash, so a file that was cut would pass; give its sha256"
            )
        etag = response.headers.get("ETag", "")
        partial.validator = etag if etag and not etag.startswith("W/") else None
        with partial.path.open("ab" if resumed else "wb") as stream, _bar() as bar:
            task = bar.add_task(what, total=total or None, completed=have if resumed else 0)
            for chunk in _pieces(response):
                stream.write(chunk)
                bar.advance(task, len(chunk))
    size = partial.path.stat().st_size
    if total and size < total:
        raise requests.ConnectionError(f"the connection ended after {size} of {total} bytes")


def _pieces(response: requests.Response) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises: requests.ConnectionError if it is cut or stalls, requests.Timeout if it is
    too slow.

    It does not use `iter_content`, which waits until a piece is full, however long that takes.
    """
    since, came = time.monotonic(), 0
    try:
        while piece := response.raw.read1(CHUNK_BYTES, decode_content=True):
            yield piece
            came, seconds = came + len(piece), time.monotonic() - since
            if seconds >= PACE_SECONDS:
                if came < SLOWEST_BYTES_PER_SECOND * seconds:
                    raise requests.Timeout(f"{came} bytes in {seconds:.0f} s; the least is {SLOWEST_BYTES_PER_SECOND} a second")
                since, came = time.monotonic(), 0
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(f"the connection was cut or stalled ({error})") from error


def _bar() -> Progress:
    columns = (TextColumn("{task.description:<44}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _retry_after(response: requests.Response, attempt: int) -> float:
    header = response.headers.get("Retry-After", "")
    return min(float(header) if header.isdigit() else 2.0**attempt * 0.25, MAX_WAIT_SECONDS)
