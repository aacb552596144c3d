"""A web site on loopback that can be cut, slow, silent, busy, moved, or wrong about ranges."""

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Site:
    """Paths and what they answer; `ranges` and `visits` say what was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut_first_at: int | None = None
    failures: list[int] = field(default_factory=list)
    retry_after: str = "0"
    redirects: dict[str, str] = field(default_factory=dict)
    chunk_seconds: float = 0.0
    stall_first_at: int | None = None
    """After so many bytes the first answer sends nothing more, and holds the connection."""
    drip_first_at: int | None = None
    """After so many bytes the first answer continues one byte at a time while a client listens."""
    silent: int = 0
    """How many requests get no answer at all."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when the site is: what holds a connection lets go of it."""
    wrong_ranges: int = 0
    """How many answers to a Range hold other bytes than were asked for, and say so."""
    etag: str | None = None
    tells_length: bool = True
    ranges: list[str | None] = field(default_factory=list)
    visits: int = 0


@contextmanager
def serving(site: Site) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.visits += 1
            if site.silent:
                site.silent, self.close_connection = site.silent - 1, True
                site.over.wait()
            elif site.failures:
                self._empty(site.failures.pop(0), {"Retry-After": site.retry_after})
            elif self.path in site.redirects:
                self._empty(302, {"Location": site.redirects[self.path]})
            elif self.path not in site.files:
                self._empty(404, {})
            else:
                self._file(site.files[self.path])

        def _empty(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": "0"}).items():
                self.send_header(name, value)
            self.end_headers()

        def _file(self, content: bytes) -> None:
            byte_range = self.headers.get("Range")
            site.ranges.append(byte_range)
            start = int(byte_range.removeprefix("bytes=").removesuffix("-")) if byte_range else 0
            if byte_range and self.headers.get("If-Range", site.etag) != site.etag:
                byte_range, start = None, 0  # the file is another one now: all of it
            if byte_range and site.wrong_ranges:
                site.wrong_ranges, start = site.wrong_ranges - 1, start + 5
            self.send_response(206 if byte_range else 200)
            if byte_range:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            if site.etag:
                self.send_header("ETag", site.etag)
            if site.tells_length:
                self.send_header("Content-Length", str(len(content) - start))
            else:
                self.close_connection = True
            self.end_headers()
            stops = [site.cut_first_at, site.stall_first_at, site.drip_first_at]
            end, dripping = min(stop or len(content) for stop in stops), site.drip_first_at is not None
            stalling = site.stall_first_at is not None
            site.cut_first_at = site.stall_first_at = site.drip_first_at = None
            for at in range(start, end, 1 << 16):
                self.wfile.write(content[at : min(at + (1 << 16), end)])
                if site.chunk_seconds:
                    time.sleep(site.chunk_seconds)
            if stalling:
                self.wfile.flush()
                site.over.wait()
            with contextlib.suppress(ConnectionError):  # until the client has had enough
                for at in range(end, len(content)) if dripping else ():
                    self.wfile.write(content[at : at + 1])
                    time.sleep(0.01)
            if end < len(content):
                self.close_connection = True

        def log_message(self, *arguments: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        site.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
