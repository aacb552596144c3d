"""Files of a `gs://` root. No promise relies on a read before a write: each is a precondition of the request.

After 429, 5xx, a time-out or a cut connection a request is sent again, so an answer may be about an earlier attempt. A create
that is refused (412) still *won* if the object carries our writer's mark. Otherwise, after a lost answer to a manifest's
upload, the writer would believe that another was first and delete the data that it has just committed. Content is checked by
CRC32C on upload and download (google-cloud-storage 3.17).
"""

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Concatenate

from google.api_core.exceptions import Forbidden, GoogleAPICallError, NotFound, PreconditionFailed
from google.api_core.retry import Retry, if_exception_type
from google.cloud.storage import Blob, Bucket, Client
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.exceptions import ChunkedEncodingError

from lineage.storage.files import Listed, RootGoneError, Versioned

log = logging.getLogger(__name__)

SESSIONS = 3
"""Number of resumable uploads of one file before it fails: the server may forget a session (404, 410)."""
BUCKET_GONE = "bucket does not exist"
"""Text of Google's 404 for a bucket; that of an object says "No such object"."""
TRANSFERS = 8
"""Files in transfer at once; the client's connection pool holds ten."""
WRITER = "marin-writer"
_LISTED = "items(name,size,generation,crc32c,storageClass),nextPageToken"
_CHECKSUMS = "items(name,size,md5Hash,crc32c),nextPageToken"


