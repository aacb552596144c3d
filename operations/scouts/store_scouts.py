"""Scouts that read stores: drift that nobody cleared, artifacts that cannot be made again, files that nothing refers to."""

import datetime
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lineage.artifact.manifest import MANIFEST_NAME, from_json
from lineage.artifact.store import Artifact, Store
from lineage.artifact.trash import MARK
from lineage.build.drifted import drifted_artifacts, newest
from lineage.build.reproduce import Registry
from lineage.build.verify import difference, remake
from lineage.storage.digests import identity_digest
from lineage.trust.fingerprint import stage_code
from operations.scouts.reports import Finding, Look

log = logging.getLogger(__name__)

DATA = "data-"
"""Start of the name of the folder in which an attempt puts its files."""


@dataclass(frozen=True)
class Sampling:
    """How many artifacts to make again in a night, and the most seconds that making one may have taken."""

    artifacts: int = 3
    seconds: float = 60.0


def uncleared_drift(stores: Sequence[Store], registry: Registry) -> Look:
    """Return newest artifacts whose code has changed without a new stage version, and that `./marin verify` has not cleared."""
    artifacts = newest(stores)
    findings = []
    for artifact, drift in drifted_artifacts(artifacts, registry):
        if drift.is_cleared:
            continue
        differs = drift.evidence is not None
        finding = Finding(
            _where(artifact),
            "high" if differs else "medium",
            f"{artifact.name} has drifted: {drift}",
            f"./marin verify '{artifact.name}'",
        )
        findings.append(finding)
    return Look(tuple(findings), len(artifacts))


def unreproducible(stores: Sequence[Store], registry: Registry, day: datetime.date, sampling: Sampling) -> Look:
    """Make a few artifacts again in scratch space and compare every byte. The date chooses them, so each night has others.

    Artifacts of jobs are left out, because a job may take hours (`./marin verify --jobs`).
    """
    findings: list[Finding] = []
    left_out: dict[str, str] = {}
    candidates = [each for each in newest(stores) if _is_quick(each, registry, sampling.seconds)]
    candidates.sort(key=lambda each: identity_digest([day.isoformat(), _where(each)]))
    chosen = candidates[: sampling.artifacts]
    for artifact in chosen:
        try:
            detail = _difference_now(artifact, registry)
        except Exception as error:  # a stage may raise anything; the report names it and the scout continues
            log.warning("scout: %s cannot be made again", artifact.name, exc_info=True)
            left_out[_where(artifact)] = f"{type(error).__name__}: {error}"[:500]
            continue
        if detail:
            summary = f"{artifact.name} came out with other bytes"
            findings.append(
                Finding(_where(artifact), "high", summary, f"./marin verify '{artifact.name}'", {"difference": detail})
            )
    return Look(tuple(findings), len(chosen), left_out)


def orphaned_files(stores: Sequence[Store], before: Mapping[str, str]) -> Look:
    """Return data folders that no manifest refers to and no purge has in its trash.

    `before`: subject -> when it was first seen, from the report before.
    A folder that is new tonight may belong to an attempt that is still copying, so it is of low severity.
    """
    findings: list[Finding] = []
    examined = 0
    for store in stores:
        manifests = {address.removesuffix(f"/{MANIFEST_NAME}") for address in store.storage.stamps(MANIFEST_NAME)}
        folders = _data_folders(store)
        examined += len(folders)
        for place, size in sorted(folders.items()):
            address, _, name = place.rpartition("/")
            if address in manifests and _is_used(store, address, name):
                continue
            subject = f"{store.root.rstrip('/').rpartition('/')[2]}/{place}"
            since = before.get(subject)
            why = "its manifest names another folder" if address in manifests else "it has no manifest"
            seen = f"seen since {since}" if since else "new tonight: an attempt may be writing it"
            summary = f"{place} has {size:,} bytes and no manifest refers to it: {why}; {seen}"
            findings.append(Finding(subject, "medium" if since else "low", summary, "./marin storage"))
    return Look(tuple(findings), examined)


class Upstream(Protocol):
    """The revision that a source pins, and the one that its origin has (`datakit.sources.upstream`)."""

    @property
    def pinned(self) -> str: ...
    @property
    def current(self) -> str: ...
    @property
    def has_moved(self) -> bool: ...


def moved_upstreams[L](loaders: Mapping[str, L], upstream_of: Callable[[L], Upstream | None]) -> Look:
    """Return sources whose origin has another revision than the pin. `loaders`: source -> how it is fetched.

    An origin that does not answer is left out with the reason. A source without revisions is not examined.
    """
    findings: list[Finding] = []
    left_out: dict[str, str] = {}
    examined = 0
    for source, loader in loaders.items():
        try:
            upstream = upstream_of(loader)
        except (OSError, RuntimeError, ValueError) as error:
            left_out[source] = f"{type(error).__name__}: {error}"[:500]
            continue
        examined += upstream is not None
        if upstream is not None and upstream.has_moved:
            summary = f"{source} pins {upstream.pinned}, its origin has {upstream.current}"
            findings.append(Finding(source, "low", summary, "./marin sources"))
    return Look(tuple(findings), examined, left_out)


def _where(artifact: Artifact) -> str:
    return f"{artifact.store.root.rstrip('/').rpartition('/')[2]}/{artifact.spec.address}"


def _is_quick(artifact: Artifact, registry: Registry, seconds: float) -> bool:
    stage = registry.get(artifact.spec.stage)
    is_current = stage is not None and stage.version == artifact.spec.stage_version and stage.job is None
    return is_current and artifact.manifest.resources.wall_seconds <= seconds


def _difference_now(artifact: Artifact, registry: Registry) -> str:
    stage = registry[artifact.spec.stage]
    with tempfile.TemporaryDirectory(prefix="marin-scout-") as scratch:
        rebuilt = remake(artifact, stage, stage_code(stage.module), Store(f"{scratch}/store"))
        return difference(artifact.manifest, rebuilt, facts=True)


def _data_folders(store: Store) -> dict[str, int]:
    """Address of each attempt's data folder -> its bytes, without what the trash of a purge can restore.

    Names that start with a dot do not belong to artifacts.
    """
    sizes: dict[str, int] = {}
    in_trash = set()
    for top in store.storage.folders(""):
        if top.startswith("."):
            continue
        for path, size in store.storage.sizes(top).items():
            parts = f"{top}/{path}".split("/")
            if parts[-2].startswith(f"{MARK}{DATA}"):
                in_trash.add("/".join((*parts[:-2], parts[-2].removeprefix(MARK))))
            at = next((index for index, part in enumerate(parts[:-1]) if part.startswith(DATA)), None)
            if at is not None:
                place = "/".join(parts[: at + 1])
                sizes[place] = sizes.get(place, 0) + size
    return {place: size for place, size in sizes.items() if place not in in_trash}


def _is_used(store: Store, address: str, folder: str) -> bool:
    """Whether the manifest at an address names a data folder. A manifest that was deleted meanwhile names none."""
    where = f"{address}/{MANIFEST_NAME}"
    text = store.storage.read_text(where)
    return text is not None and from_json(text, store.storage.uri(where)).data_folder == folder
