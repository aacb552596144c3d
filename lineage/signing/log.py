"""The log: every manifest and verdict record that a store has held, in the order they were found, outside the store's root.

    <log>/entries/000000000000.jsonl     entries from that index on; a file is created once and never changes
    <log>/heads/000000000042.json        a signed tree head: size and Merkle root (RFC 6962) over the first 42 entries

An entry is `{"name": path below the root, "sha256": digest of the file's text}`, in canonical JSON. The log is append-only: an
entry of a name that is there already says that the file has another text since. A file whose text is an earlier entry of its
name was rolled back. A verdict that the log names and that is gone, or has another text, was deleted or edited.

A reader recomputes every root, and remembers the largest head that it has seen, so a log that was cut or rewritten is found.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.signing.envelope import Envelope, EnvelopeError, read_envelope
from lineage.signing.keys import Signer
from lineage.signing.merkle import leaf_hash, root_of, roots_at
from lineage.signing.policy import Policy
from lineage.signing.statement import TREE_HEAD, read_statement, statement, text_sha256
from lineage.storage.digests import canonical_json
from lineage.storage.root import Storage

log = logging.getLogger(__name__)

ENTRIES, HEADS = "entries", "heads"
VERDICTS = ".trust/verdicts"
"""Below a store's root: the records of its verdict log (`lineage.trust.verdict_log`), which are never replaced."""
_RECORD = re.compile(r"[0-9]{8}\.json")


class LogError(ValueError):
    """A log that is cut, rewritten or not signed as the policy wants."""


@dataclass(frozen=True)
class Entry:
    """One file as the log saw it."""

    name: str
    sha256: str

    @property
    def text(self) -> str:
        return canonical_json({"name": self.name, "sha256": self.sha256})

    @property
    def leaf(self) -> bytes:
        return leaf_hash(self.text.encode())


@dataclass(frozen=True)
class Head:
    """The size and Merkle root (hex) of a log at some time."""

    size: int
    root: str


@dataclass(frozen=True)
class LogView:
    """The entries of a log up to its newest signed head."""

    entries: tuple[Entry, ...]
    head: Head = field(default_factory=lambda: Head(0, root_of([]).hex()))

    @cached_property
    def by_name(self) -> Mapping[str, list[str]]:
        """File name -> its digests, oldest first."""
        by_digest: dict[str, list[str]] = {}
        for entry in self.entries:
            by_digest.setdefault(entry.name, []).append(entry.sha256)
        return by_digest

    def older(self, name: str, sha256: str) -> str | None:
        """Return what the log says against a file's text: that it is an older state. None: the newest, or not logged yet."""
        digests = self.by_name.get(name, [])
        if not digests or digests[-1] == sha256 or sha256 not in digests:
            return None
        at = len(digests) - digests[::-1].index(sha256)
        return f"the log has {len(digests)} states of {name}, the one in the store is number {at}: an older state was put back"

    def lost_verdicts(self, present: Mapping[str, str]) -> list[str]:
        """Return logged verdict records that are gone, or have another text now. `present`: path -> sha256 of those there."""
        logged = [name for name in self.by_name if name.startswith(f"{VERDICTS}/")]
        return sorted(name for name in logged if present.get(name) != self.by_name[name][-1])

    @cached_property
    def leaves(self) -> tuple[bytes, ...]:
        return tuple(entry.leaf for entry in self.entries)


def log_of(policy: Policy, store: Storage) -> Storage | None:
    """Return where the log of a store lies: the folder of the store's name below the policy's `log`. None: no log is kept."""
    if policy.log is None:
        return None
    return Storage(f"{policy.log.rstrip('/')}/{store.root.rstrip('/').rpartition('/')[2]}")


def append(where: Storage, store: Storage, signer: Signer, policy: Policy) -> LogView:
    """Append what the store holds and the log does not, and sign a new head. Two appenders at once make one sequence.

    Raises: LogError for a log that does not hold together.
    """
    view = _unsigned_view(where)
    fresh = [entry for entry in _present(store) if view.by_name.get(entry.name, [""])[-1] != entry.sha256]
    if fresh:
        text = "".join(f"{entry.text}\n" for entry in fresh)
        if not where.create(f"{ENTRIES}/{len(view.entries):012d}.jsonl", text):
            log.warning("%s: another process appended first; its entries are kept, ours follow", where.root)
            return append(where, store, signer, policy)
        view = LogView((*view.entries, *fresh))
    head = Head(len(view.entries), root_of(view.leaves).hex())
    signed = head_statement(head).signed_by(signer).to_json()
    where.create(head_name(head.size), signed)
    return read_log(where, policy)


def head_statement(head: Head) -> Envelope:
    """Return the unsigned statement of a tree head."""
    subject = [{"name": "tree-head", "digest": {"sha256": head.root}}]
    return statement(subject, TREE_HEAD, {"size": head.size, "root": head.root})


