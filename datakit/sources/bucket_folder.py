"""A folder of a `gs://` bucket as a source, read by Google's client as the store's roots are (`lineage.storage.gs`).

Requests are retried where that can help. Each file is compared with the checksum from the listing, so a file that was
replaced in between is refused. The client is an optional package, so this module is imported only for such an address.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path

import google_crc32c
from google.api_core.exceptions import ClientError

from lineage.storage.digests import READ_BYTES
from lineage.storage.files import RootGoneError
from lineage.storage.gs import BucketFiles

MD5_CHARS = 24
"""Characters of an MD5 in base64; a CRC32C has eight."""


def bucket_listing(url: str) -> dict[str, tuple[int, str]]:
    """Return size in bytes and checksum of every file below an address, by relative name. Raises: ValueError if access
    is refused.
    """
    try:
        return _bucket(url).checksums()
    except (ClientError, RootGoneError) as error:
        why = (
            error.__cause__ or error
        )  # A missing bucket is reported in Google's words; the advice for a store's root does not apply here.
        raise ValueError(f"{url}: the bucket refuses to be listed ({why}); check its name and this account's rights") from error


def fetch_from_bucket(url: str, name: str, checksum: str, target: Path) -> None:
    """Copy one file to `target`. Raises: ValueError if it was deleted or changed after it was listed."""
    try:
        _bucket(url).download({name: target})
    except FileNotFoundError as error:
        raise ValueError(f"{url}: file {name} was deleted after it was listed") from error
    if (actual := _checksum(target, checksum)) != checksum:
        target.unlink()
        raise ValueError(f"{url}: file {name} has checksum {actual}, its listing says {checksum}; it changed in between")


@cache
def _bucket(url: str) -> BucketFiles:
    """Return one pool of connections for each process and address."""
    return BucketFiles(url)


def _checksum(path: Path, like: str) -> str:
    """Return a file's MD5 or CRC32C in base64, the same kind as `like`."""
    state = hashlib.md5(usedforsecurity=False) if len(like) == MD5_CHARS else google_crc32c.Checksum()
    with path.open("rb") as stream:
        while piece := stream.read(READ_BYTES):
            state.update(piece)
    return base64.b64encode(state.digest()).decode()
