"""Files of a local root: atomic by `link(2)` and `rename(2)`, durable by fsync, compared and swapped under a file lock."""

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lineage.names import check_relative
from lineage.storage.files import Listed, Versioned


@dataclass(frozen=True)
class LocalFiles:
    """Operations of `lineage.storage.root.Files` on a folder."""

    root: Path

    def _path(self, name: str) -> Path:
        """Return the path of a name below the root. Raises: ValueError for a name outside the root."""
        return self.root / check_relative(name, f"a file name below {self.root}")

    def read(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with self._path(name).open("rb") as stream:
            stream.seek(start)
            return stream.read(stop - start)

    def create(self, name: str, data: bytes) -> bool:
        with _scratch(self._path(name), data) as scratch:
            try:
                os.link(scratch, self._path(name))
            except FileExistsError:
                return False
        sync_folder(self._path(name).parent)
        return True

    def replace(self, name: str, data: bytes) -> None:
        with _scratch(self._path(name), data) as scratch:
            scratch.replace(self._path(name))
        sync_folder(self._path(name).parent)

    def read_versioned(self, name: str) -> Versioned | None:
        try:
            with self._path(name).open("rb") as stream:
                return Versioned(stream.read(), _generation(stream.fileno()))
        except FileNotFoundError:
            return None

    def swap(self, name: str, data: bytes | None, generation: str) -> str | None:
        path = self._path(name)
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
        target = self._path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(target)
        sync_folder(target.parent)

    def copy(self, names: Mapping[str, str]) -> None:
        for source, target in names.items():
            self._path(target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._path(source), self._path(target))
            sync_folder(self._path(target).parent)

    def download(self, names: Mapping[str, Path]) -> None:
        for name, path in names.items():
            shutil.copyfile(self._path(name), path)

    def listing(self, prefix: str, name: str | None) -> dict[str, Listed]:
        if name is not None and not prefix:
            return dict(_outermost(self.root, name))
        if prefix:
            self._path(prefix)  # refuses one that would leave the root
        return dict(_below(self.root, prefix, name))

    def listing_up_to(self, prefix: str, most: int) -> dict[str, Listed] | None:
        return self.listing(prefix, None)  # one walk gives all of them

    def written_ns(self, name: str) -> int | None:
        try:
            return self._path(name).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def location(self) -> None:
        return None

    def folders(self, name: str) -> list[str]:
        try:
            with os.scandir(self._path(name) if name else self.root) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        path = self._path(name)
        while path.exists() or path.is_symlink():
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except FileNotFoundError:  # a winner and its loser delete the loser's data at the same time
                continue


def _generation(descriptor: int) -> str:
    """Return the generation of a file. Every `replace` makes a new file, so equal bytes written again have another
    generation."""
    facts = os.fstat(descriptor)
    return f"{facts.st_ino}:{facts.st_mtime_ns}"


@contextmanager
def _scratch(path: Path, data: bytes) -> Iterator[Path]:
    """Yield a durable file beside `path` with its future bytes; it is deleted after the block unless it was renamed."""
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
    """Allow one swap at a time. The lock file is kept, because unlinking it would let two holders in."""
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
    """Yield the outermost files called `name`: a folder that has one is not searched further.

    Artifacts hold their data below their manifest, so this is ten times as fast as a full walk. `.work` is skipped.
    """
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
