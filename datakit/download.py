"""One file over HTTP(S): resumed by Range, checked by sha256, visible under its name only when it is whole and right."""

import hashlib
import logging
import os
import shutil
import time
from pathlib import Path

import requests
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18
ATTEMPTS = 5
TIMEOUT_SECONDS = 30
MAX_WAIT_SECONDS = 20.0
RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})


class RegistryUnreachableError(ConnectionError):
    """No server answered; the caller may go on without what it wanted, and must say so."""


def download(url: str, target: Path, *, sha256: str, what: str) -> None:
    """Fetch `url` into `target`.

    A `.partial` file beside the target keeps what came so far, also across kills. Servers that answer 429 or 5xx are asked
    again, after their Retry-After, `ATTEMPTS` times in all.
    Raises: ValueError for a wrong hash (the partial file is deleted) or a refusal such as 404; RegistryUnreachableError when
    the server does not answer.
    """
    partial = target.with_name(f"{target.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    failure: Exception | None = None
    for attempt in range(ATTEMPTS):
        try:
            _fetch_rest(url, partial, what)
            break
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            failure, wait = error, min(2.0**attempt * 0.25, MAX_WAIT_SECONDS)
        except requests.HTTPError as error:
            if error.response.status_code not in RETRIED_STATUS:
                raise ValueError(f"{what}: the server refuses {error.response.status_code} for its file") from error
            failure, wait = error, _retry_after(error.response, attempt)
        log.warning("%s: %s; attempt %d of %d, again in %.1f s", what, failure, attempt + 1, ATTEMPTS, wait)
        time.sleep(wait)
    else:
        raise RegistryUnreachableError(f"{what}: no answer after {ATTEMPTS} attempts ({failure})") from failure
    _accept(partial, target, sha256, what)


def copy_local(path: Path, target: Path, *, sha256: str, what: str) -> None:
    """The same for a file that the user's package index keeps on this machine."""
    partial = target.with_name(f"{target.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, partial)
    _accept(partial, target, sha256, what)


def _accept(partial: Path, target: Path, sha256: str, what: str) -> None:
    found = _sha256(partial)
    if found != sha256:
        partial.unlink()
        raise ValueError(f"{what}: the file that was fetched has sha256 {found}, its pin says {sha256}; it was deleted")
    with partial.open("rb") as stream:
        os.fsync(stream.fileno())
    partial.replace(target)


def _fetch_rest(url: str, partial: Path, what: str) -> None:
    """Append what is missing; a server without ranges sends everything, and the file starts anew."""
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
        if response.status_code == 416:  # nothing is missing, or the partial is longer than the file: the hash will tell
            return
        response.raise_for_status()
        resumed = response.status_code == 206
        if resumed:
            log.info("%s: resuming at byte %d", what, have)
        total = int(response.headers.get("Content-Length", 0)) + (have if resumed else 0)
        with partial.open("ab" if resumed else "wb") as stream, _bar() as bar:
            task = bar.add_task(what, total=total or None, completed=have if resumed else 0)
            for chunk in response.iter_content(CHUNK_BYTES):
                stream.write(chunk)
                bar.advance(task, len(chunk))
    size = partial.stat().st_size
    if total and size < total:
        raise requests.ConnectionError(f"the connection ended after {size} of {total} bytes")


def _bar() -> Progress:
    columns = (TextColumn("{task.description:<44}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True))


def _retry_after(response: requests.Response, attempt: int) -> float:
    told = response.headers.get("Retry-After", "")
    return min(float(told) if told.isdigit() else 2.0**attempt * 0.5, MAX_WAIT_SECONDS)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
