"""What our servers share before they parse a request: errors, body size, API key. Needs no model."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

MOST_BODY_BYTES = 4 << 20
LOOPBACK = "127.0.0.1"
CLIENT_LEFT = 499
"""nginx's status for a client that closed the connection."""
MODEL_VERSION_HEADER = "x-model-version"
"""Header with the data version of the model that answered, if it is known."""


class RequestError(Exception):
    """An error answer: status, message, the wrong field, and OpenAI's error code if there is one."""

    def __init__(self, status: int, message: str, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.code = status, message, field, code

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.field, "code": self.code}}


async def refuse(request: Request, error: Exception) -> Response:
    """Handle a `RequestError` for Starlette."""
    assert isinstance(error, RequestError)
    return JSONResponse(error.body(), error.status)


def refuse_unrouted(paths: Sequence[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return a Starlette handler that answers an `HTTPException` (no such path or method) in the same form."""

    async def refuse_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{request.method} {request.url.path} is {error.status_code}, {error.detail}; allowed: {', '.join(paths)}"
        return JSONResponse(RequestError(error.status_code, message).body(), error.status_code, headers=error.headers)

    return refuse_http


async def read_body(request: Request, most: int = MOST_BODY_BYTES) -> bytes:
    """Read a body. Raises: RequestError, 413 as soon as it is too long, 499 if the client leaves before its end."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise RequestError(413, f"the body has more than {most} bytes; at most {most} are allowed")
    except ClientDisconnect as gone:
        raise RequestError(CLIENT_LEFT, "the client left before the end of its body") from gone
    return bytes(body)


class Guard:
    """Middleware that requires the API key (`Authorization: Bearer KEY`), except for `/health`."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app, self.key = app, key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health" and not self._allowed(scope):
            error = RequestError(
                401, "the API key is missing or wrong; send 'Authorization: Bearer KEY'", code="invalid_api_key"
            )
            response = JSONResponse(error.body(), 401, headers={"www-authenticate": "Bearer"})
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and secrets.compare_digest(given[0], b"Bearer " + self.key)


def read_key(path: Path | None) -> str | None:
    """Read a key from a file, so that no process list shows it. Raises: ValueError if it is empty."""
    if path is None:
        return None
    key = path.read_text().strip()
    if not key or not key.isascii():
        raise ValueError(
            f"the API key in {path} is empty or not ASCII; write one line, such as the output of `openssl rand -hex 24`"
        )
    return key


def check_host(host: str, key: str | None) -> None:
    """Check that an address beyond this machine has a key. Raises: ValueError."""
    if key is None and not is_loopback(host):
        raise ValueError(f"host is {host!r} and there is no API key; without one only loopback ({LOOPBACK}) is allowed")


def is_loopback(host: str) -> bool:
    """Whether an address is only reachable from this machine."""
    return host == "::1" or host.startswith("127.")


def says_nothing(status: int) -> bool:
    """Whether a status is about the server or the network, not the request, so that a retry may succeed."""
    return status >= 500 or status in (408, 429, CLIENT_LEFT)
