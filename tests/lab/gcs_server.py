"""A GCS-protocol server on loopback for tests: real HTTP, real preconditions, and faults on request.

    with gcs_server() as server:            # server.url, server.counts, server.faults
        server.faults.append(Fault("upload", 2, "lost"))

Uploads are simple, multipart and resumable; reads take ranges; listings have pages. `gcs_conformance.py` is its test.
"""

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from gcs_objects import ApiError, Objects, Upload

BUCKET_PATH = re.compile(r"/storage/v1/b(?:/([^/]+))?")
OBJECT_PATH = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/(.+?)(?:/(rewriteTo|copyTo|compose)(?:/b/([^/]+)/o/(.+))?)?")
_LIST = re.compile(r"/storage/v1/b/([^/]+)/o")
UPLOAD_PATH = re.compile(r"(?:/resumable)?/upload/storage/v1/b/([^/]+)/o")
XML_PATH = re.compile(r"/(?!storage/|upload/|resumable/|download/)([^/]+)/(.+)")
KEPT_OF_A_TORN_CHUNK = 256 << 10
"""A resumable upload keeps whole multiples of 256 KiB of what arrived before its connection broke."""


@dataclass
class Fault:
    """One fault of the `number`-th request of an operation (counted from 1). It happens once."""

    operation: str
    """upload, chunk, read, stat, list, delete, bucket, or `any`."""
    number: int
    kind: Literal["429", "503", "410", "lost", "hang", "torn", "call"]
    """429, 503, 410: refused, nothing done. lost: done, and the connection cut before the answer. hang: no answer until the
    client gives up. torn: the body of the request or the answer is cut in the middle. call: `action` is called first.
    """
    action: Callable[[], None] = lambda: None


@dataclass
class GcsServer:
    """The server as a test uses it."""

    url: str
    objects: Objects = field(default_factory=Objects)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    bytes_read: int = 0
    under_way: int = 0
    delay_seconds: float = 0.0
    """Seconds of delay before each answer, like the way to a real bucket."""

    def bucket(self, name: str, location: str = "US-CENTRAL1") -> str:
        """Make a bucket and return its root URL."""
        facts = {"kind": "storage#bucket", "id": name, "name": name, "location": location, "metageneration": "1"}
        self.objects.add_bucket(name, dict(facts))
        return f"gs://{name}"

    def names(self, bucket: str) -> list[str]:
        return sorted(name for held, name in self.objects.objects if held == bucket)

    def settle(self) -> None:
        """Wait until every request that has arrived is finished, also those of a dead client."""
        while self.under_way:
            time.sleep(0.01)

    def meet(self, operation: str) -> Fault | None:
        """Count a request and return its fault, if it has one."""
        with self.lock:
            self.under_way += 1
            self.counts[operation] += 1
            self.counts["any"] += 1
            for fault in self.faults:
                if fault.operation in (operation, "any") and fault.number == self.counts[fault.operation]:
                    self.faults.remove(fault)
                    return fault
        return None


