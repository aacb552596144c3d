"""Git bundles for tests, written object by object without git (gitformat-bundle(5), gitformat-pack(5))."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
FILE = 0o100644
HEADER = b"# v2 git bundle\n" + b"0" * 40 + b" refs/heads/main\n\n"


@dataclass
class Objects:
    """Objects by id, in the order in which they were made."""

    held: dict[bytes, tuple[str, bytes]] = field(default_factory=dict)

    def add(self, kind: str, content: bytes) -> bytes:
        name = hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).digest()
        self.held[name] = kind, content
        return name

    def blob(self, content: bytes) -> bytes:
        return self.add("blob", content)

    def tree(self, files: Mapping[str, bytes | tuple[int, bytes]]) -> bytes:
        """`files` from path to content, or to mode and id."""
        folders: dict[str, dict[str, bytes | tuple[int, bytes]]] = {}
        places: dict[bytes, tuple[int, bytes]] = {}
        for path, what in files.items():
            first, _, rest = path.partition("/")
            if rest:
                folders.setdefault(first, {})[rest] = what
            else:
                places[first.encode()] = what if isinstance(what, tuple) else (FILE, self.blob(what))
        places |= {name.encode(): (0o040000, self.tree(inner)) for name, inner in folders.items()}
        return self.raw_tree(places)

    def raw_tree(self, places: Mapping[bytes, tuple[int, bytes]]) -> bytes:
        ordered = sorted(places.items(), key=lambda place: place[0] + (b"/" if place[1][0] == 0o040000 else b""))
        return self.add("tree", b"".join(b"%o %s\0%s" % (mode, name, each) for name, (mode, each) in ordered))

    def commit(
        self,
        tree: bytes,
        parents: Iterable[bytes] = (),
        message: bytes = b"",
        author: bytes = b"Zo\xc3\xab <zoe@example.com> 1700000000 +0200",
        more: bytes = b"",
    ) -> bytes:
        lines = b"tree %s\n" % tree.hex().encode() + b"".join(b"parent %s\n" % each.hex().encode() for each in parents)
        return self.add("commit", lines + b"author %s\ncommitter %s\n%s\n%s" % (author, author, more, message))

    def bundle(self, without: Iterable[bytes] = (), order: Iterable[bytes] | None = None) -> bytes:
        absent = set(without)
        names = [name for name in (self.held if order is None else order) if name not in absent]
        return packed([entry(KINDS[self.held[name][0]], self.held[name][1]) for name in names])


def packed(entries: list[bytes], header: bytes = HEADER) -> bytes:
    """A bundle of these entries, with its checksum."""
    pack = b"PACK" + (2).to_bytes(4) + len(entries).to_bytes(4) + b"".join(entries)
    return header + pack + hashlib.sha1(pack).digest()


def entry(kind: int, content: bytes, base: bytes = b"", size: int | None = None) -> bytes:
    """One object of a pack; `base` is what stands before a delta's data, `size` what it says of itself."""
    size = len(content) if size is None else size
    byte, size = kind << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 128)
        byte, size = size & 127, size >> 7
    head.append(byte)
    return bytes(head) + base + zlib.compress(content)


def delta(base_size: int, size: int, *steps: bytes | tuple[int, int]) -> bytes:
    """A delta that inserts bytes and copies (start, length) of its base."""
    out = varint(base_size) + varint(size)
    for step in steps:
        if isinstance(step, bytes):
            out += bytes([len(step)]) + step
        else:
            out += b"\xff" + step[0].to_bytes(4, "little") + step[1].to_bytes(3, "little")
    return out


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
