"""Where artifacts lie: a local folder or any fsspec URL, with the few operations the store needs.

Two promises carry the contract: `create` never replaces a file and shows it whole or not at all, and `publish` makes a
folder of data visible under a name nobody refers to yet. Locally those are `link(2)` and `rename(2)`; on an object store
they are fsspec's exclusive create (`if_generation_match=0` on GCS) and uploads under a fresh prefix.
"""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import fsspec


@dataclass(frozen=True)
class Storage:
    """A root folder or URL; addresses are relative to it and use `/`."""

    root: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def local(self, address: str) -> Path:
        """Path of an address on a local root."""
        if not self.is_local:
            raise ValueError(f"{self.root} is not a local folder; fetch {address!r} first")
        return Path(self.root) / address

    def uri(self, address: str) -> str:
        return f"{self.root.rstrip('/')}/{address}"

    def read_text(self, address: str) -> str | None:
        """Text of a file, or None when there is none."""
        try:
            if self.is_local:
                return self.local(address).read_text(encoding="utf-8")
            filesystem, path = fsspec.url_to_fs(self.uri(address))
            return filesystem.cat_file(path).decode()
        except FileNotFoundError:
            return None

    def create(self, address: str, text: str) -> bool:
        """Write a new file atomically; False, and nothing written, when it exists already."""
        if self.is_local:
            return _create_local(self.local(address), text)
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        try:
            filesystem.pipe_file(path, text.encode(), mode="create")
        except FileExistsError:
            return False
        return True

    def read_bytes(self, address: str) -> bytes | None:
        """Bytes of a file, or None when there is none."""
        try:
            filesystem, path = fsspec.url_to_fs(self.uri(address))
            return filesystem.cat_file(path)
        except FileNotFoundError:
            return None

    def replace(self, address: str, data: bytes) -> None:
        """Write a file whether it exists or not; a reader sees the old bytes or the new ones, whole (derived tables only)."""
        if self.is_local:
            _replace_local(self.local(address), data)
            return
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        filesystem.pipe_file(path, data)

    def publish(self, folder: Path, address: str) -> None:
        """Move a finished local folder to `address`, which must not exist."""
        if self.is_local:
            target = self.local(address)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
            sync_folder(target.parent)
            return
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            filesystem.put_file(str(file), f"{path}/{file.relative_to(folder).as_posix()}")
        shutil.rmtree(folder)

    def fetch(self, address: str, names: list[str], target: Path) -> None:
        """Copy files below a remote address into a local folder, whole or not at all."""
        if target.exists():
            return
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        scratch = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}")
        for name in names:
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            filesystem.get_file(f"{path}/{name}", str(scratch / name))
        try:
            scratch.rename(target)
        except OSError:  # another process fetched the same immutable folder first
            shutil.rmtree(scratch)
            if not target.exists():
                raise

    def find(self, address: str, name: str) -> Iterator[str]:
        """Addresses of every file called `name` below `address`, sorted; working folders (`.work`) are not looked at."""
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        base = fsspec.url_to_fs(self.root)[1].rstrip("/")
        if not filesystem.exists(path):
            return
        for found in sorted(filesystem.find(path)):
            relative = found[len(base) + 1 :]
            if relative.rsplit("/", 1)[-1] == name and not relative.startswith(".work/"):
                yield relative

    def sizes(self, address: str) -> dict[str, int]:
        """Bytes of every file below an address, by path relative to it; none where there is nothing."""
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        base = path.rstrip("/")
        if not filesystem.exists(path):
            return {}
        return {found[len(base) + 1 :]: facts["size"] for found, facts in filesystem.find(path, detail=True).items()}

    def stamps(self, name: str) -> dict[str, str]:
        """Address of every file called `name` -> a stamp that changes when its bytes do, as the file system tells.

        Stamps are the size with the ETag, generation, modification or creation time, whichever the listing has; one listing,
        no file is opened. Working folders are not looked at.
        """
        if self.is_local:
            return dict(sorted(_local_stamps(Path(self.root), name)))
        filesystem, path = fsspec.url_to_fs(self.root)
        base = path.rstrip("/")
        if not filesystem.exists(path):
            return {}
        found = {
            entry[len(base) + 1 :]: _stamp(facts)
            for entry, facts in filesystem.find(path, detail=True).items()
            if entry.rsplit("/", 1)[-1] == name
        }
        return {address: found[address] for address in sorted(found) if not address.startswith(".work/")}

    def folders(self, address: str) -> list[str]:
        """Names of the folders directly below an address, sorted."""
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        if not filesystem.exists(path):
            return []
        entries = filesystem.ls(path, detail=True)
        return sorted(e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "directory")

    def delete(self, address: str) -> None:
        """Delete a file or a folder; nothing happens when there is none."""
        filesystem, path = fsspec.url_to_fs(self.uri(address))
        while filesystem.exists(path):
            try:
                filesystem.rm(path, recursive=True)
            except FileNotFoundError:  # a winner and its loser delete the loser's data at the same time
                continue


def _create_local(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with scratch.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(scratch, path)
    except FileExistsError:
        return False
    finally:
        scratch.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def _replace_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with scratch.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    sync_folder(path.parent)


def _local_stamps(root: Path, name: str) -> Iterator[tuple[str, str]]:
    """Like fsspec's listing, without looking below a folder that holds the file (an artifact's data) and ten times as fast."""
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
            yield f"{folder}{name}", f"{facts.st_size}:{facts.st_mtime_ns}"
            continue
        subfolders = (entry.name for entry in inside if entry.is_dir(follow_symlinks=False))
        pending += [f"{folder}{child}/" for child in subfolders if folder or child != ".work"]


def _stamp(facts: Mapping[str, object]) -> str:
    told = [facts[key] for key in ("ETag", "etag", "generation", "mtime", "created") if facts.get(key) is not None]
    return f"{facts['size']}:{told[0] if told else ''}"


def sync_folder(folder: Path) -> None:
    """Make renames and links inside a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