class _CutError(Exception):
    """The connection ends here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    gcs: GcsServer

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client was killed
            super().handle()

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        self.route, self.query = url.path, dict(parse_qsl(url.query, keep_blank_values=True))
        self.fault = self.gcs.meet(self._operation())
        time.sleep(self.gcs.delay_seconds)
        kind = self.fault.kind if self.fault else None
        try:
            if kind == "torn" and self.command in ("POST", "PUT"):
                self._tear_request()
            self.body = read_body(self.rfile, self.headers)
            if self.fault and kind == "call":
                self.fault.action()
            if self.fault and kind == "hang":
                self.connection.recv(1, socket.MSG_PEEK)  # nothing arrives but the end of the connection
                raise _CutError
            if kind in ("429", "503", "410"):
                raise ApiError(int(kind), "injected")
            self._serve()
        except ApiError as error:
            text = json.dumps({"error": {"code": error.status, "message": error.reason, "errors": [{"reason": error.reason}]}})
            self._answer(error.status, b"" if error.status == 304 else text.encode())
        except (_CutError, ConnectionError):
            self._cut()
        finally:
            with self.gcs.lock:
                self.gcs.under_way -= 1

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any  # noqa: N815 (http.server's names)

    def _operation(self) -> str:
        if UPLOAD_PATH.fullmatch(self.route):
            return "chunk" if "upload_id" in self.query else "upload"
        if _LIST.fullmatch(self.route):
            return "list"
        if BUCKET_PATH.fullmatch(self.route):
            return "bucket"
        if self.command in ("GET", "HEAD"):
            return "read" if self.query.get("alt") == "media" or self.route.startswith("/download") else "stat"
        return {"DELETE": "delete", "PATCH": "patch"}.get(self.command, "upload")

    def _serve(self) -> None:
        if match := UPLOAD_PATH.fullmatch(self.route):
            self._upload(match[1])
        elif match := _LIST.fullmatch(self.route):
            self._json(self.gcs.objects.page(match[1], self.query))
        elif match := OBJECT_PATH.fullmatch(self.route):
            self._object(match[1], unquote(match[2]), match[3], match[4], match[5])
        elif match := BUCKET_PATH.fullmatch(self.route):
            self._bucket(match[1])
        elif match := XML_PATH.fullmatch(self.route):
            self._xml(match[1], unquote(match[2]))
        else:
            raise ApiError(404, f"no such route: {self.route}")

    def _upload(self, bucket: str) -> None:
        kind = self.query.get("uploadType")
        if "upload_id" in self.query:
            self._chunk(self.query["upload_id"])
        elif kind == "media":
            self._json(self.gcs.objects.put(bucket, self.query["name"], self.body, self.query))
        elif kind == "multipart":
            head, data = two_parts(self.headers["Content-Type"], self.body)
            resource = json.loads(head)
            name = self.query.get("name") or resource["name"]
            self._json(self.gcs.objects.put(bucket, name, data, self.query, resource))
        else:
            resource = json.loads(self.body or b"{}")
            name = self.query.get("name") or resource["name"]
            session = self.gcs.objects.start_upload(Upload(bucket, name, dict(self.query), resource))
            self._answer(200, b"", Location=f"{self.gcs.url}{self.route}?uploadType=resumable&upload_id={session}")

    def _chunk(self, session: str) -> None:
        """Take a chunk: `bytes A-B/N` appends its new part; `bytes */N` asks how much has arrived."""
        with self.gcs.objects.lock:
            upload = self.gcs.objects.uploads.get(session)
            if upload is None:
                raise ApiError(404, "no such upload")
            if self.command == "DELETE":
                del self.gcs.objects.uploads[session]
                raise ApiError(499, "the upload is given up")
            if upload.made is not None:  # sent again, because the answer was lost
                self._json(upload.made)
                return
            span = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", self.headers.get("Content-Range", ""))
            first = int(span[1]) if span and span[1] else len(upload.received)
            if first > len(upload.received):
                raise ApiError(400, "a gap before this chunk")
            upload.received += self.body[len(upload.received) - first :]
            total = int(span[3]) if span and span[3] != "*" else None
            if span is None or (total is not None and len(upload.received) >= total):
                upload.made = self.gcs.objects.put(
                    upload.bucket, upload.name, upload.received, upload.preconditions, upload.resource
                )
                self._json(upload.made)
                return
        self._answer(308, b"", **({"Range": f"bytes=0-{len(upload.received) - 1}"} if upload.received else {}))

    def _object(self, bucket: str, name: str, verb: str | None, to_bucket: str | None, to_name: str | None) -> None:
        objects = self.gcs.objects
        if verb == "compose":
            sources = [objects.get(bucket, part["name"], {}).data for part in json.loads(self.body)["sourceObjects"]]
            self._json(objects.put(bucket, name, b"".join(sources), self.query))
        elif verb is not None:
            assert to_bucket is not None and to_name is not None
            made = objects.put(to_bucket, unquote(to_name), objects.get(bucket, name, {}).data, self.query)
            self._json({"done": True, "resource": made, "totalBytesRewritten": made["size"], "objectSize": made["size"]})
        elif self.command == "DELETE":
            objects.delete(bucket, name, self.query)
            self._answer(204, b"")
        elif self.command == "PATCH":
            self._json(objects.patch(bucket, name, self.query, json.loads(self.body).get("metadata", {})))
        elif self._operation() == "read":
            self._media(bucket, name)
        else:
            objects.get(bucket, name, self.query)
            self._json(objects.resource(bucket, name))

    def _media(self, bucket: str, name: str) -> None:
        stored = self.gcs.objects.get(bucket, name, self.query)
        data, status, extra = stored.data, 200, {}
        if span := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            last = min(int(span[2] or len(data) - 1), len(data) - 1) if span[1] else len(data) - 1
            first = int(span[1]) if span[1] else max(0, len(data) - int(span[2]))  # `-N` are the last N bytes
            if first >= len(data):
                raise ApiError(416, "requestedRangeNotSatisfiable")
            data, status, extra = data[first : last + 1], 206, {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.gcs.bytes_read += len(data)
        hashes = {"X-Goog-Hash": f"crc32c={stored.crc32c}", "X-Goog-Generation": str(stored.generation)}
        self._answer(status, data, ETag=f'"g{stored.generation}"', **hashes, **extra)

    def _bucket(self, bucket: str | None) -> None:
        buckets = self.gcs.objects.buckets
        if self.command == "POST":
            bucket = json.loads(self.body)["name"]
            if bucket in buckets:
                raise ApiError(409, "conflict")
            self.gcs.bucket(bucket)
        elif bucket not in buckets:
            raise ApiError(404, "notFound")
        elif self.command in ("PATCH", "PUT"):
            version = int(str(buckets[bucket]["metageneration"]))
            if int(self.query.get("ifMetagenerationMatch", version)) != version:
                raise ApiError(412, "conditionNotMet")
            changed = {**buckets[bucket], **json.loads(self.body), "metageneration": str(version + 1)}
            self.gcs.objects.add_bucket(bucket, changed)
        self._json(buckets[str(bucket)])

    def _xml(self, bucket: str, name: str) -> None:
        """Answer the XML API's HEAD, GET and PUT, which object_store (polars, delta) uses."""
        if self.command == "PUT":
            match = self.headers.get("x-goog-if-generation-match")
            made = self.gcs.objects.put(bucket, name, self.body, {} if match is None else {"ifGenerationMatch": match})
            self._answer(200, b"", ETag=f'"g{made["generation"]}"')
        else:
            self._media(bucket, name)

    def _tear_request(self) -> None:
        """Accept half of the body; of a resumable chunk, keep whole multiples of 256 KiB of that half."""
        half = self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
        upload = self.gcs.objects.uploads.get(self.query.get("upload_id", ""))
        if upload is not None:
            upload.received += half[: len(half) // KEPT_OF_A_TORN_CHUNK * KEPT_OF_A_TORN_CHUNK]
        raise _CutError

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), **{"Content-Type": "application/json; charset=UTF-8"})

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        kind = self.fault.kind if self.fault else None
        if kind == "lost":
            raise _CutError
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if kind == "torn" else body)
        self.wfile.flush()
        if kind == "torn":
            raise _CutError

    def _cut(self) -> None:
        """Reset the connection instead of closing it, so that unread data is lost too."""
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has closed it already
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def read_body(stream: BinaryIO, headers: Message) -> bytes:
    """Return the body of a request, also of one that comes in chunks."""
    if "chunked" not in (headers.get("Transfer-Encoding") or ""):
        return stream.read(int(headers.get("Content-Length") or 0))
    body = b""
    while size := int(stream.readline().split(b";")[0], 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body


def two_parts(content_type: str, body: bytes) -> tuple[bytes, bytes]:
    """Return the contents of a multipart body's two parts, byte for byte."""
    boundary = re.search(r'boundary="?([^";]+)', content_type)
    if boundary is None:
        raise ApiError(400, f"no boundary in {content_type}")
    _, first, second = body.split(b"--" + boundary[1].encode(), 2)
    second = second.rpartition(b"--" + boundary[1].encode())[0]
    head, data = (part.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for part in (first, second))
    return head, data


@contextlib.contextmanager
def gcs_server(objects: Objects | None = None, port: int = 0) -> Iterator[GcsServer]:
    """Yield a new server on 127.0.0.1, on a free port by default."""
    state = GcsServer("", objects or Objects())
    handler = type("Handler", (_Handler,), {"gcs": state})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.block_on_close = False
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="gcs", daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
