"""The server of pages of artifacts beside the Dagster UI, on loopback. It serves only files that a manifest lists.

`marin ui` starts `python -m marin_assets.page_server` as a child, which ends when the process that started it ends. No Dagster
is imported.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from lineage.artifact.store import Store
from resources.stores import stores_from_environment

VARIABLE = "MARIN_PAGES"
"""Address of the server of pages, if it is not on this machine: a deployment sets it."""
DEFAULT = "http://127.0.0.1:3001"
TYPES: Mapping[str, str] = MappingProxyType(
    {".html": "text/html; charset=utf-8", ".md": "text/plain; charset=utf-8", ".png": "image/png"}
)
POLICY = "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""A page may draw itself. It may not fetch from another host."""
SECONDS = 0.5


def store_name(store: Store) -> str:
    """Return the last part of a store's root, the first part of the paths of its pages."""
    return store.root.rstrip("/").rpartition("/")[2]


def find_page(stores: Sequence[Store], path: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of the page at the path of a link. Raises: LookupError if there is none."""
    root, *address, name = unquote(urlsplit(path).path).removeprefix("/").split("/") if path.count("/") > 1 else ("", "")
    kind, store = TYPES.get(PurePosixPath(name).suffix), next((each for each in stores if store_name(each) == root), None)
    if kind is None or store is None or not address or any(part in ("", ".", "..") for part in address):
        raise LookupError(path)
    try:
        artifact = store.open("/".join(address))
        if artifact is None:
            raise LookupError(path)
        return kind, artifact.file(name).read_bytes()
    except (ValueError, OSError) as error:  # a broken manifest, or a file that it does not list
        raise LookupError(f"{path}: {error}") from error


def server(stores: Sequence[Store], port: int) -> ThreadingHTTPServer:
    """Return a server of the pages of some stores on loopback; port 0 takes a free one. Raises: OSError if it is taken."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of another site, whose name was pointed at 127.0.0.1, names its own host.
            if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in ("127.0.0.1", "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 only")
                return
            try:
                kind, body = find_page(stores, self.path)
            except LookupError:
                self.send_error(HTTPStatus.NOT_FOUND, "the stores of this lab have no such page")
                return
            self.send_response(HTTPStatus.OK)
            for name, value in (("Content-Type", kind), ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the terminal is the UI's."""

    return ThreadingHTTPServer(("127.0.0.1", port), Pages)


def local_port() -> int | None:
    """Return the port to serve pages on; None if the links lead to another machine."""
    address = urlsplit(os.environ.get(VARIABLE) or DEFAULT)
    return (address.port or 80) if address.hostname in ("127.0.0.1", "localhost") else None


def main(parent: int) -> None:
    """Serve the pages of the lab until the process `parent` has ended."""
    port = local_port()
    if port is None:
        return
    try:
        pages = server(stores_from_environment(), port)
    except OSError as error:
        sys.exit(f"marin: port {port} is taken ({error.strerror}), so links to reports do not open; set {VARIABLE}")
    with pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        try:
            while os.getppid() == parent:
                time.sleep(SECONDS)
        except KeyboardInterrupt:
            pass
        pages.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
