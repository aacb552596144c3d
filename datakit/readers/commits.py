"""Commit histories: every commit of a git bundle is a document with its author, date, message and changes.

Parents come before children, and of commits that are free to come the one with the lowest id. A commit is compared with
its parent, the first commit with nothing. A merge has a message and no diff, as in `git log -p`: its changes are those
of the commits that it joins, which are documents themselves. E-mail addresses of authors and of trailers such as
`Signed-off-by` are left out.
"""

import heapq
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from resiliparse.parse.encoding import map_encoding_to_html5

from datakit.readers.git_bundles import Bundle, opened_bundle
from datakit.readers.git_packs import COMMIT, AbsentError, BundleError
from datakit.readers.tree_diffs import CommitError, tree_diff
from datakit.sources.record import Record, Unreadable

MAX_COMMIT_BYTES = 1 << 20
"""Largest commit with its message."""

PERSON = re.compile(rb"(?P<name>[^<]*)<[^>]*> (?P<time>-?[0-9]{1,15}) [+-][0-9]+")
TRAILER_ADDRESS = re.compile(r"^([A-Za-z-]+: .*\S)[ \t]*<[^<>\s@]+@[^<>\s@]+>[ \t]*$", re.MULTILINE)
OBJECT_ID = re.compile(rb"[0-9a-f]{40}")


def read_commits(name: str, path: Path) -> Iterator[Record | Unreadable]:
    """Yield every commit of a bundle. Raises: ValueError if it is no bundle, or is cut or damaged.

    A bundle that builds on commits outside it is read as far as it goes: a commit whose changes need an object that is not
    in it is dropped as `missing_object`. Other drops: `object_too_large`, `too_many_files`, `invalid_utf8` (a message that
    its encoding cannot read), `invalid_path` (not UTF-8, or with control characters), `unparsable`.
    """
    try:
        with opened_bundle(path) as bundle:
            if not bundle.commits:
                raise BundleError("it holds no commit")
            for commit in _in_order(bundle):
                yield _document(f"{name}:{commit.hex()}", bundle, commit)
    except BundleError as error:
        raise ValueError(f"{name}: not a whole git bundle ({error}); fetch or restore it") from error


def _in_order(bundle: Bundle) -> Iterator[bytes]:
    """Yield ids of commits, parents first."""
    children: dict[bytes, list[bytes]] = {}
    waits_for: dict[bytes, int] = {}
    known = frozenset(bundle.commits)
    for commit in bundle.commits:
        parents = {parent for parent in _parents(bundle, commit) if parent in known}
        waits_for[commit] = len(parents)
        for parent in parents:
            children.setdefault(parent, []).append(commit)
    ready = sorted(commit for commit in bundle.commits if not waits_for[commit])
    while ready:
        commit = heapq.heappop(ready)
        yield commit
        for child in children.get(commit, ()):
            waits_for[child] -= 1
            if not waits_for[child]:
                heapq.heappush(ready, child)


def _parents(bundle: Bundle, commit: bytes) -> list[bytes]:
    """Return ids of parents; none if the commit cannot be read, which `_document` tells."""
    try:
        return _ids(bundle.get(commit, COMMIT).partition(b"\n\n")[0], b"parent")
    except (AbsentError, CommitError):
        return []


def _ids(head: bytes, field: bytes) -> list[bytes]:
    ids = [line.removeprefix(field + b" ") for line in head.split(b"\n") if line.startswith(field + b" ")]
    if not all(OBJECT_ID.fullmatch(each) for each in ids):
        raise CommitError("unparsable")
    return [bytes.fromhex(each.decode()) for each in ids]


def _document(place: str, bundle: Bundle, commit: bytes) -> Record | Unreadable:
    try:
        content = bundle.get(commit, COMMIT)
        if len(content) > MAX_COMMIT_BYTES:
            raise CommitError("object_too_large")
        head, _, message = content.partition(b"\n\n")
        trees, parents = _ids(head, b"tree"), _ids(head, b"parent")
        if len(trees) != 1:
            raise CommitError("unparsable")
        encoding = _field(head, b"encoding").decode("latin-1")
        fields = _signed(head, encoding)
        title = "".join(f"{label}: {fields[key]}\n" for label, key in (("Author", "author"), ("Date", "date")) if fields[key])
        words = TRAILER_ADDRESS.sub(r"\1", _decoded(message, encoding)).strip()
        diff = "" if len(parents) > 1 else tree_diff(bundle, _tree_of(bundle, parents), trees[0])
    except (AbsentError, CommitError) as fault:
        return Unreadable(place, str(fault.args[0]))
    text = "\n\n".join(part for part in (title.rstrip("\n"), words, diff.rstrip("\n")) if part)
    return Record(place, text, {key: value for key, value in fields.items() if value})


def _field(head: bytes, field: bytes) -> bytes:
    return next((line[len(field) + 1 :] for line in head.split(b"\n") if line.startswith(field + b" ")), b"")


def _signed(head: bytes, encoding: str) -> Mapping[str, str]:
    """Return author and date, in UTC. Addresses are no names. Raises: CommitError if they cannot be read."""
    person = PERSON.fullmatch(_field(head, b"author"))
    if person is None:
        raise CommitError("unparsable")
    try:
        date = datetime.fromtimestamp(int(person["time"]), UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError) as error:  # A year that no calendar has.
        raise CommitError("unparsable") from error
    words = _decoded(person["name"], encoding).split()
    return {"author": " ".join(word for word in words if "@" not in word), "date": date}


def _decoded(content: bytes, declared: str) -> str:
    encoding = map_encoding_to_html5(declared, fallback_utf8=False) if declared else "utf-8"
    try:
        return content.decode(encoding or "utf-8")
    except (UnicodeDecodeError, LookupError) as error:
        raise CommitError("invalid_utf8") from error


def _tree_of(bundle: Bundle, parents: list[bytes]) -> bytes | None:
    """Return the tree of the only parent; None for a first commit."""
    if not parents:
        return None
    trees = _ids(bundle.get(parents[0], COMMIT).partition(b"\n\n")[0], b"tree")
    if len(trees) != 1:
        raise CommitError("unparsable")
    return trees[0]