def read_log(where: Storage, policy: Policy, memory: Path | None = None) -> LogView:
    """Read a log up to its newest signed head, and recompute the roots of all its heads.

    `memory`: a local file that remembers the largest head; a log that lost it or changed below it is refused.
    Raises: LogError naming the log and what is wrong.
    """
    view = _unsigned_view(where)
    names = where.records(HEADS)
    heads = sorted((_read_head(where, f"{HEADS}/{name}") for name in names), key=lambda head: head.size)
    if view.entries and not heads:
        raise LogError(f"{where.root} has {len(view.entries)} entries and no signed head")
    remembered = _remembered(memory, where.root)
    _compare_roots(where, view, sorted((*heads, *remembered), key=lambda head: head.size))
    if not heads:
        return view
    if remembered and heads[-1].size < remembered[0].size:
        raise LogError(f"{where.root}: its newest head has {heads[-1].size} entries, one with {remembered[0].size} was seen")
    _check_signed(where, f"{HEADS}/{names[-1]}", policy)
    _remember(memory, where.root, heads[-1])
    return LogView(view.entries[: heads[-1].size], heads[-1])


def _compare_roots(where: Storage, view: LogView, heads: Sequence[Head]) -> None:
    """Raises: LogError for a head that the entries do not give."""
    if heads and heads[-1].size > len(view.entries):
        raise LogError(f"{where.root} has {len(view.entries)} entries, a head names {heads[-1].size}: entries were removed")
    for head, root in zip(heads, roots_at(view.leaves, [head.size for head in heads]), strict=True):
        if head.root != root.hex():
            raise LogError(f"{where.root}: its first {head.size} entries have root {root.hex()}, a head says {head.root}")


def _unsigned_view(where: Storage) -> LogView:
    entries: list[Entry] = []
    for name in where.records(ENTRIES):
        start = name.removesuffix(".jsonl")
        if not start.isdigit() or int(start) != len(entries):
            raise LogError(f"{where.root}/{ENTRIES}/{name} should begin at entry {len(entries)}: entries are missing")
        text = where.read_text(f"{ENTRIES}/{name}") or ""
        try:
            entries += [Entry(record["name"], record["sha256"]) for record in map(json.loads, text.splitlines())]
        except (ValueError, KeyError, TypeError) as error:
            raise LogError(f"{where.root}/{ENTRIES}/{name} holds no entries: {error}") from error
    return LogView(tuple(entries))


def _read_head(where: Storage, name: str) -> Head:
    try:
        record = read_statement(read_envelope(where.read_text(name) or "", f"{where.root}/{name}"), name)
        head = Head(int(record["predicate"]["size"]), str(record["predicate"]["root"]))
    except (EnvelopeError, KeyError, ValueError, TypeError) as error:
        raise LogError(f"{where.root}/{name} is no tree head: {error}") from error
    if record["predicateType"] != TREE_HEAD or name != head_name(head.size):
        raise LogError(f"{where.root}/{name} is {record['predicateType']} of {head.size} entries; it should be {TREE_HEAD}")
    return head


def _check_signed(where: Storage, name: str, policy: Policy) -> None:
    """Raises: LogError for a head that nobody who may publish has signed. Older heads may have keys that are retired since."""
    if not policy.signers(read_envelope(where.read_text(name) or "", name), "publish"):
        raise LogError(f"{where.root}/{name} is signed by no key that may publish ({policy})")


def head_name(size: int) -> str:
    """Return the path of the signed head of a log with `size` entries."""
    return f"{HEADS}/{size:012d}.json"


def _present(store: Storage) -> Iterator[Entry]:
    """Yield the verdict records and manifests of a store, in the order of their names."""
    for name in sorted([*verdict_records(store), *store.stamps(MANIFEST_NAME)]):
        text = store.read_text(name)
        if text is not None:  # else it was deleted meanwhile
            yield Entry(name, text_sha256(text))


def verdict_records(store: Storage) -> list[str]:
    """Return the paths of the records of a store's verdict log."""
    return [f"{VERDICTS}/{name}" for name in sorted(store.sizes(VERDICTS)) if _RECORD.fullmatch(name)]


def _remembered(memory: Path | None, root: str) -> list[Head]:
    if memory is None or not memory.is_file():
        return []
    heads = json.loads(memory.read_text())
    return [Head(**heads[root])] if root in heads else []


def _remember(memory: Path | None, root: str, head: Head) -> None:
    if memory is None:
        return
    heads = json.loads(memory.read_text()) if memory.is_file() else {}
    heads[root] = {"size": head.size, "root": head.root}
    Storage(str(memory.parent)).replace(memory.name, (json.dumps(heads, indent=1) + "\n").encode())
