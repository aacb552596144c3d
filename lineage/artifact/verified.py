"""Verify an artifact's bytes when a job opens it, once for each state of its files.

Sizes say nothing about an edit that keeps the size. Reading every byte at each start would cost minutes for a large cache, so
the computed digests are remembered with what the file system says of the file: inode, size, and the times of its bytes and of
its inode (an ordinary user cannot set the last). Anybody who can edit a local root can write its scratch folder too. So each
remembered entry has a code by a secret of this machine, which is in the key folder. A bucket lists a checksum of each object,
and the manifest has the one of the commit, so one listing compares a whole artifact.
"""

import hashlib
import hmac
import json
import logging
import os
import uuid
from collections.abc import Collection
from pathlib import Path

from lineage.artifact.manifest import FileEntry
from lineage.artifact.store import Artifact
from lineage.private_files import key_folder, machine_secret
from lineage.storage.digests import file_digest, text_digest
from lineage.storage.files import Listed

log = logging.getLogger(__name__)

FOLDER = "verified"
"""Below a store's scratch folder."""


def verify_once(artifact: Artifact, only: Collection[str] | None = None) -> None:
    """Compare local files (or fetched copies) with the manifest, `only` some; files that have not changed since are not read.

    Raises: ValueError naming the first file that is missing or has other bytes.
    """
    memory = artifact.store.scratch / FOLDER / f"{text_digest(artifact.uri)}.json"
    known = _remembered(memory)
    states: dict[str, list[object]] = {}
    for entry in artifact.manifest.files:
        if only is not None and entry.path not in only:
            continue
        path = artifact.file(entry.path) if only is not None else artifact.folder() / entry.path
        state = _state(artifact.name, entry, path)
        if known.get(entry.path) != [*state, entry.digest]:
            digest = file_digest(path)
            if digest != entry.digest:
                raise ValueError(
                    f"{artifact.name}: file {entry.path} has digest {digest}, its manifest says {entry.digest}; it was changed "
                    "after the commit: put it back, or delete the artifact and materialize it again"
                )
        states[entry.path] = [*state, entry.digest]
    if any(known.get(path) != state for path, state in states.items()):
        _remember(memory, known | states)


def changed_on_bucket(entry: FileEntry, listed: Listed | None) -> bool:
    """Whether a listing shows other bytes than the commit did. Without both checksums only absence and size can show it."""
    if listed is None or listed.size != entry.bytes:
        return True
    return bool(entry.crc32c and listed.crc32c and entry.crc32c != listed.crc32c)


def _state(name: str, entry: FileEntry, path: Path) -> list[object]:
    try:
        facts = path.stat()
    except FileNotFoundError as error:
        raise ValueError(f"{name}: file {entry.path} is missing: {error}") from error
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]


def _remembered(memory: Path) -> dict[str, list[object]]:
    """Return the states that this machine has written; none where the file is of another machine, or was edited or cut."""
    try:
        record = json.loads(memory.read_text())
        states, code = record["states"], record["code"]
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or one of a process that was killed: all is read again
        return {}
    wanted = _code(memory, states)
    return states if isinstance(states, dict) and wanted is not None and hmac.compare_digest(str(code), wanted) else {}


def _remember(memory: Path, states: dict[str, list[object]]) -> None:
    """Keep what was found. Without permission (a read-only mount) every start reads the files again, and a warning says so."""
    code = _code(memory, states)
    if code is None:
        return
    scratch = memory.with_name(f"{memory.name}.{uuid.uuid4().hex[:8]}")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps({"states": states, "code": code}))
        scratch.replace(memory)
    except OSError as error:
        log.warning("cannot remember in %s what was verified (%s); the next start reads the files again", memory.parent, error)


def _code(memory: Path, states: object) -> str | None:
    """Return the authentication code of some states of one artifact; None where this machine has no secret."""
    secret = machine_secret(key_folder(os.environ))
    text = json.dumps([memory.name, states], sort_keys=True)
    return None if secret is None else hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
