"""The objects of a git bundle (`git bundle create x.bundle --all`), read without git and within limits of memory.

The form is that of gitformat-bundle(5) and gitformat-pack(5). We read it ourselves because dulwich 1.2.21 holds a whole
bundle in memory and inflates whatever size an object declares. Nothing in a bundle is trusted: its checksum is compared
first, an object is inflated in pieces, and one above `MAX_OBJECT_BYTES` is never held.
"""

import hashlib
import mmap
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from datakit.readers.git_packs import (
    COMMIT,
    KINDS,
    MAX_OBJECT_BYTES,
    SHA1_BYTES,
    AbsentError,
    BundleError,
    Entry,
    entry_at,
    inflate,
    patched,
)

MAGICS = (b"# v2 git bundle\n", b"# v3 git bundle\n")
CACHE_BYTES = 96 << 20
"""Objects that are held because deltas build on them; git's own limit (core.deltaBaseCacheLimit)."""

MAX_CHAIN = 4095
"""Most deltas on each other; git writes no more (pack.depth)."""


@dataclass
class Bundle:
    """Objects by id (20 bytes). Places of all objects are held, contents of the latest."""

    pack: mmap.mmap
    entries: dict[int, Entry] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    commits: list[bytes] = field(default_factory=list)
    unnamed_large: int = 0
    """Deltas whose result is too large to be made, so that their ids are unknown."""

    _cache: OrderedDict[int, tuple[int, bytes]] = field(default_factory=OrderedDict)
    _cached_bytes: int = 0

    def get(self, name: bytes, kind: int) -> bytes:
        """Return an object. Raises: AbsentError; BundleError if it is of another kind."""
        offset = self.offsets.get(name)
        if offset is None:
            raise AbsentError("object_too_large" if self.unnamed_large else "missing_object")
        found, content = self._at(offset)
        if found != kind:
            raise BundleError(f"object {name.hex()} is a {KINDS[found].decode()} where a {KINDS[kind].decode()} should be")
        return content

    def _at(self, offset: int) -> tuple[int, bytes]:
        """Return kind and content of the object at an offset, by the deltas that lead to it."""
        chain = list[int]()
        while (held := self._cache.get(offset)) is None and (base := self.entries[offset].base) is not None:
            chain.append(offset)
            if len(chain) > MAX_CHAIN:
                raise BundleError(f"more than {MAX_CHAIN} deltas on each other")
            offset = base if isinstance(base, int) else self.offsets[base]
        if held is None:
            held = self._keep(offset, self.entries[offset].kind, self._raw(offset))
        else:
            self._cache.move_to_end(offset)
        while chain:
            offset = chain.pop()
            held = self._keep(offset, held[0], patched(held[1], self._raw(offset)))
        return held

    def _keep(self, offset: int, kind: int, content: bytes) -> tuple[int, bytes]:
        self._cache[offset] = kind, content
        self._cached_bytes += len(content)
        while self._cached_bytes > CACHE_BYTES:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1][1])
        return kind, content

    def _raw(self, offset: int) -> bytes:
        entry, pieces = self.entries[offset], list[bytes]()
        if entry.size > MAX_OBJECT_BYTES:
            raise AbsentError("object_too_large")
        inflate(self.pack, entry.data_at, entry.size, pieces.append)
        return b"".join(pieces)

    def _scan(self, start: int) -> list[tuple[int, bytes]]:
        """Find all objects; return offset and id of those that are no deltas. They pass in pieces, whatever their size."""
        end = len(self.pack) - SHA1_BYTES
        version, count = (int.from_bytes(self.pack[start + at : start + at + 4]) for at in (4, 8))
        if self.pack[start : start + 4] != b"PACK" or version not in (2, 3):
            raise BundleError("no pack of version 2 or 3 is in it")
        at, named = start + 12, list[tuple[int, bytes]]()
        for _ in range(count):
            if at >= end:
                raise BundleError(f"it says {count} objects and has {len(self.entries)}")
            offset, entry = at, entry_at(self.pack, at)
            if entry.kind in KINDS:
                name = hashlib.sha1(b"%s %d\0" % (KINDS[entry.kind], entry.size), usedforsecurity=False)
                at = inflate(self.pack, entry.data_at, entry.size, name.update)
                self._name(name.digest(), offset, entry.kind)
                named.append((offset, name.digest()))
            elif isinstance(entry.base, int) and entry.base not in self.entries:
                raise BundleError(f"the delta at byte {offset} has no base")
            else:
                at = inflate(self.pack, entry.data_at, entry.size, len)
            self.entries[offset] = entry
        if at != end:
            raise BundleError(f"{end - at} bytes after its {count} objects are none")
        return named

    def _resolve(self, ready: list[tuple[int, bytes]]) -> None:
        """Name the deltas, each after its base. Those on an object outside the bundle stay without a name."""
        waiting: dict[int | bytes, list[int]] = {}
        for offset, entry in self.entries.items():
            if entry.base is not None:
                waiting.setdefault(entry.base, []).append(offset)
        while ready:
            offset, base = ready.pop()
            for delta in (*waiting.pop(offset, ()), *waiting.pop(base, ())):
                try:
                    kind, content = self._at(delta)
                except AbsentError:  # Too large to be made, so its id stays unknown; `get` gives that as the reason.
                    self.unnamed_large += 1
                    continue
                name = hashlib.sha1(b"%s %d\0" % (KINDS[kind], len(content)), usedforsecurity=False)
                name.update(content)
                self._name(name.digest(), delta, kind)
                ready.append((delta, name.digest()))

    def _name(self, name: bytes, offset: int, kind: int) -> None:
        if name not in self.offsets and kind == COMMIT:
            self.commits.append(name)
        self.offsets.setdefault(name, offset)


@contextmanager
def opened_bundle(path: Path) -> Iterator[Bundle]:
    """Open a bundle and name its objects. Raises: BundleError if it is none, is cut or damaged, or has SHA-256 ids."""
    with path.open("rb") as stream:
        if stream.readline(len(MAGICS[0])) not in MAGICS:
            raise BundleError("it does not begin as a bundle of version 2 or 3")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as pack:
            start = _pack_start(pack)
            bundle = Bundle(pack)
            bundle._resolve(bundle._scan(start))
            yield bundle


def _pack_start(whole: mmap.mmap) -> int:
    """Return where the pack begins, after lines of capabilities, prerequisites and references and an empty one."""
    start = whole.find(b"\n\n") + 2
    if start == 1 or len(whole) < start + 12 + SHA1_BYTES:
        raise BundleError("it ends before its pack")
    for line in whole[:start].splitlines():
        if line.startswith(b"@object-format=") and line != b"@object-format=sha1":
            raise BundleError(f"its ids are {line.partition(b'=')[2].decode(errors='replace')}; sha1 can be read")
    with memoryview(whole) as view, view[start : len(whole) - SHA1_BYTES] as packed:
        if hashlib.sha1(packed, usedforsecurity=False).digest() != whole[-SHA1_BYTES:]:
            raise BundleError("its checksum is not that of its pack")
    return start
