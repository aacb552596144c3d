"""Rules of Google's JSON API that a server keeps, tested without a client library.

`python tests/lab/gcs_conformance.py http://127.0.0.1:PORT` prints them; the server of the tests must keep all. What real GCS
answers is from its reference. `make image-test` asks fake-gcs-server too, by itself and behind a guard (`gcs_guard.py`).
"""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

BUCKET = "conformance"
NONE = f"/upload/storage/v1/b/{BUCKET}-that-is-not-there/o?uploadType=media&name=a"
CHUNK = 256 << 10
"""The unit of resumable uploads."""
JSON = {"Content-Type": "application/json"}


class Rule(NamedTuple):
    """One rule: what was asked, what came back, what real GCS answers."""

    name: str
    got: object
    wanted: object

    @property
    def is_kept(self) -> bool:
        return self.got == self.wanted


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Server:
    """A server to ask."""

    url: str

    def ask(self, method: str, path: str, data: str | None = None, headers: dict[str, str] | None = None) -> Answer:
        body = None if data is None else data.encode()
        request = urllib.request.Request(self.url + path, method=method, data=body, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return Answer(answer.status, answer.read(), {k.lower(): v for k, v in answer.headers.items()})
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(), {k.lower(): v for k, v in error.headers.items()})

    def put(self, kind: str, name: str, body: str = "x", **query: object) -> int:
        """Upload in one of the three ways; the status of the last request."""
        path, query_text = f"/upload/storage/v1/b/{BUCKET}/o?uploadType={kind}", urlencode(query)
        if kind == "media":
            return self.ask("POST", f"{path}&name={name}&{query_text}", body, {"Content-Type": "text/plain"}).status
        if kind == "multipart":
            head = f"--B\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': name})}\r\n"
            data = f"{head}--B\r\nContent-Type: text/plain\r\n\r\n{body}\r\n--B--\r\n"
            return self.ask("POST", f"{path}&{query_text}", data, {"Content-Type": "multipart/related; boundary=B"}).status
        begun = self.ask("POST", f"{path}&name={name}&{query_text}", json.dumps({"name": name}), JSON)
        if begun.status >= 300:
            return begun.status
        session = urlsplit(begun.headers["location"])
        span = {"Content-Type": "text/plain", "Content-Range": f"bytes 0-{len(body) - 1}/{len(body)}"}
        return self.ask("PUT", f"{session.path}?{session.query}", body, span).status

    def begin(self, name: str, **query: object) -> str:
        """Start a resumable upload; the path of its session."""
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name={name}&{urlencode(query)}"
        session = urlsplit(self.ask("POST", path, json.dumps({"name": name}), JSON).headers["location"])
        return f"{session.path}?{session.query}"

    def chunk(self, session: str, span: str, data: str = "") -> Answer:
        """Send a part of a resumable upload, or ask how much has arrived (`*/N`)."""
        return self.ask("PUT", session, data, {"Content-Type": "text/plain", "Content-Range": f"bytes {span}"})

    def range(self, name: str, span: str) -> Answer:
        return self.ask("GET", f"/storage/v1/b/{BUCKET}/o/{name}?alt=media", None, {"Range": f"bytes={span}"})

    def object(self, name: str, verb: str = "", method: str = "GET", data: str | None = None, **query: object) -> Answer:
        path = f"/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}{verb}?{urlencode(query)}"
        return self.ask(method, path, data, JSON if data is not None else None)

    def generation(self, name: str) -> int | None:
        answer = self.object(name)
        return int(json.loads(answer.body)["generation"]) if answer.status == 200 else None

    def listed(self, **query: object) -> dict[str, Any]:
        return json.loads(self.ask("GET", f"/storage/v1/b/{BUCKET}/o?{urlencode(query)}").body or b"{}")


