"""The artifact store: find what exists, write what does not, walk from any artifact to what it came from.

    store = Store("/data/lab")
    with store.writing(spec) as out:              # resumes finished shards of a killed attempt
        (out.folder / "numbers.parquet")...       # write data files here
        out.record(rows_in=10, rows_out=9, drops={"empty": 1})
    artifact = out.artifact                       # the manifest was written on the clean exit

A killed writer leaves only a working folder under `<root>/.work/`, which the next attempt takes over.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lineage.commit import commit
from lineage.crew import Crew
from lineage.digests import file_digest, identity_digest
from lineage.failures import IncompleteError, ShardFailure, kind_of
from lineage.manifest import MANIFEST_NAME, FileEntry, Manifest, from_json
from lineage.measure import Meter, measuring
from lineage.packages import RECORDED, commit_of, installed_versions
from lineage.shards import (
    DEFAULT_LIMITS,
    ShardFolder,
    ShardFunction,
    ShardLimits,
    disk_full,
    run_shards,
)
from lineage.shared_shards import SharedShards
from lineage.spec import ArtifactSpec, InputRef, partition_address
from lineage.storage import Storage
from lineage.working_folder import working_folder

log = logging.getLogger(__name__)

WORK_FOLDER = ".work"


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
        """Local folder of the data files; a remote artifact is fetched once into the store's cache."""
        address = f"{self.spec.address}/{self.manifest.data_folder}"
        if self.store.storage.is_local:
            return self.store.storage.local(address)
        target = self.store.scratch / "fetched" / self.spec.version / self.manifest.data_folder
        self.store.storage.fetch(address, [entry.path for entry in self.manifest.files], target)
        return target

    def file(self, name: str) -> Path:
        """Local path of one data file; of a remote artifact only that file is fetched, unless all have been."""
        whole = self.store.scratch / "fetched" / self.spec.version / self.manifest.data_folder
        if self.store.storage.is_local or whole.exists():
            return self.folder() / name
        target = whole.with_name(f"{whole.name}.files") / name.replace("/", "%2F")
        self.store.storage.fetch(f"{self.spec.address}/{self.manifest.data_folder}", [name], target)
        return target / name

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `[start, stop)` of one data file, from where it lies; a file that was fetched is read here."""
        address = f"{self.spec.address}/{self.manifest.data_folder}"
        fetched = self.store.scratch / "fetched" / self.spec.version
        for path in (
            fetched / self.manifest.data_folder,
            fetched / f"{self.manifest.data_folder}.files" / name.replace("/", "%2F"),
        ):
            if not self.store.storage.is_local and (path / name).is_file():
                with (path / name).open("rb") as file:
                    file.seek(start)
                    return file.read(stop - start)
        return self.store.storage.files.read_range(f"{address}/{name}", start, stop)

    def files(self, suffix: str = "", under: str = "") -> list[Path]:
        """Paths of the data files with a suffix, below a sub-folder, in name order."""
        folder = self.folder()
        return [
            folder / entry.path
            for entry in sorted(self.manifest.files, key=lambda e: e.path)
            if entry.path.endswith(suffix) and entry.path.startswith(under)
        ]

    def ref(self, name: str) -> InputRef:
        """How another artifact refers to this one as its input `name`."""
        return InputRef(name, self.spec.key, self.spec.partition, self.data_version, self.spec.address)

    def input(self, name: str) -> "Artifact":
        """The input that was given under a name. Raises ValueError listing the names there are."""
        for parent, ref in zip(self.store.parents(self), self.spec.inputs, strict=True):
            if ref.name == name:
                return parent
        raise ValueError(f"{self.name} has no input {name!r}; it has: {', '.join(r.name for r in self.spec.inputs)}")

    def verify(self, only: Collection[str] | None = None) -> None:
        """Re-read every byte, or those of some files. Raises ValueError naming the first that is missing or has other bytes."""
        try:
            folder = self.folder() if only is None else None
            for entry in self.manifest.files:
                if only is not None and entry.path not in only:
                    continue
                path = self.file(entry.path) if folder is None else folder / entry.path
                found = file_digest(path) if path.is_file() else "missing"
                if found != entry.digest:
                    raise ValueError(f"{self.name}: file {entry.path} has digest {found}, its manifest says {entry.digest}")
        except FileNotFoundError as error:  # of a remote root, by its own words
            raise ValueError(f"{self.name}: a file that its manifest names is missing: {error}") from error


@dataclass
class Writer:
    """Hands out the working folder of one artifact and gathers what its manifest will say."""

    store: "Store"
    spec: ArtifactSpec
    folder: Path
    statistics: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Like `extra`, for what later stages read as they read files: it counts in the data version."""

    shard_names: set[str] = field(default_factory=set)
    """Every shard that the stage has asked for so far."""

    may_omit: Collection[str] = ()
    """Shards that failed before and that a waiver lets the artifact do without."""

    omitted: dict[str, str] = field(default_factory=dict)
    """Shards that were left out, by that waiver, and the errors they ended with."""

    waivers: list[Mapping[str, Any]] = field(default_factory=list)
    """What allows it: in the manifest if shards were left out."""

    elsewhere: dict[str, FileEntry] = field(default_factory=dict)
    """Files that are in the root already, by address: copied to their place at the commit (other processes of a gang put them
    there, and said what their bytes are)."""

    shared: SharedShards | None = None
    """Where other machines leave shards that they have finished (`lineage.shard_runner`)."""

    fan_out: Callable[[Collection[str]], Mapping[str, ShardFailure]] | None = None
    """Has shards done by runners elsewhere, which leave them in `shared`; what failed there (`lineage.fan_out`)."""

    crew: Crew = field(default_factory=Crew)
    """Who does the shards where there are several workers: the same processes from one map to the next."""

    adopted: bool = False

    committed: Artifact | None = None

    @property
    def artifact(self) -> Artifact:
        """The artifact, once the `with` block has ended without an exception."""
        if self.committed is None:
            raise RuntimeError(f"{self.spec.name} is not committed yet")
        return self.committed

    def record(self, **statistics: object) -> None:
        """Statistics for the manifest.

        Known names: rows_in, rows_out, drops (mapping reason -> rows), bytes_in, bytes_out, tokens_in, tokens_out.
        """
        self.statistics.update(statistics)

    def map_shards(
        self,
        function: ShardFunction,
        tasks: Mapping[str, tuple[object, ...]],
        workers: int | None = None,
        *,
        omittable: bool = False,
        in_runs: bool = False,
    ) -> dict[str, Mapping[str, Any]]:
        """Run shards that survive a kill (see `lineage.shards`), with the store's worker count unless told; their statistics.

        They are begun in the order of `tasks`: with the largest first no worker waits for it at the end. `in_runs`: neighbours
        are of about one size and read the same, so each worker goes on behind its last one. `omittable`: the artifact means
        something without some of them (documents of a raw file that cannot be read), so a waiver may let it do without; what
        comes back then lacks their names. Raises: IncompleteError naming what failed, when every other shard is done.
        """
        self.shard_names |= tasks.keys()
        limits = self.store.limits.of_stage(self.spec.stage)
        folder = ShardFolder(self.folder, without=tuple(sorted(self.omitted)))
        self._take_shared(folder, tasks)
        elsewhere = self._fan_out(folder, tasks)
        ran = run_shards(
            folder,
            function,
            {name: arguments for name, arguments in tasks.items() if name not in elsewhere},
            workers=workers or self.store.workers,
            crew=self.crew,
            title=self.spec.name,
            limits=limits,
            in_runs=in_runs,
        )
        missing = tasks.keys() - ran.finished.keys()
        failures = (*elsewhere.values(), *ran.failures)
        if missing and not (omittable and missing <= set(self.may_omit)):
            raise IncompleteError(self.spec.name, failures, len(tasks), len(ran.finished))
        self.omitted |= {failure.name: failure.error for failure in failures}
        return dict(ran.finished)

    def warm(self, shards: int, function: Callable[..., object], *arguments: object) -> None:
        """Start the workers of a map of so many shards while the stage still plans, each with a call that its shards need."""
        workers = min(self.store.workers, shards)
        if workers > 1 and self.fan_out is None:
            self.crew.warm(workers, self.store.limits.of_stage(self.spec.stage).memory_bytes, (function, arguments))

    def map_calls(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]], workers: int | None = None
    ) -> list[Any]:
        """`function(*call)` of each, by the workers where there are several: what is too small for shards and leaves no files.

        Raises: what one raises, here or as a RuntimeError that quotes it; RuntimeError where a worker died.
        """
        count = workers or self.store.workers
        if min(count, len(calls)) <= 1:
            return [function(*call) for call in calls]
        return self.crew.map(function, calls, count, self.store.limits.of_stage(self.spec.stage).memory_bytes)

    @contextmanager
    def calling(
        self, function: Callable[..., object], calls: Sequence[tuple[object, ...]]
    ) -> Iterator[Callable[[], list[Any]]]:
        """`map_calls` while the block goes on; it yields what gives the answers, or raises. One worker begins when asked."""
        if min(self.store.workers, len(calls)) <= 1:
            yield partial(self.map_calls, function, calls)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="calling") as thread:
            yield thread.submit(self.map_calls, function, calls).result

    def _fan_out(self, folder: ShardFolder, tasks: Mapping[str, tuple[object, ...]]) -> Mapping[str, ShardFailure]:
        """Have what is missing done by runners, where there are any; what they gave up.

        A map of one shard stays here: a machine for it would take longer to come than it saves. Runners see finished shards of
        earlier maps in the shared place alone, and know nothing of those that a waiver lets this artifact do without: what
        comes after such a one is done here.
        """
        missing = [name for name in sorted(tasks) if folder.finished(name) is None]
        if self.fan_out is None or self.shared is None or self.omitted or not missing or len(tasks) < 2:
            return {}
        for name in sorted(self.shard_names - self.shared.finished()):
            if folder.finished(name) is not None:
                self.shared.publish_copy(name, folder)
        failures = self.fan_out(missing)
        self._take_shared(folder, tasks)
        return {name: failure for name, failure in failures.items() if folder.finished(name) is None}

    def _take_shared(self, folder: ShardFolder, tasks: Mapping[str, tuple[object, ...]]) -> None:
        """Take over what runners on other machines have finished."""
        if self.shared is None:
            return
        there = {name for name in self.shared.finished() & tasks.keys() if folder.finished(name) is None}
        if there:
            log.info("%s: %d of %d shards were finished by other runners", self.spec.name, len(there), len(tasks))
            self.shared.fetch(there, folder, self.store.scratch)
            self.adopted = True


