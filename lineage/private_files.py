"""Files of this user of this machine alone: signing keys, a secret by which a process knows its own notes, a scratch folder.

Keys and the secret are in the key folder, outside every store: `.marin/keys` of the lab, or `MARIN_KEYS`.
"""

import logging
import os
import secrets
import stat
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
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


def private_scratch(top: Path) -> Path:
    """Return this user's own scratch folder below a folder that all users may write, made on first use (mode 0700).

    Copies of a bucket's files are read from there, so nobody else may have put them there.
    Raises: ValueError for a link, or a folder that another user owns or may write.
    """
    folder = top / f"marin-scratch-{os.getuid()}"
    with suppress(FileExistsError):  # whoever made it is checked below
        folder.mkdir(mode=0o700, parents=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        raise ValueError(
            f"the scratch folder {folder} is {stat.filemode(facts.st_mode)} of user {facts.st_uid}; it must be a folder that "
            "only this user may write: delete it, or set TMPDIR"
        )
    return folder


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
