"""A proxy that adds to fake-gcs-server the rules of Google's JSON API that it lacks, preconditions above all.

    with gcs_guard(upstream) as url:        # `fake_gcs.guarded_gcs_server` sets both up

The guard answers requests whose preconditions do not hold, by the object's generation upstream. It passes the others on without
preconditions, under one lock, so that nothing comes between check and request. The guard also keeps the progress of resumable
uploads (upstream would end an upload that is asked for it), bucket lifecycles, metagenerations of objects, and the XML API's
PUT. It completes the listings of upstream.
"""

import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from gcs_objects import PRECONDITIONS, ApiError
from gcs_server import BUCKET_PATH, OBJECT_PATH, UPLOAD_PATH, XML_PATH, read_body, two_parts

type Place = tuple[str, str]
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}
XML_MATCH = "x-goog-if-generation-match"


@dataclass
class Session:
    """A resumable upload: its object, its preconditions, how many bytes arrived, and the answer that ended it."""

    place: Place
    preconditions: Mapping[str, str]
    received: int = 0
    made: bytes | None = None


@dataclass
class Guard:
    """State of the proxy beside that of upstream."""

    upstream: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    sessions: dict[str, Session] = field(default_factory=dict)
    lifecycles: dict[str, Any] = field(default_factory=dict)
    patches: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    def call(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> "Answer":
        connection = HTTPConnection(urlsplit(self.upstream).netloc, timeout=60)
        with contextlib.closing(connection):
            sent = {name: value for name, value in (headers or {}).items() if name.lower() not in HOP_BY_HOP}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), dict(answer.getheaders()))

    def check(self, place: Place, preconditions: Mapping[str, str], *, reading: bool) -> None:
        """Check preconditions against the object upstream. Raises: ApiError 412 or 304 if one does not hold."""
        if not preconditions:
            return
        answer = self.call("GET", f"/storage/v1/b/{place[0]}/o/{quote(place[1], safe='')}")
        generation = int(json.loads(answer.body)["generation"]) if answer.status == 200 else 0
        has = {"Generation": generation, "Metageneration": 1 + self.patches[(*place, generation)] if generation else 0}
        for key, value in preconditions.items():
            wanted, is_not = has["Metageneration" if "Meta" in key else "Generation"], key.endswith("NotMatch")
            if (wanted == int(value)) == is_not:
                raise ApiError(304 if reading and is_not else 412, "conditionNotMet")


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    guard: Guard

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        parameters = dict(parse_qsl(url.query, keep_blank_values=True))
        self.preconditions = {key: value for key, value in parameters.items() if key in PRECONDITIONS}
        self.query = {key: value for key, value in parameters.items() if key not in PRECONDITIONS}
        self.route, self.body = url.path, read_body(self.rfile, self.headers)
        try:
            with self.guard.lock:
                answer = self._answer()
        except ApiError as error:
            answer = Answer(
                error.status, b"" if error.status == 304 else json.dumps({"error": {"code": error.status}}).encode()
            )
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any  # noqa: N815 (http.server's names)

    def _answer(self) -> Answer:
        if match := UPLOAD_PATH.fullmatch(self.route):
            return (
                self._chunk(self.guard.sessions[self.query["upload_id"]])
                if "upload_id" in self.query
                else self._upload(match[1])
            )
        if match := OBJECT_PATH.fullmatch(self.route):
            return self._object((match[4] or match[1], unquote(match[5] or match[2])), written=match[3] is not None)
        if (match := BUCKET_PATH.fullmatch(self.route)) and match[1]:
            return self._bucket(match[1])
        if self.command == "PUT" and (match := XML_PATH.fullmatch(self.route)):
            return self._xml(match[1], unquote(match[2]))
        return self._pass_on()

    def _pass_on(self) -> Answer:
        path = self.route + (f"?{urlencode(self.query)}" if self.query else "")
        return self.guard.call(self.command, path, self.body, dict(self.headers))

    def _upload(self, bucket: str) -> Answer:
        kind, name = self.query["uploadType"], self.query.get("name")
        if name is None:
            resource = two_parts(self.headers["Content-Type"], self.body)[0] if kind == "multipart" else self.body
            name = json.loads(resource)["name"]
        self.guard.check((bucket, name), self.preconditions, reading=False)
        answer = self._pass_on()
        if kind == "resumable" and answer.status < 300:
            at = next(value for key, value in answer.headers.items() if key.lower() == "location")
            self.guard.sessions[dict(parse_qsl(urlsplit(at).query))["upload_id"]] = Session((bucket, name), self.preconditions)
        return answer

    def _chunk(self, session: Session) -> Answer:
        """Take a chunk. Preconditions are checked at the last byte. A request for the progress does not reach upstream."""
        if self.command == "DELETE":
            del self.guard.sessions[self.query["upload_id"]]
            return Answer(499)
        span = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", self.headers.get("Content-Range", ""))
        if session.made is not None:
            return Answer(200, session.made, {"Content-Type": "application/json; charset=UTF-8"})
        ends = span is None or (span[3] != "*" and int(span[2] or session.received - 1) + 1 >= int(span[3]))
        if span is not None and span[1] is None and not ends:
            return Answer(308, b"", {"Range": f"bytes=0-{session.received - 1}"} if session.received else {})
        if ends:
            self.guard.check(session.place, session.preconditions, reading=False)
        answer = self._pass_on()
        session.received = int(span[2]) + 1 if span and span[2] else session.received
        if ends and answer.status == 200:
            session.made = answer.body
        elif answer.status in (200, 308):
            return Answer(308, b"", {"Range": f"bytes=0-{session.received - 1}"})
        return answer

    def _object(self, place: Place, *, written: bool) -> Answer:
        self.guard.check(place, self.preconditions, reading=self.command in ("GET", "HEAD") and not written)
        answer = self._pass_on()
        if self.command == "PATCH" and answer.status == 200:
            self.guard.patches[(*place, int(json.loads(answer.body)["generation"]))] += 1
        return answer

    def _bucket(self, bucket: str) -> Answer:
        if self.command in ("PATCH", "PUT") and "lifecycle" in (settings := json.loads(self.body or b"{}")):
            self.guard.lifecycles[bucket] = settings["lifecycle"]
        answer = self._pass_on()
        if answer.status == 200 and bucket in self.guard.lifecycles:
            kept = {**json.loads(answer.body), "lifecycle": self.guard.lifecycles[bucket]}
            return Answer(200, json.dumps(kept).encode(), answer.headers)
        return answer

    def _xml(self, bucket: str, name: str) -> Answer:
        match = self.headers.get(XML_MATCH)
        self.guard.check((bucket, name), {} if match is None else {"ifGenerationMatch": match}, reading=False)
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        answer = self.guard.call("POST", path, self.body, {"Content-Type": self.headers.get("Content-Type", "text/plain")})
        return Answer(answer.status, b"", {"ETag": f'"{json.loads(answer.body)["etag"]}"'}) if answer.status == 200 else answer


@contextlib.contextmanager
def gcs_guard(upstream: str, port: int) -> Iterator[str]:
    """Yield the URL of a new guard on 127.0.0.1."""
    handler = type("Handler", (_Handler,), {"guard": Guard(upstream)})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, name="gcs-guard", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
