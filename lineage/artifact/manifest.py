"""The manifest: the record beside the data that says what it is, from what, by which code and by whom, at what cost.

It is written last: a folder without a manifest is no artifact. The format is stable. Readers accept older schema numbers, and
`lineage.upkeep` rewrites old manifests. An audit needs manifests only.

Schema 1: until 2026-11-23; the seal is absent before 2026-11-21. Schema 2: the seal is required, `made_by` is recorded.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from lineage.artifact.made_by import MadeBy
from lineage.artifact.spec import ArtifactSpec, InputRef, partition_address
from lineage.names import check_part, check_relative
from lineage.storage.digests import identity_digest
from lineage.strangers import json_object, naming

SCHEMA = 2
SEALED_SCHEMA = 2
"""The first schema that requires a seal."""
MANIFEST_NAME = "manifest.json"
_EARLIER_ADDRESS = re.compile(r"[A-Za-z0-9].*/[^/]+/[0-9a-f]{32}")


@dataclass(frozen=True)
class FileEntry:
    """One data file: path relative to the data folder, size, rows where the format has them (Parquet), xxh3_128."""

    path: str
    bytes: int
    rows: int | None
    digest: str
    crc32c: str | None = None
    """Checksum that the bucket listed at the commit, in base64 (since 2026-11-24); None on other roots. The data version leaves
    it out."""


@dataclass(frozen=True)
class ShardRecord:
    """One shard: the data files that it wrote, and the statistics that it returned."""

    files: tuple[str, ...]
    statistics: Mapping[str, Any]


@dataclass(frozen=True)
class ResourceUse:
    """The cost of making an artifact. CPU seconds and peak memory include child processes that were alive meanwhile."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class EarlierForm:
    """What an artifact was before an upgrade: its address, the schema of its manifest, and the digest of that text."""

    address: str
    schema: int
    manifest: str


@dataclass(frozen=True)
class Manifest:
    """Everything `manifest.json` holds. `statistics` has the keys of `lineage.writing.writer.Writer.record`."""

    spec: ArtifactSpec
    data_version: str
    data_folder: str
    files: tuple[FileEntry, ...]
    statistics: Mapping[str, Any]
    extra: Mapping[str, Any]
    resources: ResourceUse
    code_fingerprint: str
    created: str
    run_id: str
    packages: Mapping[str, str]
    shards: Mapping[str, ShardRecord] = field(default_factory=dict)
    """Shards by name whose files are all among `files` (since 2026-11-21). `lineage.build.verify` can make each of them
    again."""

    facts: tuple[str, ...] = ()
    """Keys of `extra` that later stages read like files. They count in the data version (since 2026-11-21)."""

    omitted: Mapping[str, str] = field(default_factory=dict)
    """Shards that a waiver allowed to be missing: name -> why it failed (since 2026-11-21)."""

    made_by: MadeBy = field(default_factory=MadeBy)
    """Who committed it (since schema 2)."""

    earlier: tuple[EarlierForm, ...] = ()
    """Its forms before upgrades of the store, oldest first."""

    @cached_property
    def paths(self) -> frozenset[str]:
        """Paths of the data files."""
        return frozenset(entry.path for entry in self.files)


class UnsoundManifestError(ValueError):
    """A manifest that differs from what was committed: it was `edited`, or `moved` from another folder."""

    def __init__(self, kind: Literal["edited", "moved"], message: str):
        super().__init__(message)
        self.kind: Literal["edited", "moved"] = kind


def content_version(files: tuple[FileEntry, ...], facts: Mapping[str, Any] | None = None) -> str:
    """Return the data version: a digest of the names, sizes and digests of all files in name order, and of the facts if any."""
    listed: list[object] = [[f.path, f.bytes, f.digest] for f in sorted(files, key=lambda f: f.path)]
    return identity_digest([*listed, {"facts": facts}] if facts else listed)


def to_json(manifest: Manifest) -> str:
    """Return the text of `manifest.json`."""
    spec = manifest.spec
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "key": list(spec.key),
        "partition": spec.partition,
        "version": spec.version,
        "data_version": manifest.data_version,
        "stage": spec.stage,
        "stage_version": spec.stage_version,
        "code_fingerprint": manifest.code_fingerprint,
        "config": spec.config,
        "inputs": [asdict(ref) for ref in spec.inputs],
        "data_folder": manifest.data_folder,
        "files": [_entry_record(entry) for entry in manifest.files],
        "statistics": manifest.statistics,
        "extra": manifest.extra,
        "resources": asdict(manifest.resources),
        "created": manifest.created,
        "run_id": manifest.run_id,
        "packages": manifest.packages,
        "made_by": asdict(manifest.made_by),
    }
    if manifest.shards:
        record["shards"] = {name: asdict(shard) for name, shard in manifest.shards.items()}
    if manifest.facts:
        record["facts"] = list(manifest.facts)
    if manifest.omitted:
        record["omitted"] = manifest.omitted
    if manifest.earlier:
        record["earlier"] = [asdict(form) for form in manifest.earlier]
    return sealed(record)