def _of_bucket[**P, T](operation: Callable[Concatenate["BucketFiles", P], T]) -> Callable[Concatenate["BucketFiles", P], T]:
    """Replace Google's bare 404 of a missing bucket by an error that names the root and the remedy."""

    @wraps(operation)
    def wrapped(self: "BucketFiles", *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return operation(self, *arguments, **named)
        except NotFound as error:
            self.refuse_if_gone(error)
            raise

    return wrapped


@dataclass(frozen=True)
class BucketFiles:
    """Operations of `lineage.storage.root.Files` on a bucket. `STORAGE_EMULATOR_HOST` points the client at another server."""

    root: str
    timeout_seconds: float = 60.0
    """Seconds without a byte from the server; then the request is sent again."""
    retry_seconds: float = 300.0
    """How long a failing request is repeated (0.1 s apart at first, doubling to 30) before the stage fails."""

    chunk_bytes: int = 16 << 20
    """Bytes in one part of a resumable upload (files above 8 MiB): the most that a cut connection costs."""

    @cached_property
    def bucket(self) -> Bucket:
        # Otherwise the client requests the bucket's metadata for traces that nobody records, once in a process and after every
        # 404,
        # with a permission (storage.buckets.get) that a job does not need.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        return Client().bucket(self.root.removeprefix("gs://").split("/", 1)[0])

    @cached_property
    def prefix(self) -> str:
        """What object names begin with: empty, or ending in `/`."""
        inside = self.root.removeprefix("gs://").rstrip("/").partition("/")[2]
        return f"{inside}/" if inside else ""

    @cached_property
    def retry(self) -> Retry:
        return DEFAULT_RETRY.with_delay(initial=0.1, maximum=30.0).with_timeout(self.retry_seconds)

    @_of_bucket
    def read(self, name: str) -> bytes | None:
        try:
            return self._whole_answer(self._blob(name).download_as_bytes)()
        except NotFound as error:
            self.refuse_if_gone(error)
            return None

    @_of_bucket
    def read_range(self, name: str, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        try:
            return self._whole_answer(self._blob(name).download_as_bytes)(start=start, end=stop - 1)
        except NotFound as error:
            self.refuse_if_gone(error)
            raise FileNotFoundError(f"{self.root}: there is no {name}") from error

    @_of_bucket
    def create(self, name: str, data: bytes) -> bool:
        return self._write(name, data, generation=0) is not None

    @_of_bucket
    def replace(self, name: str, data: bytes) -> None:
        self._blob(name).upload_from_string(data, "application/octet-stream", checksum="crc32c", **self._sending)

    @_of_bucket
    def read_versioned(self, name: str) -> Versioned | None:
        while True:
            blob = self._blob(name)
            try:
                blob.reload(**self._sending)
                generation = int(blob.generation or 0)
                data = self._whole_answer(blob.download_as_bytes)(if_generation_match=generation)
            except NotFound as error:
                self.refuse_if_gone(error)
                return None
            except PreconditionFailed:  # swapped between the two requests
                continue
            return Versioned(data, str(generation))

    @_of_bucket
    def swap(self, name: str, data: bytes | None, generation: str) -> str | None:
        if data is not None:
            return self._write(name, data, int(generation))
        try:
            self._blob(name).delete(if_generation_match=int(generation), **self._sending)
        except PreconditionFailed:
            return None
        except NotFound:  # deleted by an earlier attempt of this request, or by another process
            pass
        return ""

    @_of_bucket
    def publish(self, folder: Path, name: str) -> None:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        _at_once(partial(self._upload, path, f"{name}/{path.relative_to(folder).as_posix()}") for path in files)

    @_of_bucket
    def copy(self, names: Mapping[str, str]) -> None:
        _at_once(partial(self._rewrite, source, target) for source, target in names.items())

    @_of_bucket
    def download(self, names: Mapping[str, Path]) -> None:
        _at_once(partial(self._download, name, path) for name, path in names.items())

    @_of_bucket
    def listing(self, prefix: str, name: str | None) -> dict[str, Listed]:
        """One request for each thousand files that match: the server filters by name (and we again, some servers do not)."""
        glob = None if name is None else f"**/{name}"
        blobs = self.bucket.client.list_blobs(
            self.bucket, prefix=self._below(prefix), match_glob=glob, fields=_LISTED, **self._sending
        )
        skip = len(self.prefix)
        return {blob.name[skip:]: _facts(blob) for blob in blobs if name is None or blob.name.rsplit("/", 1)[-1] == name}

    @_of_bucket
    def listing_up_to(self, prefix: str, most: int) -> dict[str, Listed] | None:
        blobs = self.bucket.client.list_blobs(
            self.bucket, prefix=self._below(prefix), max_results=most + 1, fields=_LISTED, **self._sending
        )
        skip = len(self.prefix)
        listed = {blob.name[skip:]: _facts(blob) for blob in blobs}
        return listed if len(listed) <= most else None

    @_of_bucket
    def checksums(self) -> dict[str, tuple[int, str]]:
        """Return the size and checksum of every object below the root, placeholders of folders left out.

        The checksum is its MD5 or, of a composed object, its CRC32C, in base64: the same in every region.
        """
        blobs = self.bucket.client.list_blobs(self.bucket, prefix=self.prefix, fields=_CHECKSUMS, **self._sending)
        skip = len(self.prefix)
        return {b.name[skip:]: (b.size or 0, b.md5_hash or b.crc32c or "") for b in blobs if not b.name.endswith("/")}

    @_of_bucket
    def written_ns(self, name: str) -> int | None:
        """The generation is the server's time of the write in microseconds, as seen; Google does not promise it."""
        blob = self._blob(name)
        try:
            blob.reload(**self._sending)
        except NotFound as error:
            self.refuse_if_gone(error)
            return None
        return int(blob.generation or 0) * 1_000

    @_of_bucket
    def location(self) -> str | None:
        """Return the bucket's region by one request (storage.buckets.get); None without that permission."""
        try:
            self.bucket.reload(**self._sending)
        except Forbidden:
            return None
        return self.bucket.location

    @_of_bucket
    def folders(self, name: str) -> list[str]:
        below = self._below(name)
        pages = self.bucket.client.list_blobs(
            self.bucket, prefix=below, delimiter="/", fields="prefixes,nextPageToken", **self._sending
        )
        for _ in pages:  # prefixes are complete after the pages are read
            pass
        return [prefix[len(below) :].rstrip("/") for prefix in pages.prefixes]

    @_of_bucket
    def delete(self, name: str) -> None:
        listed = self.bucket.client.list_blobs(self.bucket, prefix=self.prefix + name, fields=_LISTED, **self._sending)
        own = self.prefix + name
        _at_once(partial(self._delete, blob) for blob in listed if blob.name == own or blob.name.startswith(f"{own}/"))

    def refuse_if_gone(self, error: NotFound) -> None:
        """Raise RootGoneError if a 404 is about the bucket and not about an object."""
        if BUCKET_GONE in str(error):
            raise RootGoneError(
                f"{self.root}: the bucket does not exist (any more); nothing is known of what lay in it. Give the root that is "
                "meant (MARIN_ROOT), or restore the bucket (`gcloud storage restore` while soft deletion keeps it)"
            ) from error

    def _whole_answer[**P, T](self, download: Callable[P, T]) -> Callable[P, T]:
        """Repeat a download whose answer was cut off.

        The client's own retries do not cover the body of an error: google-cloud-storage reads it after they have ended, and a
        torn 404 reaches the caller as a ChunkedEncodingError (seen on 2026-11-24 with an injected fault).
        """
        return self.retry.with_predicate(if_exception_type(ChunkedEncodingError))(partial(download, **self._sending))

    @property
    def _sending(self) -> dict:
        return {"timeout": self.timeout_seconds, "retry": self.retry}

    def _below(self, folder: str) -> str:
        return f"{self.prefix}{folder.strip('/')}/" if folder.strip("/") else self.prefix

    def _blob(self, name: str) -> Blob:
        return self.bucket.blob(self.prefix + name)

    def _write(self, name: str, data: bytes, generation: int) -> str | None:
        """Write if the object has a generation (0: if there is none). Returns the new generation, or None if another was
        first."""
        blob, mark = self._blob(name), uuid.uuid4().hex
        blob.metadata = {WRITER: mark}
        try:
            blob.upload_from_string(
                data, "application/octet-stream", checksum="crc32c", if_generation_match=generation, **self._sending
            )
        except PreconditionFailed:
            blob = self._blob(name)
            try:
                blob.reload(**self._sending)
            except NotFound:
                return None
            if (blob.metadata or {}).get(WRITER) != mark:
                return None
        return str(blob.generation)

    def _upload(self, path: Path, name: str) -> None:
        """Upload into a folder that nobody refers to yet, so sending a file twice does no harm."""
        blob = self.bucket.blob(self.prefix + name, chunk_size=self.chunk_bytes)
        for left in reversed(range(SESSIONS)):
            try:
                blob.upload_from_filename(str(path), "application/octet-stream", checksum="crc32c", **self._sending)
                return
            except GoogleAPICallError as error:
                if isinstance(error, NotFound):
                    self.refuse_if_gone(error)
                if error.code not in (404, 410) or not left:
                    raise
                log.warning("%s: the upload session of %s ended (%s); starting again", self.root, name, error.code)

    def _rewrite(self, source: str, target: str) -> None:
        """Copy an object on the server. A large object takes several requests, each continuing the last one."""
        token: str | None = None
        try:
            while True:
                token, _, _ = self._blob(target).rewrite(self._blob(source), token=token, **self._sending)
                if token is None:
                    return
        except NotFound as error:
            self.refuse_if_gone(error)
            raise FileNotFoundError(f"{self.root}: there is no {source}") from error

    def _download(self, name: str, path: Path) -> None:
        try:
            self._whole_answer(self._blob(name).download_to_filename)(str(path))
        except NotFound as error:
            self.refuse_if_gone(error)
            raise FileNotFoundError(f"{self.root}: there is no {name}") from error

    def _delete(self, blob: Blob) -> None:
        with contextlib.suppress(NotFound, PreconditionFailed):  # deleted by another, or a new object of that name by now
            blob.delete(if_generation_match=blob.generation, **self._sending)


def _facts(blob: Blob) -> Listed:
    stamp = f"{blob.size}:{blob.generation}"
    return Listed(blob.size or 0, stamp, blob.crc32c or "", blob.storage_class or "")


def _at_once(transfers: Iterable[Callable[[], None]]) -> None:
    """Run transfers a few at a time. Raises the first exception, after running transfers have ended."""
    with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="transfers") as pool:
        futures = [pool.submit(transfer) for transfer in transfers]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