@dataclass(frozen=True)
class Store:
    """Artifacts under one root (a folder or any fsspec URL). `workers` and `scratch` are how it runs, never identity."""

    root: str
    workers: int = 1
    scratch_folder: str | None = None
    """Local folder for downloads, working copies and fetched remote data; `<root>/.work` on a local root."""
    limits: ShardLimits = DEFAULT_LIMITS
    crew: Crew | None = field(default=None, compare=False, repr=False)
    """Workers for all artifacts of one process; without it each artifact has its own, which end with it."""

    def __getstate__(self) -> dict[str, Any]:
        """What crosses to another process, as an artifact does that a worker reads: a crew belongs to this one."""
        return {**self.__dict__, "crew": None}

    @property
    def storage(self) -> Storage:
        return Storage(self.root)

    @property
    def scratch(self) -> Path:
        if self.scratch_folder is not None:
            return Path(self.scratch_folder)
        if self.storage.is_local:
            return Path(self.root) / WORK_FOLDER
        return Path(tempfile.gettempdir()) / "marin-scratch"

    @property
    def downloads(self) -> Path:
        """Hash-checked downloads, shared by every stage that fetches."""
        return self.scratch / "downloads"

    def find(self, spec: ArtifactSpec) -> Artifact | None:
        """The artifact with exactly this identity, or None."""
        return self.open(spec.address)

    def open(self, address: str) -> Artifact | None:
        """The artifact at an address relative to the root, or None."""
        where = f"{address}/{MANIFEST_NAME}"
        text = self.storage.read_text(where)
        return None if text is None else Artifact(self, from_json(text, self.storage.uri(where)))

    def artifacts(self, *key: str) -> Iterator[Artifact]:
        """Every artifact below a key prefix (all of them without one), in address order."""
        for address in self.storage.find("/".join(key), MANIFEST_NAME):
            found = self.open(address.rsplit("/", 1)[0])
            if found is not None:
                yield found

    def latest(self, key: tuple[str, ...], partition: str | None) -> Artifact | None:
        """The newest artifact of a partition, whatever its identity."""
        found = list(self.artifacts(*partition_address(key, partition).split("/")))
        return max(found, key=lambda a: (a.manifest.created, a.spec.version), default=None)

    @contextmanager
    def writing(
        self,
        spec: ArtifactSpec,
        code_fingerprint: str = "",
        run_id: str = "",
        meter: Meter | None = None,
        waivers: Sequence[Mapping[str, Any]] = (),
        packages: Collection[str] = (),
        replacing: Artifact | None = None,
    ) -> Iterator[Writer]:
        """Write an artifact; its manifest appears on a clean exit, or nothing does.

        A job that worked before it had something to write gives the `meter` that has run since it started. `waivers` that the
        launch gate took are kept in the manifest, and so are the installed versions of `packages`, the distributions that the
        stage's code imports.

        When another writer commits the same identity first, its artifact wins and ours is discarded. Only an artifact that
        was made without some of its shards, or whose files are damaged, may be replaced (`replacing`).
        """
        versions = installed_versions({*RECORDED, *packages}) | commit_of(os.environ)
        code = code_id(code_fingerprint, {name: versions[name] for name in packages if name in versions})
        own = Crew() if self.crew is None else nullcontext(self.crew)
        with working_folder(self, spec, code) as folder, measuring() as own_meter, own as crew:
            out = Writer(self, spec, folder, shared=SharedShards(self.storage, spec.version, code), crew=crew)
            try:
                yield out
                if taken := [*waivers, *(out.waivers if out.omitted else ())]:
                    out.extra["waivers"] = taken
                use = (meter or own_meter).use()
                out.committed = Artifact(self, commit(out, use, code_fingerprint, run_id, versions, replacing))
                if out.adopted and out.shared is not None:
                    out.shared.delete()
            except Exception as error:
                if kind_of(error) == "disk":
                    raise disk_full(error, spec.name, folder) from error
                raise

    def delete(self, artifact: Artifact) -> None:
        """Delete an artifact: its manifest first, so that a half-deleted one does not exist."""
        self.storage.delete(f"{artifact.spec.address}/{MANIFEST_NAME}")
        self.storage.delete(artifact.spec.address)

    def parents(self, artifact: Artifact) -> list[Artifact]:
        """The direct inputs. Raises ValueError naming an input that is gone or has other bytes than were read."""
        found = []
        for ref in artifact.spec.inputs:
            parent = self.open(ref.address)
            if parent is None or parent.data_version != ref.data_version:
                state = "is gone" if parent is None else f"now has data version {parent.data_version}"
                raise ValueError(f"{artifact.name} was made from {ref.address} ({ref.data_version}), which {state}")
            found.append(parent)
        return found

    def walk_up(self, artifact: Artifact) -> Iterator[Artifact]:
        """The artifact and every ancestor, each once, nearest first, from manifests alone."""
        seen: set[str] = set()
        pending = [artifact]
        while pending:
            current = pending.pop(0)
            if current.spec.address not in seen:
                seen.add(current.spec.address)
                yield current
                pending += self.parents(current)

    def walk_down(self, artifact: Artifact) -> Iterator[Artifact]:
        """The artifact and everything that was made from it, each once (reads every manifest under the root)."""
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


