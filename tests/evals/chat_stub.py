"""Chat servers by rule, over real HTTP: what a model or a judge says is a function of the messages."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

type Rule = Callable[[list[dict]], str | int]
"""Messages -> the answer's text, or the status of a refusal."""


@dataclass
class ChatStub:
    url: str
    bodies: list[dict] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    """Data version that the model `stub` reports; a server that reports none has no entry."""
    fingerprints: Iterator[str] = field(default_factory=lambda: iter(()))
    """Fingerprints of the next answers, of a server whose models report no version."""


@contextmanager
def chatting(rule: Rule) -> Iterator[ChatStub]:
    """A server on a free port that answers by the rule, in the form of OpenAI's chat API."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            stub.bodies.append(body)
            said = rule(body["messages"])
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            document = {"choices": [choice]} if isinstance(said, str) else {"error": {"message": "refused"}}
            if stub.versions:
                document |= {"model": "stub", "system_fingerprint": stub.versions["stub"]}
            elif stated := next(stub.fingerprints, ""):
                document |= {"model": "stub", "system_fingerprint": stated}
            content = json.dumps(document).encode()
            self.send_response(200 if isinstance(said, str) else said)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            version = {"data_version": stub.versions["stub"]} if stub.versions else {}
            content = json.dumps({"data": [{"id": "stub", **version}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub = ChatStub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