def rules(url: str) -> Iterator[Rule]:
    """Every rule, asked now. Makes a bucket called `conformance`."""
    server = Server(url.rstrip("/"))
    server.ask("POST", "/storage/v1/b?project=p", json.dumps({"name": BUCKET}), JSON)
    for kind in ("media", "multipart", "resumable"):
        yield from _write_rules(server, kind)
    yield from _resumable_rules(server)
    yield from _object_rules(server)
    yield from _range_rules(server)
    yield from _absence_rules(server)
    yield from _listing_rules(server)
    server.ask(
        "PATCH",
        f"/storage/v1/b/{BUCKET}",
        '{"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 7}}]}}',
        JSON,
    )
    yield Rule("bucket: its lifecycle is kept", b"lifecycle" in server.ask("GET", f"/storage/v1/b/{BUCKET}").body, True)
    yield Rule("XML: HEAD", server.ask("HEAD", f"/{BUCKET}/d/a").status, 200)
    yield Rule("XML: PUT (object_store)", server.ask("PUT", f"/{BUCKET}/viaxml", "q").status, 200)


def _write_rules(server: Server, kind: str) -> Iterator[Rule]:
    name = f"c-{kind}"
    yield Rule(f"{kind}: create", server.put(kind, name, ifGenerationMatch=0), 200)
    yield Rule(f"{kind}: create what exists", server.put(kind, name, ifGenerationMatch=0), 412)
    seen = server.generation(name)
    yield Rule(f"{kind}: swap, right generation", server.put(kind, name, "y", ifGenerationMatch=seen), 200)
    yield Rule(f"{kind}: swap, stale generation", server.put(kind, name, "z", ifGenerationMatch=seen), 412)
    yield Rule(f"{kind}: what is read", server.object(name, alt="media").body, b"y")


def _object_rules(server: Server) -> Iterator[Rule]:
    server.put("multipart", "o", "0123456789")
    seen = server.generation("o")
    yield Rule("read: other generation", server.object("o", alt="media", ifGenerationMatch=1).status, 412)
    yield Rule("read: not this generation", server.object("o", alt="media", ifGenerationNotMatch=seen).status, 304)
    patched = server.object("o", method="PATCH", data='{"metadata": {"a": "1"}}', ifMetagenerationMatch=999)
    yield Rule("patch: other metageneration", patched.status, 412)
    onto = f"/rewriteTo/b/{BUCKET}/o/o"
    yield Rule("copy: onto what exists", server.object("o", onto, "POST", "{}", ifGenerationMatch=0).status, 412)
    sources = '{"sourceObjects": [{"name": "o"}]}'
    yield Rule("compose: onto what exists", server.object("o", "/compose", "POST", sources, ifGenerationMatch=0).status, 412)
    yield Rule("delete: other generation", server.object("o", method="DELETE", ifGenerationMatch=1).status, 412)
    yield Rule("delete: it is still there", server.generation("o"), seen)
    yield Rule(
        "delete: right generation", server.object("o", method="DELETE", ifGenerationMatch=seen).status in (200, 204), True
    )
    yield Rule("delete: it is gone", server.generation("o"), None)


def _resumable_rules(server: Server) -> Iterator[Rule]:
    """An upload in two chunks, asked how far it is, finished, and one that loses a race."""
    total, head, tail = CHUNK + 3, "a" * CHUNK, "end"
    session = server.begin("long", ifGenerationMatch=0)
    first = server.chunk(session, f"0-{CHUNK - 1}/{total}", head)
    so_far = (308, f"bytes=0-{CHUNK - 1}")
    yield Rule("resumable: a chunk", (first.status, first.headers.get("range")), so_far)
    answer = server.chunk(session, f"*/{total}")
    yield Rule("resumable: how much has arrived", (answer.status, answer.headers.get("range")), so_far)
    yield Rule("resumable: nothing is seen of a part", server.object("long").status, 404)
    yield Rule("resumable: the last chunk", server.chunk(session, f"{CHUNK}-{total - 1}/{total}", tail).status, 200)
    yield Rule("resumable: what is read of chunks", server.object("long", alt="media").body == (head + tail).encode(), True)
    again = server.chunk(session, f"*/{total}")
    made = json.loads(again.body).get("size") if again.status == 200 else None
    yield Rule("resumable: asked when it is done", (again.status, made), (200, str(total)))
    session = server.begin("raced", ifGenerationMatch=0)
    server.put("multipart", "raced", "theirs")
    yield Rule("resumable: another was first", server.chunk(session, "0-3/4", "ours").status, 412)
    yield Rule("resumable: the first stays", server.object("raced", alt="media").body, b"theirs")
    session = server.begin("given-up")
    yield Rule("resumable: given up", server.ask("DELETE", session).status, 499)


