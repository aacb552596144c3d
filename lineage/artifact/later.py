"""Data files of a remote artifact that are fetched when a task that reads them runs (`Writer.input_files`).

They have their places in the store's cache before they are there. A note beside them says where they come from, and which
bytes the manifest lists.
"""

import json
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePath

from lineage.artifact.store import LATER, Artifact
from lineage.names import check_relative
from lineage.storage.digests import other_bytes
from lineage.storage.root import Storage

NOTE = ".listed.json"


def files_later(artifact: Artifact, suffix: str = "", under: str = "") -> list[Path]:
    """Return what `Artifact.files` returns, but fetch nothing. On a local root the files are there."""
    store, spec, data = artifact.store, artifact.spec, artifact.manifest.data_folder
    whole = store.scratch / "fetched" / spec.version / data
    if store.storage.is_local or whole.exists():
        return artifact.files(suffix, under)
    folder = whole.with_name(f"{data}{LATER}")
    names = sorted(path for path in artifact.manifest.paths if path.endswith(suffix) and path.startswith(under))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / NOTE).exists():
        listed = {entry.path: [entry.bytes, entry.digest] for entry in artifact.manifest.files}
        private = folder / f"{NOTE}.{uuid.uuid4().hex[:8]}"
        private.write_text(json.dumps({"root": store.root, "address": f"{spec.address}/{data}", "files": listed}))
        private.replace(folder / NOTE)
    return [folder / check_relative(name, f"a file of {artifact.uri}") for name in names]


def is_later(path: PurePath) -> bool:
    """Whether a path is one of `files_later`, fetched or not."""
    return any(part.endswith(LATER) for part in path.parts[:-1])


def fetch_named(paths: Iterable[Path]) -> None:
    """Fetch those of some paths that are of `files_later` and not there yet; others are passed over.

    Raises: ValueError naming a file that has other bytes than its manifest lists.
    """
    missing = defaultdict[Path, list[Path]](list)
    for path in paths:
        if is_later(path) and not path.exists():
            missing[next(folder for folder in path.parents if folder.name.endswith(LATER))].append(path)
    for folder, wanted in missing.items():
        note = json.loads((folder / NOTE).read_text())
        private = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}")
        names = {path: path.relative_to(folder) for path in wanted}
        try:
            for path, name in names.items():
                (private / name).parent.mkdir(parents=True, exist_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
            addresses = {f"{note['address']}/{name.as_posix()}": private / name for name in names.values()}
            Storage(note["root"]).files.download(addresses)
            for path, name in names.items():
                size, digest = note["files"][name.as_posix()]
                _check(private / name, size, digest, f"{note['address']}/{name.as_posix()}")
                (private / name).replace(path)
        finally:
            shutil.rmtree(private, ignore_errors=True)


def _check(path: Path, size: int, digest: str, where: str) -> None:
    if has := other_bytes(path, size, digest):
        raise ValueError(
            f"{where} has {has}; its manifest lists {size} bytes, digest {digest}. "
            "Restore it, or delete the artifact and materialize it again"
        )
