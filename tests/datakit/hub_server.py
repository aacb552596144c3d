"""A hub on loopback: the endpoints that `huggingface_hub` asks for a dataset, answered as the real one does.

`GET /api/datasets/<repo>/revision/<rev>`, the paginated `.../tree/<commit>/<folder>`, and
`/datasets/<repo>/resolve/<commit>/<path>`, where small files come directly and large ones by a redirect, both with ranges.
"""

import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "3f2a9c1d5e7b8046a1b2c3d4e5f60718293a4b5c"
PAGE = 2
PIECE = 1 << 16


@dataclass
class Hub:
    """One dataset at one commit. Paths in `large` are stored as LFS files are."""

    files: dict[str, bytes]
    large: frozenset[str] = frozenset()
    repository: str = "lab/texts"
    commit: str = COMMIT
    gated: bool = False
    failures: list[int] = field(default_factory=list)
    """Statuses that the next file requests get, with Retry-After 0."""

    cut_first_at: int | None = None
    stall_first_at: int | None = None
    """After so many bytes the first file's answer sends nothing more, and holds the connection."""
    chunk_seconds: float = 0.0
    """Between pieces of 64 KiB."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when the hub is: what holds a connection lets go of it."""
    corrupt: frozenset[str] = frozenset()
    """Paths whose bytes are others than the tree says."""

    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(method, path, Range) of every request."""

    def digest(self, path: str) -> str:
        content = self.files[path]
        if path in self.large:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    def gets(self, path: str) -> list[str | None]:
        """Ranges of the GET requests for a file's bytes."""
        return [
            ranged
            for method, requested, ranged in self.requests
            if method == "GET" and requested.endswith(path) and "/api/" not in requested
        ]

    def tree(self, folder: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = [{"type": "directory", "path": "data", "oid": "0" * 40, "size": 0}]
        for path, content in sorted(self.files.items()):
            if path.startswith(f"{folder}/" if folder else ""):
                row: dict[str, object] = {"type": "file", "path": path, "oid": "1" * 40, "size": len(content)}
                if path in self.large:
                    row["lfs"] = {"oid": self.digest(path), "size": len(content), "pointerSize": 134}
                else:
                    row["oid"] = self.digest(path)
                rows.append(row)
        return rows


@contextmanager
def serving_hub(hub: Hub) -> Iterator[str]:
    """The hub's endpoint, while the block runs."""

    class Handler(_Handler):
        served = hub

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        hub.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Hub
    stalling = False

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, parts = self.served, urlsplit(self.path)
        path = unquote(parts.path)
        hub.requests.append((self.command, path, self.headers.get("Range")))
        api, resolve = f"/api/datasets/{hub.repository}", f"/datasets/{hub.repository}/resolve/{hub.commit}/"
        if hub.gated and self.headers.get("Authorization") != "Bearer accepted":
            self._answer(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Accept the terms first"})
        elif path.startswith(f"{api}/revision/"):
            self._revision(path.removeprefix(f"{api}/revision/"))
        elif path.startswith(f"{api}/tree/{hub.commit}"):
            self._tree(path.removeprefix(f"{api}/tree/{hub.commit}").strip("/"), parse_qs(parts.query))
        elif path.startswith(resolve) and path.removeprefix(resolve) in hub.files:
            self._resolve(path.removeprefix(resolve))
        elif path.startswith("/storage/"):
            self._bytes(path.removeprefix("/storage/"), {})
        else:
            code = "EntryNotFound" if path.startswith(resolve) else "RepoNotFound"
            self._answer(404, b"", {"X-Error-Code": code})

    def _revision(self, revision: str) -> None:
        hub = self.served
        if revision != "main" and not hub.commit.startswith(revision[:7]):
            self._answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = [{"rfilename": path} for path in hub.files]
        self._json(
            {"id": hub.repository, "sha": hub.commit, "siblings": siblings, "private": False, "tags": [], "downloads": 0}
        )

    def _tree(self, folder: str, query: dict[str, list[str]]) -> None:
        rows, start = self.served.tree(folder), int(query.get("cursor", ["0"])[0])
        host, here = self.headers["Host"], urlsplit(self.path).path
        following = f'<http://{host}{here}?recursive=true&cursor={start + PAGE}>; rel="next"'
        self._json(rows[start : start + PAGE], {"Link": following} if start + PAGE < len(rows) else {})

    def _resolve(self, path: str) -> None:
        hub = self.served
        if hub.failures:
            self._answer(hub.failures.pop(0), b"", {"Retry-After": "0"})
            return
        known = {"X-Repo-Commit": hub.commit, "ETag": f'"{hub.digest(path)}"'}
        if path not in hub.large:
            self._bytes(path, known)
            return
        linked = {"X-Linked-Size": str(len(hub.files[path])), "X-Linked-ETag": f'"{hub.digest(path)}"'}
        self._answer(302, b"", known | linked | {"Location": f"http://{self.headers['Host']}/storage/{path}"})

    def _bytes(self, path: str, headers: dict[str, str]) -> None:
        hub = self.served
        content = hub.files[path]
        if path in hub.corrupt:
            content = content[:-1] + bytes([content[-1] ^ 1])
        ranged = self.headers.get("Range")
        start = int(ranged.removeprefix("bytes=").split("-")[0]) if ranged else 0
        if ranged:
            headers = headers | {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        cut = None
        if self.command == "GET":
            cut, hub.cut_first_at = hub.cut_first_at, None
        if self.command == "GET" and hub.stall_first_at is not None:
            cut, hub.stall_first_at, self.stalling = hub.stall_first_at, None, True
        self._answer(206 if ranged else 200, content[start:], headers | {"Accept-Ranges": "bytes"}, cut)

    def _json(self, value: object, headers: dict[str, str] | None = None) -> None:
        self._answer(200, json.dumps(value).encode(), (headers or {}) | {"Content-Type": "application/json"})

    def _answer(self, status: int, content: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            sent = content[:cut]
            for at in range(0, len(sent), PIECE):
                self.wfile.write(sent[at : at + PIECE])
                time.sleep(self.served.chunk_seconds)
            if self.stalling:
                self.served.over.wait()
            if cut is not None:
                self.close_connection = True

    def log_message(self, *arguments: object) -> None: ...
