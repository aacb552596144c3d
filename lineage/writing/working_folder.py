"""The folder that an attempt works in: one writer holds it, and takes it over from a dead one."""

import fcntl
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.shards.run import PARTIAL_SUFFIX, SCRATCH_FOLDER, SHARD_FOLDER

log = logging.getLogger(__name__)

WORKING_FOLDERS = (SHARD_FOLDER, SCRATCH_FOLDER)
PUBLISHED_NOTE = "published"


@contextmanager
def working_folder(store: Store, spec: ArtifactSpec, code: str) -> Iterator[Path]:
    """Yield the folder of an attempt: the one that a killed attempt of the same code left, unless a living writer holds it."""
    work = store.scratch / "writing"
    work.mkdir(parents=True, exist_ok=True)
    with try_lock(work / f"{spec.version}.lock") as held:
        if not held:
            folder = work / f"{spec.version}.{uuid.uuid4().hex[:8]}"
            log.warning("another writer holds %s; working in %s, the first to finish wins", spec.version, folder.name)
            folder.mkdir()
            try:
                yield folder
            finally:
                for left in (folder, _spent(folder)):
                    shutil.rmtree(left, ignore_errors=True)
            return
        folder = work / spec.version
        _bring_back(store, spec, folder)
        _take_over(folder, code)
        yield folder  # an exception leaves the folder to the next attempt
        if folder.exists():  # not published: the other writer won
            shutil.rmtree(folder)
        (work / f"{spec.version}.lock").unlink(missing_ok=True)


def left_in(store: Store) -> list[Path]:
    """Return the folders of attempts on this machine that have not ended, dead or alive."""
    work = store.scratch / "writing"
    return [path for path in work.iterdir() if path.is_dir()] if work.exists() else []


def discard_working_folder(store: Store, spec: ArtifactSpec) -> None:
    """Delete the folder that a killed attempt left, unless a living writer holds it."""
    work = store.scratch / "writing"
    folder = work / spec.version
    if not folder.exists() and not _spent(folder).exists():
        return
    with try_lock(work / f"{spec.version}.lock") as held:
        if held:
            log.info("deleting what a killed attempt left: %s", folder)
            for left in (folder, _spent(folder)):
                shutil.rmtree(left, ignore_errors=True)
            (work / f"{spec.version}.lock").unlink(missing_ok=True)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on a file during the block, or yield False. A lock on an unlinked file does not count."""
    while True:
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                yield True
                return


def _take_over(folder: Path, code: str) -> None:
    """Keep the finished shards of an earlier attempt if the same code made them with the same packages."""
    note = folder / SHARD_FOLDER / "code"
    if folder.exists() and (not note.exists() or note.read_text() != code):
        shutil.rmtree(folder)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(code)
    for partial in note.parent.glob(f"*{PARTIAL_SUFFIX}"):
        shutil.rmtree(partial)
    _drop_unsharded_leftovers(folder)


def _drop_unsharded_leftovers(folder: Path) -> None:
    """Delete files that no shard record names (they may be incomplete), and folders that are empty then."""
    sharded: set[Path] = set()
    for record in sorted((folder / SHARD_FOLDER).glob("*.json")):
        sharded |= {folder / path for path in json.loads(record.read_text())["files"]}
    for path in sorted(folder.rglob("*"), reverse=True):  # the contents of a folder come before the folder
        if SHARD_FOLDER in path.parts or path in sharded:
            continue
        if path.is_file():
            path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()


def _spent(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.spent")


def set_aside(folder: Path, data_address: str) -> Path:
    """Move shard records and scratch files out of what is published. After a kill the next attempt finds them there."""
    spent = _spent(folder)
    spent.mkdir()
    (spent / PUBLISHED_NOTE).write_text(data_address)
    for working in WORKING_FOLDERS:
        if (folder / working).exists():
            (folder / working).rename(spent / working)
    return spent


def _bring_back(store: Store, spec: ArtifactSpec, folder: Path) -> None:
    """Undo the commit of a dead attempt that was killed before its manifest, so that its shards need not be done again."""
    spent, storage = _spent(folder), store.storage
    if not spent.exists():
        return
    note = spent / PUBLISHED_NOTE
    address = note.read_text() if note.exists() else ""
    there = store.find(spec)
    committed = there is not None and address.endswith(there.manifest.data_folder)
    if address and not committed and not folder.exists() and storage.is_local and storage.local(address).is_dir():
        storage.local(address).rename(folder)
    for working in WORKING_FOLDERS:
        if folder.exists() and (spent / working).exists():
            (spent / working).rename(folder / working)
    shutil.rmtree(spent)