def code_id(code_fingerprint: str, packages: Mapping[str, str]) -> str:
    """Digest of the code that makes an artifact, packages included: shards of other code are not mixed in."""
    return identity_digest([code_fingerprint, {name: packages[name] for name in sorted(packages)}])


def adopt_shards(out: Writer, artifact: Artifact, besides: Collection[str] = ()) -> None:
    """Take the shards that an artifact lists as finished, but for some: copies of what they wrote."""
    folder = artifact.folder()
    for name, shard in artifact.manifest.shards.items():
        if name not in besides:
            ShardFolder(out.folder).adopt(name, {path: folder / path for path in shard.files}, shard.statistics)


def open_folder(folder: Path) -> Artifact:
    """The artifact whose manifest lies in a local folder. Raises: ValueError where there is none, or it was moved."""
    path = folder.resolve()
    if not (path / MANIFEST_NAME).is_file():
        raise ValueError(f"{folder} holds no {MANIFEST_NAME}; give the folder of an artifact, as the UI shows it")
    spec = from_json((path / MANIFEST_NAME).read_text(), str(path)).spec
    root = path.parents[len(spec.address.split("/")) - 1]
    artifact = Store(str(root)).open(spec.address)
    if artifact is None or path != root / spec.address:
        raise ValueError(f"{folder} was moved: its manifest says {spec.address} below the store's root")
    return artifact
