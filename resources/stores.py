"""Where the lab's two stores are; no Dagster, so a command that only reads storage starts at once."""

import os

from lineage.artifact.store import Store
from lineage.project import lab_folder

DEFAULT_ROOT = ".marin"
FERRY_TTL_DAYS = 7
EXPIRING = (f"ttl-{FERRY_TTL_DAYS}d/ferry", f"ttl-{FERRY_TTL_DAYS}d/.work")
"""What expires below a root: ferries and the working folders of their store. Its records (`.operations`, `.trust`) stay."""


def lab_stores(root: str, scratch: str = "") -> tuple[Store, Store]:
    """Return the canonical store and the ferries' store, which expires, below a root folder or URL.

    A relative folder is relative to the folder of the lab. `scratch` is a local folder for downloads and working copies. By
    default it is on the file system of a local root, or below the system's temporary folder for a URL.
    """
    base = check_root(root)
    if "://" not in root:
        base = str((lab_folder() / root).resolve())
        scratch = scratch or f"{base}/work"
    folder = scratch or None  # both stores share one, so nothing is downloaded twice
    return Store(f"{base}/artifacts", folder), Store(f"{base}/ttl-{FERRY_TTL_DAYS}d", folder)


def check_root(root: str) -> str:
    """Return a root that this environment can open. Raises: ValueError for a URL that it has no file system for."""
    scheme, is_url, _ = root.partition("://")
    if is_url and scheme != "gs":
        import fsspec

        try:
            fsspec.get_filesystem_class(scheme)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"the root is {root!r}, which cannot be opened here ({error}); give a folder or a gs:// URL"
            ) from None
    return root


def stores_from_environment() -> tuple[Store, Store]:
    """Return the stores of the lab that `MARIN_ROOT` and `MARIN_SCRATCH` name."""
    return lab_stores(os.environ.get("MARIN_ROOT", DEFAULT_ROOT), os.environ.get("MARIN_SCRATCH", ""))
