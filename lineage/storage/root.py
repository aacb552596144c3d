"""The root of a store: a local folder or a URL, with the few operations that the store needs.

The store relies on two promises: `create` never replaces a file and shows it whole or not at all, and `publish` makes a folder
of data visible under a name that nobody refers to yet. See `lineage.storage.files` and docs/design/storage.md.
"""

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lineage.names import check_relative
from lineage.storage.files import Files, Listed

WORKING = ".work/"
"""Folder at the root that listings skip: working files of writers and leases are no artifacts."""
READERS = 16
"""Requests at once."""


@dataclass(frozen=True)
class Storage:
    """A root folder or URL; addresses are relative to it and use `/`."""

    root: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    @property
    def files(self) -> Files:
        """The root's file operations. Each process has one connection pool for each root."""
        return _files(self.root)

    def local(self, address: str) -> Path:
        """Return the path of an address on a local root."""
        if not self.is_local:
            raise ValueError(f"{self.root} is not a local folder; fetch {address!r} first")
        return Path(self.root) / check_relative(address, f"an address below {self.root}")

    def uri(self, address: str) -> str:
        return f"{self.root.rstrip('/')}/{address}"

    def read_text(self, address: str) -> str | None:
        """Return the text of a file, or None when there is none. Raises: ValueError naming a file that is no UTF-8."""
        data = self.files.read(address)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.uri(address)} is no UTF-8 text: {error}") from error

    def read_bytes(self, address: str) -> bytes | None:
        """Return the bytes of a file, or None when there is none."""
        return self.files.read(address)

    def read_each[T, R](self, read: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Call a function that reads from the root for each item, `READERS` calls at once on a bucket. Results are in order.

        A local read takes less time than parsing what it returns, and threads do not speed that up.
        """
        given = list(items)
        if self.is_local or len(given) < 2:
            return [read(item) for item in given]
        with ThreadPoolExecutor(READERS, thread_name_prefix="reads") as pool:
            return list(pool.map(read, given))

    def create(self, address: str, text: str) -> bool:
        """Write a new file atomically; False, and nothing written, when it exists already."""
        return self.files.create(address, text.encode())

    def replace(self, address: str, data: bytes) -> None:
        """Write a file whether it exists or not; a reader sees the old bytes or the new ones, whole (derived tables only)."""
        self.files.replace(address, data)

    def publish(self, folder: Path, address: str) -> None:
        """Put a finished local folder at `address`, which must not exist: moved on a local root, copied to any other."""
        self.files.publish(folder, address)

    def copy(self, names: Mapping[str, str]) -> None:
        """Copy files within the root: from address -> to address, where nobody refers to yet."""
        self.files.copy(names)

    def fetch(self, address: str, names: Sequence[str], target: Path) -> None:
        """Copy files below a remote address into a local folder, whole or not at all.

        Raises: ValueError for a name that would lie outside that folder; nothing is copied then.
        """
        for name in names:
            check_relative(name, f"a file of {self.uri(address)}")
        if target.exists():
            return
        scratch = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}")
        scratch.mkdir(parents=True)
        try:
            for name in names:
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            self.files.download({f"{address}/{name}": scratch / name for name in names})
            scratch.rename(target)
        except BaseException as error:  # any exception, also a cancel: half of an artifact may be hundreds of gigabytes
            shutil.rmtree(scratch)
            if (
                not isinstance(error, OSError) or not target.exists()
            ):  # else another process fetched the same immutable folder first
                raise

    def find(self, address: str, name: str) -> list[str]:
        """Return addresses of every file called `name` below `address`, sorted; working folders (`.work`) are not looked at."""
        return sorted(path for path in self.files.listing(address, name) if not path.startswith(WORKING))

    def sizes(self, address: str) -> dict[str, int]:
        """Return the bytes of every file below an address, by path relative to it; none where there is nothing."""
        return {name: facts.size for name, facts in self.listed(address).items()}

    def records(self, folder: str) -> list[str]:
        """Return the names of the whole files directly in a folder, sorted.

        A name that begins with a dot is a file that is being written, or that a killed writer left
        (`lineage.storage.local`): it may be empty, so it is left out.
        """
        return sorted(name for name in self.sizes(folder) if "/" not in name and not name.startswith("."))

    def listed(self, address: str) -> dict[str, Listed]:
        """Return every file below an address ("": the root) as a listing shows it, by path relative to it."""
        skip = len(address) + 1 if address else 0
        return {path[skip:]: facts for path, facts in self.files.listing(address, None).items()}

    def stamps(self, name: str) -> dict[str, str]:
        """Address of every file called `name` -> a stamp that changes when its bytes do, as far as the file system shows it.

        One listing, no file is opened. Working folders are not looked at, nor is what lies below a folder that holds the file.
        """
        listing = self.files.listing("", name)
        return {address: listing[address].stamp for address in sorted(listing) if not address.startswith(WORKING)}

    def folders(self, address: str) -> list[str]:
        """Return the names of the folders directly below an address, sorted."""
        return sorted(self.files.folders(address))

    def delete(self, address: str) -> None:
        """Delete a file or a folder; nothing happens when there is none."""
        self.files.delete(address)


@cache
def _files(root: str) -> Files:
    """Return the file operations of a root. The bucket's client is optional, so it is imported only for roots on a bucket."""
    if "://" not in root:
        from lineage.storage.local import LocalFiles

        return LocalFiles(Path(root))
    if root.startswith("gs://"):
        from lineage.storage.gs import BucketFiles

        return BucketFiles(root)
    from lineage.storage.fsspec_files import UrlFiles

    return UrlFiles(root)
