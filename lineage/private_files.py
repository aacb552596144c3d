"""Files that only this user of this machine may read: signing keys, and a secret by which a process knows its own notes.

They are in the key folder, outside every store: `.marin/keys` of the lab, or `MARIN_KEYS`.
"""

import logging
import os
import secrets
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from lineage.project import lab_folder

log = logging.getLogger(__name__)

KEY_FOLDER = "MARIN_KEYS"
MACHINE_SECRET = "machine.secret"


def key_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of the local key: `MARIN_KEYS`, or `.marin/keys` of the lab."""
    return Path(environment.get(KEY_FOLDER) or lab_folder() / ".marin" / "keys")


@cache
def machine_secret(folder: Path) -> bytes | None:
    """Return random bytes that only this machine's key folder has, made on first use; None where they cannot be made.

    With them a process recognizes what it has written into a folder that others may write.
    """
    path = folder / MACHINE_SECRET
    try:
        make_private(path, lambda: secrets.token_bytes(32))
        return path.read_bytes()
    except OSError as error:
        log.warning("no secret of this machine can be made in %s (%s)", folder, error)
        return None


def make_private(path: Path, content: Callable[[], bytes]) -> bool:
    """Write a file that only its owner may read, whole or not at all. Returns False if there is one already."""
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content())
            stream.flush()
            os.fsync(stream.fileno())
        os.link(scratch, path)
    except FileExistsError:  # another process was first
        return False
    finally:
        scratch.unlink()
    return True