def _entry_record(entry: FileEntry) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if name != "crc32c" or value is not None}


def sealed(record: Mapping[str, Any]) -> str:
    """Return the text of a manifest from its record, with the seal added: a digest of the record as a reader will parse it."""
    seal = identity_digest(json.loads(json.dumps(record)))
    return json.dumps({**record, "seal": seal}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str, where: str) -> Manifest:
    """Read a manifest.

    The seal is a digest of everything else in the record. It shows an edit; it is no signature.

    Raises: ValueError naming `where` for a newer schema, for a record that differs from its seal, for a record of schema 2 or
    later without a seal, and for a file name, data folder or address that could lead outside the artifact's folder or the root.
    """
    with naming(where):
        return _from_json(text, where)


def _from_json(text: str, where: str) -> Manifest:
    record = json_object(text, where)
    seal = record.pop("seal", None)
    if record["schema"] > SCHEMA:
        raise ValueError(f"{where}: manifest schema {record['schema']} is newer than {SCHEMA}; update this checkout")
    if seal is None and record["schema"] >= SEALED_SCHEMA:
        raise ValueError(f"{where}: a manifest of schema {record['schema']} must have a seal and has none; it was edited")
    spec = ArtifactSpec(
        key=tuple(record["key"]),
        partition=record["partition"],
        stage=record["stage"],
        stage_version=record["stage_version"],
        config=record["config"],
        inputs=tuple(InputRef.from_record(ref) for ref in record["inputs"]),
    )
    if spec.version != record["version"]:
        raise ValueError(f"{where}: version {record['version']} is not that of its spec ({spec.version}); it was edited")
    if seal is not None and identity_digest(record) != seal:
        raise ValueError(f"{where}: the record's digest is {identity_digest(record)}, its seal says {seal}; it was edited")
    _check_names(record, spec, where)
    return Manifest(
        spec=spec,
        data_version=record["data_version"],
        data_folder=record["data_folder"],
        files=tuple(FileEntry(**entry) for entry in record["files"]),
        statistics=record["statistics"],
        extra=record["extra"],
        resources=ResourceUse(**record["resources"]),
        code_fingerprint=record["code_fingerprint"],
        created=record["created"],
        run_id=record["run_id"],
        packages=record["packages"],
        shards={
            name: ShardRecord(tuple(shard["files"]), shard["statistics"]) for name, shard in record.get("shards", {}).items()
        },
        facts=tuple(record.get("facts", ())),
        omitted=record.get("omitted", {}),
        made_by=MadeBy(**record.get("made_by", {})),
        earlier=tuple(EarlierForm(**form) for form in record.get("earlier", ())),
    )


def _check_names(record: Mapping[str, Any], spec: ArtifactSpec, where: str) -> None:
    """Refuse names that could become paths outside the artifact's folder (`lineage.names`), and files listed twice."""
    check_part(record["data_folder"], f"{where}: data_folder")
    paths = [check_relative(entry["path"], f"{where}: a file's path") for entry in record["files"]]
    listed = set(paths)
    if len(listed) < len(paths):
        twice = next(path for path in sorted(listed) if paths.count(path) > 1)
        raise ValueError(f"{where}: file {twice!r} is listed more than once")
    for name, shard in record.get("shards", {}).items():
        check_relative(name, f"{where}: a shard's name")
        if strange := sorted(set(shard["files"]) - listed):
            raise ValueError(f"{where}: shard {name} has file {strange[0]!r}, which is not among the artifact's files")
    for form in record.get("earlier", ()):
        check_relative(form["address"], f"{where}: an earlier address")
        if not _EARLIER_ADDRESS.fullmatch(form["address"]):
            raise ValueError(f"{where}: an earlier address is {form['address']!r}; an address is <key>/<partition>/<version>")
    for ref in spec.inputs:
        check_relative(ref.address, f"{where}: the address of input {ref.name}")
        folder, _, version = ref.address.rpartition("/")
        if folder != partition_address(ref.key, ref.partition) or not version:
            raise ValueError(
                f"{where}: input {ref.name} is {'/'.join(ref.key)}[{ref.partition}] and its address is {ref.address!r}; "
                f"an address is {partition_address(ref.key, ref.partition)}/<version>"
            )


def sound_manifest(text: str, address: str, where: str) -> Manifest:
    """Read the manifest at an address and check that it is consistent and belongs there. Raises: UnsoundManifestError."""
    try:
        manifest = from_json(text, where)
    except ValueError as error:
        raise UnsoundManifestError("edited", str(error)) from error
    if manifest.spec.address != address:
        raise UnsoundManifestError("moved", f"it says that it is {manifest.spec.address}")
    wanted = content_version(manifest.files, {name: manifest.extra.get(name) for name in manifest.facts})
    if wanted != manifest.data_version:
        what = "files and facts" if manifest.facts else "files"
        message = f"its {what} give data version {wanted}, it says {manifest.data_version}"
        raise UnsoundManifestError("edited", message)
    return manifest
