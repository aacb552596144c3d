"""Files of a local root: atomic by `link(2)` and `rename(2)`, durable by fsync, compared and swapped under a file lock."""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lineage.storage_files import Listed, Versioned


@dataclass(frozen=True)
class LocalFiles:
    """Operations of `lineage.storage.Files` on a folder."""

    root: Path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with (self.root / name).open("rb") as stream:
            stream.seek(start)
            return stream.read(stop - start)

    def create(self, name: str, data: bytes) -> bool:
        with _scratch(self.root / name, data) as scratch:
            try:
                os.link(scratch, self.root / name)
            except FileExistsError:
                return False
        sync_folder((self.root / name).parent)
        return True

    def replace(self, name: str, data: bytes) -> None:
        with _scratch(self.root / name, data) as scratch:
            scratch.replace(self.root / name)
        sync_folder((self.root / name).parent)

    def read_versioned(self, name: str) -> Versioned | None:
        try:
            with (self.root / name).open("rb") as stream:
                return Versioned(stream.read(), _generation(stream.fileno()))
        except FileNotFoundError:
            return None

    def swap(self, name: str, data: bytes | None, generation: str) -> str | None:
        path = self.root / name
        with _locked(path):
            current = self.read_versioned(name)
            if current is None or current.generation != generation:
                return None
            if data is None:
                path.unlink()
                return ""
            self.replace(name, data)
            written = self.read_versioned(name)
            return None if written is None else written.generation

    def publish(self, folder: Path, name: str) -> None:
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
        sync_folder(target.parent)

    def copy(self, names: Mapping[str, str]) -> None:
        for source, target in names.items():
            (self.root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / source, self.root / target)
            sync_folder((self.root / target).parent)

    def download(self, names: Mapping[str, Path]) -> None:
        for name, path in names.items():
            shutil.copyfile(self.root / name, path)

    def listing(self, prefix: str, name: str | None) -> dict[str, Listed]:
        if name is not None and not prefix:
            return dict(_outermost(self.root, name))
        return dict(_below(self.root, prefix, name))

    def location(self) -> None:
        return None

    def folders(self, name: str) -> list[str]:
        try:
            with os.scandir(self.root / name) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        path = self.root / name
        while path.exists() or path.is_symlink():
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except FileNotFoundError:  # a winner and its loser delete the loser's data at the same time
                continue


def _generation(descriptor: int) -> str:
    """Every `replace` makes a new file, so equal bytes written again are another generation."""
    facts = os.fstat(descriptor)
    return f"{facts.st_ino}:{facts.st_mtime_ns}"


@contextmanager
def _scratch(path: Path, data: bytes) -> Iterator[Path]:
    """A durable file beside `path` with its future bytes; gone after the block unless it was renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with scratch.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One swap at a time; the lock file stays, because unlinking it would let two holders in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _below(root: Path, prefix: str, name: str | None) -> Iterator[tuple[str, Listed]]:
    for folder, _, files in os.walk(root / prefix):
        for file in files:
            path = Path(folder, file)
            if name is None or file == name:
                try:
                    facts = path.stat()
                except FileNotFoundError:  # deleted while we look
                    continue
                yield path.relative_to(root).as_posix(), Listed(facts.st_size, f"{facts.st_size}:{facts.st_mtime_ns}")


def _outermost(root: Path, name: str) -> Iterator[tuple[str, Listed]]:
    """Every file of a name, without looking below a folder that holds one (an artifact's data): ten times as fast."""
    pending = [""] if root.is_dir() else []
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(root / folder) as entries:
                inside = list(entries)
            own = next((entry for entry in inside if entry.name == name), None)
            facts = own.stat() if own is not None else None
        except FileNotFoundError:  # deleted while we look
            continue
        if facts is not None:
            yield f"{folder}{name}", Listed(facts.st_size, f"{facts.st_size}:{facts.st_mtime_ns}")
            continue
        subfolders = (entry.name for entry in inside if entry.is_dir(follow_symlinks=False))
        pending += [f"{folder}{child}/" for child in subfolders if folder or child != ".work"]


def sync_folder(folder: Path) -> None:
    """Make renames and links inside a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
