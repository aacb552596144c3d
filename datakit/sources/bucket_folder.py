"""A folder of a `gs://` bucket as a source: by Google's own client, as the store's roots are (`lineage.storage.gs`).

Every request is repeated where it may help; a file is held to the checksum that its listing told, so one that was replaced in
between is refused. Imported where an address wants it: the client is an optional package.
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
"""Of an MD5 in base64; a CRC32C has eight."""


def bucket_listing(url: str) -> dict[str, tuple[int, str]]:
    """Size in bytes and checksum of every file below an address, by name from there. Raises ValueError where it is refused."""
    try:
        return _bucket(url).checksums()
    except (ClientError, RootGoneError) as error:
        why = error.__cause__ or error  # of a bucket that is gone in Google's words: the remedy for a store's root is none here
        raise ValueError(f"{url}: the bucket refuses to be listed ({why}); check its name and this account's rights") from error


def fetch_from_bucket(url: str, name: str, checksum: str, target: Path) -> None:
    """Copy one file to `target`. Raises ValueError when its bytes are others than were listed."""
    try:
        _bucket(url).download({name: target})
    except FileNotFoundError as error:
        raise ValueError(f"{url}: file {name} was deleted after it was listed") from error
    if (found := _checksum(target, checksum)) != checksum:
        target.unlink()
        raise ValueError(f"{url}: file {name} has checksum {found}, its listing says {checksum}; it changed in between")


@cache
def _bucket(url: str) -> BucketFiles:
    """One pool of connections a process and address."""
    return BucketFiles(url)


def _checksum(path: Path, like: str) -> str:
    """A file's MD5 or CRC32C in base64, whichever `like` is."""
    state = hashlib.md5(usedforsecurity=False) if len(like) == MD5_CHARS else google_crc32c.Checksum()
    with path.open("rb") as stream:
        while piece := stream.read(READ_BYTES):
            state.update(piece)
    return base64.b64encode(state.digest()).decode()
