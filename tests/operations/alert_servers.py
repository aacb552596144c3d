"""Servers on loopback that take alerts: a webhook, an SMTP server, and as much of GitHub's issues API as alerts use."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jsonschema import Draft202012Validator

PUBLISHED = json.loads(Path(__file__).with_name("github_issues.schema.json").read_text())
"""GitHub's schemas of the bodies that create an issue, update one and comment on one; `source` says where they are."""
MAX_BODY = 65_536
"""Characters of a body that GitHub takes; its schema does not say so."""


@dataclass
class Web:
    """What a server was asked, the issues that it has, and whether it answers."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    comments: list[tuple[int, str]] = field(default_factory=list)
    dead: bool = False
    url: str = ""


@contextmanager
def web_server() -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def handle_request(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            if web.dead:
                return self.answer(503, {"message": "down"})
            path = urlsplit(self.path)
            if path.path == "/hook":
                web.bodies.append(body)
                return self.answer(200, {})
            if self.headers.get("Authorization") != "Bearer secret":
                return self.answer(401, {"message": "Bad credentials"})
            return self.answer(*github(web, self.command, path.path, parse_qs(path.query), body))

        do_GET = do_POST = do_PATCH = handle_request  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    with running(server):
        yield web


def github(web: Web, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
    parts = path.removeprefix("/repos/lab/marin/").split("/")
    if method == "GET" and parts == ["issues"]:
        page = int(query["page"][0])
        labelled = [issue for issue in web.issues if query["labels"][0] in issue["labels"]]
        return 200, labelled[(page - 1) * 100 : page * 100]
    operation = "comment" if parts[-1] == "comments" else "create" if method == "POST" else "update"
    faults = [error.message for error in Draft202012Validator(PUBLISHED[operation]).iter_errors(body)]
    if faults or len(body.get("body", "")) > MAX_BODY:
        return 422, {"message": f"Validation Failed: {faults}"}
    if method == "POST" and parts == ["issues"]:
        web.issues.append({**body, "number": len(web.issues) + 1, "state": "open"})
        return 201, web.issues[-1]
    issue = web.issues[int(parts[1]) - 1]
    if method == "POST":
        web.comments.append((issue["number"], body["body"]))
        return 201, {}
    issue.update(body)
    return 200, issue


@dataclass
class Mailbox:
    """Mails that an SMTP server took, as text with headers."""

    mails: list[str] = field(default_factory=list)
    port: int = 0


@contextmanager
def smtp_server() -> Iterator[Mailbox]:
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 loopback")
            while line := self.rfile.readline().decode().strip():
                if line.upper().startswith("DATA"):
                    self.say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(text)
                    box.mails.append("\n".join(lines))
                    self.say("250 taken")
                elif line.upper().startswith("QUIT"):
                    return self.say("221 bye")
                else:
                    self.say("250 ok")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    box.port = server.server_address[1]
    with running(server):
        yield box


@contextmanager
def running(server: socketserver.TCPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
