"""Limits on a client: number of connections, time for a header and a body, and time to read an answer.

uvicorn limits only the pause between two requests of a connection. A client that never ends its header, its body or its
reading would hold a file descriptor forever.
"""

import asyncio
import logging
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("serving")
MOST_CONNECTIONS = 1000
"""Of all clients: below the 1,024 file descriptors that a process has by default."""
MOST_HEADER_BYTES = 64 << 10
HEADER_SECONDS = 10.0
BODY_SECONDS = 60.0
READ_SECONDS = 60.0
"""Seconds that an answer may wait for its client to read on."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with the limits above. A client that exceeds one loses its connection."""

    most_connections = MOST_CONNECTIONS
    header_seconds, body_seconds, read_seconds = HEADER_SECONDS, BODY_SECONDS, READ_SECONDS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.late: asyncio.TimerHandle | None = None
        self.unread: asyncio.TimerHandle | None = None
        self.in_header, self.header_bytes = True, 0
        self.progressed = False
        """Whether the last data held more than a part of a header."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            log.warning("connection refused: %d are open, which is the limit", self.most_connections)
            transport.abort()
            return
        self._expect(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        if self.unread is not None:
            self.unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.progressed = not self.in_header
        super().data_received(data)
        self.header_bytes = 0 if self.progressed else self.header_bytes + len(data)
        if self.header_bytes > MOST_HEADER_BYTES:
            self._drop(f"sends a header of more than {MOST_HEADER_BYTES} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.late is None:  # another request of this connection
            self._expect(self.header_seconds)

    def on_headers_complete(self) -> None:
        self.in_header, self.progressed = False, True
        self._expect(self.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.in_header = True
        self._expect(None)
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.unread is None:
            self.unread = self.loop.call_later(self.read_seconds, self._drop, "does not read its answer")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def _expect(self, seconds: float | None) -> None:
        """Drop the client unless the next part of its request comes within `seconds`; None waits without limit."""
        if self.late is not None:
            self.late.cancel()
        self.late = None if seconds is None else self.loop.call_later(seconds, self._drop, "does not end its request")

    def _drop(self, why: str) -> None:
        log.info("a client %s and loses its connection", why)
        self.transport.abort()


def server_config(app: ASGIApp, protocol: type[BoundedProtocol] = BoundedProtocol) -> uvicorn.Config:
    """uvicorn's settings for all our servers: limited connections, no WebSockets, warnings only."""
    return uvicorn.Config(app, http=protocol, ws="none", log_level="warning", timeout_graceful_shutdown=5)