def _range_rules(server: Server) -> Iterator[Rule]:
    """Of ten bytes."""
    server.put("multipart", "ten", "0123456789")
    for what, span, wanted in (
        ("a range", "2-4", (206, b"234", "bytes 2-4/10")),
        ("a range with no end", "7-", (206, b"789", "bytes 7-9/10")),
        ("a range beyond the end", "8-99", (206, b"89", "bytes 8-9/10")),
        ("the last bytes", "-3", (206, b"789", "bytes 7-9/10")),
    ):
        part = server.range("ten", span)
        yield Rule(f"read: {what}", (part.status, part.body, part.headers.get("content-range")), wanted)
    yield Rule("read: a range behind the end", server.range("ten", "10-12").status, 416)


def _absence_rules(server: Server) -> Iterator[Rule]:
    """What is not there: 404, and never 412."""
    yield Rule("read: what is not there", server.object("nope").status, 404)
    yield Rule("read: bytes of what is not there", server.object("nope", alt="media").status, 404)
    yield Rule("delete: what is not there", server.object("nope", method="DELETE").status, 404)
    copied = server.object("nope", f"/rewriteTo/b/{BUCKET}/o/o", "POST", "{}")
    yield Rule("copy: of what is not there", copied.status, 404)
    yield Rule("upload: no such bucket", server.ask("POST", NONE, "x").status, 404)
    yield Rule("list: no such bucket", server.ask("GET", f"/storage/v1/b/{BUCKET}-that-is-not-there/o").status, 404)
    made = server.ask("POST", "/storage/v1/b?project=p", json.dumps({"name": BUCKET}), JSON)
    yield Rule("bucket: make what exists", made.status, 409)


def _pages(server: Server, **query: object) -> tuple[list[str], bool]:
    """Names and prefixes of all pages in the order in which they came; whether no page was longer than was asked."""
    all_names: list[str] = []
    token, short = "", True
    while True:
        page = server.listed(**query, maxResults=2, **({"pageToken": token} if token else {}))
        names = [item["name"] for item in page.get("items", [])] + page.get("prefixes", [])
        all_names, short, token = all_names + names, short and len(names) <= 2, page.get("nextPageToken", "")
        if not token or len(all_names) > 20:
            return all_names, short


def _listing_rules(server: Server) -> Iterator[Rule]:
    for name in ("d/a", "d/b", "d/e/c", "d/e/f/a"):
        server.put("multipart", name)
    listing = server.listed(prefix="d/", delimiter="/")
    yield Rule("list: delimiter", ([i["name"] for i in listing["items"]], listing.get("prefixes")), (["d/a", "d/b"], ["d/e/"]))
    yield Rule("list: pages", _pages(server, prefix="d/"), (["d/a", "d/b", "d/e/c", "d/e/f/a"], True))
    yield Rule("list: pages with a delimiter", _pages(server, prefix="d/", delimiter="/"), (["d/a", "d/b", "d/e/"], True))
    yield Rule("list: nothing there", "items" in server.listed(prefix="nobody/"), False)
    globbed = server.listed(prefix="d/", matchGlob="**/a")
    yield Rule("list: glob by name", [i["name"] for i in globbed.get("items", [])], ["d/a", "d/e/f/a"])


if __name__ == "__main__":
    if urlsplit(sys.argv[1]).hostname not in ("127.0.0.1", "localhost"):
        raise SystemExit(f"{sys.argv[1]} is not on this machine; this makes buckets and deletes objects")
    for rule in rules(sys.argv[1]):
        print(f"{'kept' if rule.is_kept else 'BROKEN'}  {rule.name}: {rule.got!r} (real GCS: {rule.wanted!r})")
