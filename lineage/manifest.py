"""The manifest: the record beside the data that says what it is, from what, by which code, at what cost.

It is written last; a folder without one does not exist. The format is stable: readers accept older schema numbers, and an
audit works from manifests alone (DESIGN, section 3).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lineage.digests import identity_digest
from lineage.spec import ArtifactSpec, InputRef

SCHEMA = 1
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True)
class FileEntry:
    """One data file: path relative to the data folder, size, rows where the format tells (Parquet), xxh3_128."""

    path: str
    bytes: int
    rows: int | None
    digest: str


@dataclass(frozen=True)
class ShardRecord:
    """One shard of the work: the data files that it wrote, and what it said of itself."""

    files: tuple[str, ...]
    statistics: Mapping[str, Any]


@dataclass(frozen=True)
class ResourceUse:
    """What making it cost. CPU seconds and peak memory include child processes that were alive while it ran."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True)
class Manifest:
    """Everything `manifest.json` holds. `statistics` has the keys of `lineage.writer.Writer.record`."""

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
    """Shards whose files are all among `files`, by name (since 2026-11-21): `lineage.verify` can make them again one by one."""

    facts: tuple[str, ...] = ()
    """Keys of `extra` that later stages read as they read files: they count in the data version (since 2026-11-21)."""

    omitted: Mapping[str, str] = field(default_factory=dict)
    """Shards that a waiver let it do without, by name, and why each failed (since 2026-11-21)."""


class UnsoundManifestError(ValueError):
    """A manifest that does not say what was committed: `edited`, or `moved` from another folder."""

    def __init__(self, kind: Literal["edited", "moved"], message: str):
        super().__init__(message)
        self.kind: Literal["edited", "moved"] = kind


def content_version(files: tuple[FileEntry, ...], facts: Mapping[str, Any] | None = None) -> str:
    """Content-addressed data version: digest of names, sizes and digests of files, in name order, and of facts if any."""
    listed: list[object] = [[f.path, f.bytes, f.digest] for f in sorted(files, key=lambda f: f.path)]
    return identity_digest([*listed, {"facts": facts}] if facts else listed)


def to_json(manifest: Manifest) -> str:
    spec = manifest.spec
    record = {
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
        "files": [asdict(entry) for entry in manifest.files],
        "statistics": manifest.statistics,
        "extra": manifest.extra,
        "resources": asdict(manifest.resources),
        "created": manifest.created,
        "run_id": manifest.run_id,
        "packages": manifest.packages,
    }
    if manifest.shards:
        record["shards"] = {name: asdict(shard) for name, shard in manifest.shards.items()}
    if manifest.facts:
        record["facts"] = list(manifest.facts)
    if manifest.omitted:
        record["omitted"] = manifest.omitted
    record["seal"] = identity_digest(json.loads(json.dumps(record)))  # of what a reader will have
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str, where: str) -> Manifest:
    """Read a manifest. Raises ValueError naming `where` for a newer schema, or for a record that is not as it was sealed.

    The seal (absent before 2026-11-21) is a digest of everything else in the record: it finds an edit, it is no signature.
    """
    record = json.loads(text)
    seal = record.pop("seal", None)
    if record["schema"] > SCHEMA:
        raise ValueError(f"{where}: manifest schema {record['schema']} is newer than {SCHEMA}; update this checkout")
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
    )


def sound_manifest(text: str, address: str, where: str) -> Manifest:
    """Read the manifest at an address and hold it to itself and to its place. Raises: UnsoundManifestError."""
    try:
        manifest = from_json(text, where)
    except (ValueError, KeyError, TypeError) as error:
        raise UnsoundManifestError("edited", str(error)) from error
    if manifest.spec.address != address:
        raise UnsoundManifestError("moved", f"it says that it is {manifest.spec.address}")
    wanted = content_version(manifest.files, {name: manifest.extra.get(name) for name in manifest.facts})
    if wanted != manifest.data_version:
        what = "files and facts" if manifest.facts else "files"
        message = f"its {what} give data version {wanted}, it says {manifest.data_version}"
        raise UnsoundManifestError("edited", message)
    return manifest
