"""The artifact store: find artifacts, open them, and walk to their ancestors and descendants.

`lineage.writing` writes new artifacts.
"""

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, from_json
from lineage.artifact.spec import ArtifactSpec, InputRef, partition_address
from lineage.private_files import private_scratch
from lineage.storage.digests import file_digest
from lineage.storage.root import Storage
from lineage.strangers import naming

WORK_FOLDER = ".work"
LATER = ".later"
"""Ends the name of a folder of files that are fetched when a task reads them (`lineage.artifact.later`)."""


@dataclass(frozen=True)
class Artifact:
    """An immutable folder and its manifest. Open its files; never change them."""

    store: "Store"
    manifest: Manifest

    @property
    def spec(self) -> ArtifactSpec:
        return self.manifest.spec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def data_version(self) -> str:
        return self.manifest.data_version

    @property
    def uri(self) -> str:
        return self.store.storage.uri(self.spec.address)

    def folder(self) -> Path:
        """Return the local folder of the data files. A remote artifact is fetched once into the store's cache."""
        address = f"{self.spec.address}/{self.manifest.data_folder}"
        if self.store.storage.is_local:
            return self.store.storage.local(address)
        target = self.store.scratch / "fetched" / self.spec.version / self.manifest.data_folder
        self.store.storage.fetch(address, [entry.path for entry in self.manifest.files], target)
        return target

    def file(self, name: str) -> Path:
        """Return the local path of one data file. Of a remote artifact only that file is fetched, unless all files are here.

        Raises: ValueError for a file that the manifest does not list.
        """
        self._check_listed(name)
        return self._fetched([name], name) / name

    def below(self, folder: str) -> Path:
        """Return the local path of a sub-folder. Of a remote artifact only its files are fetched, unless all files are here.

        Raises: ValueError for a folder that has no file in the manifest.
        """
        names = [path for path in self.manifest.paths if path.startswith(f"{folder}/")]
        if not names:
            raise ValueError(f"{self.name} has no file below {folder}/; its manifest lists {len(self.manifest.files)} others")
        return self._fetched(names, folder) / folder

    def _fetched(self, names: list[str], where: str) -> Path:
        """Return a local folder that holds some files; those of a remote artifact lie in a folder of their own."""
        whole = self.store.scratch / "fetched" / self.spec.version / self.manifest.data_folder
        if self.store.storage.is_local or whole.exists():
            return self.folder()
        target = whole.with_name(f"{whole.name}.files") / where.replace("/", "%2F")
        self.store.storage.fetch(f"{self.spec.address}/{self.manifest.data_folder}", names, target)
        return target

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Read bytes `[start, stop)` of one data file: from the local copy if there is one, else from storage.

        Raises: ValueError for a file that the manifest does not list.
        """
        self._check_listed(name)
        address = f"{self.spec.address}/{self.manifest.data_folder}"
        fetched = self.store.scratch / "fetched" / self.spec.version
        for path in (
            fetched / self.manifest.data_folder,
            fetched / f"{self.manifest.data_folder}.files" / name.replace("/", "%2F"),
            fetched / f"{self.manifest.data_folder}{LATER}",
        ):
            if not self.store.storage.is_local and (path / name).is_file():
                with (path / name).open("rb") as file:
                    file.seek(start)
                    return file.read(stop - start)
        return self.store.storage.files.read_range(f"{address}/{name}", start, stop)

    def _check_listed(self, name: str) -> None:
        """Names of files also come from `extra` and from files of the artifact, which no digest of names covers."""
        if name not in self.manifest.paths:
            raise ValueError(f"{self.name} has no file {name!r}; its manifest lists {len(self.manifest.files)} others")

    def files(self, suffix: str = "", under: str = "") -> list[Path]:
        """Return the paths of the data files with a suffix, below a sub-folder, in name order."""
        folder = self.folder()
        return [
            folder / entry.path
            for entry in sorted(self.manifest.files, key=lambda e: e.path)
            if entry.path.endswith(suffix) and entry.path.startswith(under)
        ]

    def ref(self, name: str) -> InputRef:
        """Return the reference by which another artifact names this one as its input `name`."""
        return InputRef(name, self.spec.key, self.spec.partition, self.data_version, self.spec.address)

    def input(self, name: str) -> "Artifact":
        """Open the input of a name; no other input is read.

        Raises: ValueError if there is no such input, or if it is gone or has other bytes than this artifact was made from.
        """
        for ref in self.spec.inputs:
            if ref.name == name:
                return self.store.parent(self, ref)
        raise ValueError(f"{self.name} has no input {name!r}; it has: {', '.join(r.name for r in self.spec.inputs)}")

    def verify(self, only: Collection[str] | None = None) -> None:
        """Read every file, or `only` some, and compare digests. Raises: ValueError naming the first that is missing or
        differs."""
        try:
            folder = self.folder() if only is None else None
            for entry in self.manifest.files:
                if only is not None and entry.path not in only:
                    continue
                path = self.file(entry.path) if folder is None else folder / entry.path
                digest = file_digest(path) if path.is_file() else "missing"
                if digest != entry.digest:
                    raise ValueError(f"{self.name}: file {entry.path} has digest {digest}, its manifest says {entry.digest}")
        except FileNotFoundError as error:  # raised by a remote root, with its own message
            raise ValueError(f"{self.name}: a file that its manifest names is missing: {error}") from error


@dataclass(frozen=True)
class Store:
    """Artifacts under one root: a local folder or any fsspec URL. It says where artifacts lie, not how they are made."""

    root: str
    scratch_folder: str | None = None
    """Local folder for downloads, working copies and fetched remote data. Default: `<root>/.work` on a local root, else this
    user's folder below the machine's temporary one."""

    logged: bool = True
    """Whether the commit log has an entry for every commit. Rolling checkpoints are short-lived, and nobody asks for them."""

    @property
    def storage(self) -> Storage:
        return Storage(self.root)

    @property
    def scratch(self) -> Path:
        if self.scratch_folder is not None:
            return Path(self.scratch_folder)
        if self.storage.is_local:
            return Path(self.root) / WORK_FOLDER
        return private_scratch(Path(tempfile.gettempdir()))

    @property
    def downloads(self) -> Path:
        """Hash-checked downloads, shared by every stage that fetches."""
        return self.scratch / "downloads"

    def find(self, spec: ArtifactSpec) -> Artifact | None:
        """Return the artifact with exactly this identity, or None."""
        return self.open(spec.address)

    def open(self, address: str) -> Artifact | None:
        """Return the artifact at an address relative to the root, or None.

        Raises: ValueError for a manifest that is not as it was committed, or that belongs to another address.
        """
        where = f"{address}/{MANIFEST_NAME}"
        with naming(self.storage.uri(where)):
            text = self.storage.read_text(where)
        if text is None:
            return None
        manifest = from_json(text, self.storage.uri(where))
        if manifest.spec.address != address:
            raise ValueError(
                f"{self.storage.uri(where)} says that it is {manifest.spec.address}: it was copied or moved by hand; "
                "put it back, or delete it and materialize the artifact again"
            )
        return Artifact(self, manifest)

    def artifacts(self, *key: str) -> Iterator[Artifact]:
        """Yield every artifact below a key prefix in address order; without a prefix, all of them."""
        for address in self.storage.find("/".join(key), MANIFEST_NAME):
            existing = self.open(address.rsplit("/", 1)[0])
            if existing is not None:
                yield existing

    def latest(self, key: tuple[str, ...], partition: str | None) -> Artifact | None:
        """Return the newest artifact of a partition, of any identity, or None."""
        candidates = list(self.artifacts(*partition_address(key, partition).split("/")))
        return max(candidates, key=lambda a: (a.manifest.created, a.spec.version), default=None)

    def delete(self, artifact: Artifact) -> None:
        """Delete an artifact, its manifest first: without one, what is left is no artifact.

        It writes nothing into the commit log; `lineage.writing.delete` does. For stores without a log.
        """
        self.storage.delete(f"{artifact.spec.address}/{MANIFEST_NAME}")
        self.storage.delete(artifact.spec.address)

    def parents(self, artifact: Artifact) -> list[Artifact]:
        """Open the direct inputs, in the order of the manifest.

        Raises: ValueError if an input is gone or has other bytes than the artifact was made from.
        """
        return self.storage.read_each(lambda ref: self.parent(artifact, ref), artifact.spec.inputs)

    def parent(self, artifact: Artifact, ref: InputRef) -> Artifact:
        """Open one direct input, or one of equal bytes. Raises: ValueError if there is none."""
        parent = self.open_equal(ref)
        if parent is None:
            there = self.open(ref.address)
            state = "is gone" if there is None else f"now has data version {there.data_version}"
            raise ValueError(f"{artifact.name} was made from {ref.address} ({ref.data_version}), which {state}")
        return parent

    def open_equal(self, ref: InputRef) -> Artifact | None:
        """Open what a ref names: the artifact at its address, else another one of its partition with the same data version.

        A stage that was made again with equal bytes has another address, and what was made from the first stays as it is
        (early cutoff), so the second stands in where the first was deleted.
        """
        existing = self.open(ref.address)
        if existing is not None and existing.data_version == ref.data_version:
            return existing
        place = partition_address(ref.key, ref.partition)
        for version in self.storage.folders(place):
            try:
                other = self.open(f"{place}/{version}")
            except ValueError:  # what is wrong with another version is no matter of this one
                continue
            if other is not None and other.data_version == ref.data_version:
                return other
        return None

    def walk_up(self, artifact: Artifact) -> Iterator[Artifact]:
        """Yield the artifact and every ancestor, each once, nearest first. Only manifests are read, each once.

        The inputs of one level are read together, so the depth of the graph decides how often a bucket is waited for.
        Raises: as `parents`.
        """
        seen: set[str] = set()
        read: set[tuple[str, str]] = set()
        level = [artifact]
        while level:
            new = {each.spec.address: each for each in level if each.spec.address not in seen}
            seen |= new.keys()
            level = list(new.values())
            yield from level
            refs = {(ref.address, ref.data_version): (each, ref) for each in level for ref in each.spec.inputs}
            level = self.storage.read_each(lambda pair: self.parent(*pair), [refs[key] for key in refs if key not in read])
            read |= refs.keys()

    def walk_down(self, artifact: Artifact) -> Iterator[Artifact]:
        """Yield the artifact and every descendant, each once. This reads every manifest under the root."""
        children: dict[str, list[Artifact]] = {}
        for candidate in self.artifacts():
            for ref in candidate.spec.inputs:
                children.setdefault(ref.address, []).append(candidate)
        seen: set[str] = set()
        pending = [artifact]
        while pending:
            current = pending.pop(0)
            if current.spec.address not in seen:
                seen.add(current.spec.address)
                yield current
                pending += children.get(current.spec.address, [])


def open_folder(folder: Path) -> Artifact:
    """Open the artifact in a local folder. Raises: ValueError if there is no manifest, or if the folder was moved."""
    path = folder.resolve()
    if not (path / MANIFEST_NAME).is_file():
        raise ValueError(f"{folder} holds no {MANIFEST_NAME}; give the folder of an artifact, as the UI shows it")
    with naming(str(path / MANIFEST_NAME)):
        spec = from_json((path / MANIFEST_NAME).read_text(), str(path)).spec
    depth = len(spec.address.split("/"))
    root = path.parents[depth - 1] if len(path.parents) >= depth else path  # a path with fewer folders was moved
    artifact = Store(str(root)).open(spec.address)
    if artifact is None or path != root / spec.address:
        raise ValueError(f"{folder} was moved: its manifest says {spec.address} below the store's root")
    return artifact
