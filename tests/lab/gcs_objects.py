"""The state of the test's object store: buckets, objects, generations, and the preconditions of Google's JSON API.

It is written from the public API reference, not from our client. `gcs_conformance.py` tests it and fake-gcs-server with the
same list. One lock covers everything: a request is applied whole or not at all.
"""

import base64
import re
import struct
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import google_crc32c

PRECONDITIONS = ("ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch", "ifMetagenerationNotMatch")


class ApiError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass
class Stored:
    """One live object."""

    data: bytes
    generation: int
    metageneration: int = 1
    metadata: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/octet-stream"
    crc32c: str = ""
    size: int = 0
    md5: str = ""
    """Reported if it is set: composed objects have none."""
    storage_class: str = "STANDARD"

    def __post_init__(self) -> None:
        self.size = self.size or len(self.data)
        self.crc32c = self.crc32c or base64.b64encode(struct.pack(">I", google_crc32c.value(self.data))).decode()


@dataclass
class Upload:
    """A resumable upload in progress: what has arrived, and its preconditions."""

    bucket: str
    name: str
    preconditions: Mapping[str, str]
    resource: Mapping[str, object]
    received: bytes = b""
    made: dict[str, object] | None = None


@dataclass
class Objects:
    """All buckets, in memory. Each write raises the generation by one, from the clock's microseconds as at Google, so a server
    that is started again repeats none.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    buckets: dict[str, dict[str, object]] = field(default_factory=dict)
    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    generation: int = field(default_factory=lambda: time.time_ns() // 1000)

    def check_bucket(self, bucket: str) -> None:
        """Check a bucket. Raises: ApiError 404 in Google's words, which differ from those for an object."""
        if bucket not in self.buckets:
            raise ApiError(404, "The specified bucket does not exist.")

    def check(self, bucket: str, name: str, preconditions: Mapping[str, str], *, reading: bool = False) -> None:
        """Check preconditions. Raises: ApiError 412 (304 for a read of another generation) if one does not hold."""
        there = self.objects.get((bucket, name))
        has = {"Generation": there.generation if there else 0, "Metageneration": there.metageneration if there else 0}
        for key in PRECONDITIONS:
            if key in preconditions:
                kind = "Metageneration" if "Meta" in key else "Generation"
                if (has[kind] == int(preconditions[key])) == key.endswith("NotMatch"):
                    raise ApiError(304 if reading and key.endswith("NotMatch") else 412, "conditionNotMet")

    def put(
        self,
        bucket: str,
        name: str,
        data: bytes,
        preconditions: Mapping[str, str],
        resource: Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        with self.lock:
            self.check_bucket(bucket)
            self.check(bucket, name, preconditions)
            self.generation += 1
            resource = resource or {}
            given = resource.get("metadata")
            stored = Stored(data, self.generation, metadata=dict(given) if isinstance(given, dict) else {})
            if resource.get("crc32c") not in (None, stored.crc32c):
                raise ApiError(400, "crc32c of the content is another than was sent")
            self.keep(bucket, name, stored)
            return self.resource(bucket, name)

    def get(self, bucket: str, name: str, preconditions: Mapping[str, str]) -> Stored:
        with self.lock:
            self.check_bucket(bucket)
            if (bucket, name) not in self.objects:
                raise ApiError(404, "notFound")
            self.check(bucket, name, preconditions, reading=True)
            return self.objects[bucket, name]

    def delete(self, bucket: str, name: str, preconditions: Mapping[str, str]) -> None:
        with self.lock:
            self.check_bucket(bucket)
            if (bucket, name) not in self.objects:
                raise ApiError(404, "notFound")
            self.check(bucket, name, preconditions)
            self.forget(bucket, name)

    def patch(self, bucket: str, name: str, preconditions: Mapping[str, str], metadata: Mapping[str, str]) -> dict[str, object]:
        with self.lock:
            self.check_bucket(bucket)
            if (bucket, name) not in self.objects:
                raise ApiError(404, "notFound")
            self.check(bucket, name, preconditions)
            stored = self.get(bucket, name, {})
            merged = {**stored.metadata, **metadata}
            self.keep(bucket, name, replace(stored, metadata=merged, metageneration=stored.metageneration + 1))
            return self.resource(bucket, name)

    def add_bucket(self, name: str, facts: dict[str, object]) -> None:
        self.buckets[name] = facts

    def keep(self, bucket: str, name: str, stored: Stored) -> None:
        """Replace an object."""
        self.objects[bucket, name] = stored

    def forget(self, bucket: str, name: str) -> None:
        del self.objects[bucket, name]

    def start_upload(self, upload: Upload) -> str:
        with self.lock:
            self.check(upload.bucket, upload.name, upload.preconditions)
            session = uuid.uuid4().hex
            self.uploads[session] = upload
            return session

    def resource(self, bucket: str, name: str) -> dict[str, object]:
        stored = self.objects[bucket, name]
        return ({"md5Hash": stored.md5} if stored.md5 else {}) | {
            "kind": "storage#object",
            "id": f"{bucket}/{name}/{stored.generation}",
            "bucket": bucket,
            "name": name,
            "size": str(stored.size),
            "generation": str(stored.generation),
            "metageneration": str(stored.metageneration),
            "metadata": stored.metadata,
            "contentType": stored.content_type,
            "crc32c": stored.crc32c,
            "storageClass": stored.storage_class,
            "etag": f"g{stored.generation}m{stored.metageneration}",
        }

    def page(self, bucket: str, query: Mapping[str, str]) -> dict[str, object]:
        """Return one page of a listing: prefix, delimiter, matchGlob, maxResults, pageToken."""
        with self.lock:
            self.check_bucket(bucket)
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
            glob = _glob(query["matchGlob"]) if "matchGlob" in query else None
            entries: dict[str, str | None] = {}  # name or prefix -> name, None for a prefix
            for held, name in sorted(self.objects):
                if held != bucket or not name.startswith(prefix) or (glob is not None and not glob.fullmatch(name)):
                    continue
                head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
                entries[prefix + head + cut if cut else name] = None if cut else name
            after = query.get("pageToken", "")
            limit = min(int(query.get("maxResults", 1000)), 1000)
            chosen = [key for key in sorted(entries) if key > after]
            answer: dict[str, object] = {"kind": "storage#objects"}
            shown = chosen[:limit]
            if items := [self.resource(bucket, key) for key in shown if entries[key] is not None]:
                answer["items"] = items
            if prefixes := [key for key in shown if entries[key] is None]:
                answer["prefixes"] = prefixes
            if len(chosen) > limit:
                answer["nextPageToken"] = shown[-1]
            return answer


def _glob(pattern: str) -> re.Pattern[str]:
    """Translate the API's globs: `**` crosses folders, `*` and `?` do not."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    meaning = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts))
