"""What a commit changes: the files in which two trees differ, written as git writes them."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from datakit.readers.git_bundles import Bundle
from datakit.readers.git_packs import BLOB, TREE, AbsentError
from datakit.readers.unified_diffs import unified_hunks

MAX_FILE_BYTES = 1 << 20
"""Of a larger file there is no diff: it is data, or made by a program."""

MAX_DIFF_CHARS = 8 << 20
"""Files after that many characters of a commit's diffs are named without one, such as those of an imported library."""

MAX_FILES = 10_000
"""Files, and folders, that a commit may change. More are a drop: trees in trees can name billions with a few objects."""

MAX_TREE_BYTES = 8 << 20
"""Of one folder's names; about 200,000 of them."""

BINARY_BYTES = 8_000
"""A file with a zero among its first bytes is binary, as in git."""

FOLDER, LINK_TO_COMMIT = 0o040000, 0o160000
TREE_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{20})", re.DOTALL)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class CommitError(ValueError):
    """Why a commit is no document, as a drop reason."""


class Place(NamedTuple):
    """What a tree holds under a name: its mode and the id of its object."""

    mode: int
    name: bytes


@dataclass(frozen=True)
class Change:
    """A file of two trees that differ in it; None where a tree does not have it."""

    old_path: str
    new_path: str
    old: Place | None
    new: Place | None


def tree_diff(bundle: Bundle, old: bytes | None, new: bytes) -> str:
    """Write all changes between two trees in the order of their new paths; `old` is None for a first commit.

    Raises: CommitError; AbsentError for an object that is needed and is not in the bundle.
    """
    out, room = list[str](), MAX_DIFF_CHARS
    for change in _renamed(_changes(bundle, old, new)):
        out.append(_file_diff(bundle, change, room))
        room -= len(out[-1])
    return "".join(out)


def _changes(bundle: Bundle, old: bytes | None, new: bytes) -> list[Change]:
    found, folders = list[Change](), 0
    pending: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", old, new)]
    while pending:
        above, before, after = pending.pop()
        folders += 1
        places, new_places = _places(bundle, before), _places(bundle, after)
        for name in sorted(each for each in places.keys() | new_places.keys() if places.get(each) != new_places.get(each)):
            (file, folder), (new_file, new_folder) = (_kinds(each.get(name)) for each in (places, new_places))
            if folder != new_folder:
                pending.append((b"%s%s/" % (above, name), folder, new_folder))
            if file != new_file:
                path = _path(above + name)
                found.append(Change(path, path, file, new_file))
        if folders + len(pending) > MAX_FILES or len(found) > MAX_FILES:
            raise CommitError("too_many_files")
    return sorted(found, key=lambda change: change.new_path)


def _places(bundle: Bundle, tree: bytes | None) -> dict[bytes, Place]:
    """Return what a tree names. Raises: AbsentError; CommitError if it is no whole tree."""
    content, at, places = b"" if tree is None else bundle.get(tree, TREE), 0, dict[bytes, Place]()
    if len(content) > MAX_TREE_BYTES:
        raise CommitError("too_many_files")
    while at < len(content):
        entry = TREE_ENTRY.match(content, at)
        if entry is None:
            raise CommitError("unparsable")
        places[entry[2]] = Place(int(entry[1], 8), entry[3])
        at = entry.end()
    return places


def _kinds(place: Place | None) -> tuple[Place | None, bytes | None]:
    """Return (file, None) or (None, folder's tree)."""
    return (None, place.name) if place is not None and place.mode == FOLDER else (place, None)


def _path(path: bytes) -> str:
    try:
        text = path.decode()
    except UnicodeDecodeError as error:
        raise CommitError("invalid_path") from error
    if CONTROL.search(text):
        raise CommitError("invalid_path")
    return text


def _renamed(changes: list[Change]) -> list[Change]:
    """Join a file that is gone and one of the same content that came; a file that changed too is removed and added."""
    gone: dict[Place, list[Change]] = {}
    for change in reversed(changes):
        if change.old is not None and change.new is None:
            gone.setdefault(change.old, []).append(change)
    out, moved = list[Change](), set[str]()
    for change in changes:
        if change.old is None and change.new is not None and gone.get(change.new):
            old = gone[change.new].pop()
            moved.add(old.old_path)
            change = Change(old.old_path, change.new_path, old.old, change.new)
        out.append(change)
    return [change for change in out if change.new is not None or change.old_path not in moved]


def _file_diff(bundle: Bundle, change: Change, room: int) -> str:
    """Write one file's change as git does, or one line if it has no text to show."""
    old, new = change.old, change.new
    lines = [f"diff --git a/{change.old_path} b/{change.new_path}\n"]
    if old is None or new is None:
        lines.append(f"new file mode {new.mode:06o}\n" if new else f"deleted file mode {old.mode if old else 0:06o}\n")
    elif old.mode != new.mode:
        lines.append(f"old mode {old.mode:06o}\nnew mode {new.mode:06o}\n")
    if change.old_path != change.new_path:
        lines.append(f"rename from {change.old_path}\nrename to {change.new_path}\n")
    if old is not None and new is not None and old.name == new.name:
        return "".join(lines)
    names = "/dev/null" if old is None else f"a/{change.old_path}", "/dev/null" if new is None else f"b/{change.new_path}"
    texts = _texts(bundle, old, new, room)
    if isinstance(texts, str):
        return "".join([*lines, f"{texts} {names[0]} and {names[1]} differ\n"])
    hunks = unified_hunks(*texts)
    return "".join([*lines, f"--- {names[0]}\n+++ {names[1]}\n" if hunks else "", hunks])


def _texts(bundle: Bundle, old: Place | None, new: Place | None, room: int) -> tuple[str, str] | str:
    """Return both texts, or what kind of files these are that no diff is shown."""
    texts = list[str]()
    for place in (old, new):
        if place is not None and place.mode == LINK_TO_COMMIT:
            return "Submodules"
        try:
            content = b"" if place is None else bundle.get(place.name, BLOB)
        except AbsentError as error:
            if error.args[0] == "object_too_large":
                return "Large files"
            raise
        room -= len(content)
        if len(content) > MAX_FILE_BYTES or room < 0:
            return "Large files"
        if b"\0" in content[:BINARY_BYTES]:
            return "Binary files"
        try:
            texts.append(content.decode())
        except UnicodeDecodeError:
            return "Files that are not UTF-8"
    return texts[0], texts[1]
