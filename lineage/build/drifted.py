"""Which artifacts have drifted: made by today's stage and version, by code or packages that have changed since."""

import logging
from collections.abc import Sequence

from lineage.artifact.store import Artifact, Store
from lineage.build.reproduce import Registry
from lineage.trust.evidence import Drift, drift_of
from lineage.trust.fingerprint import stage_code

log = logging.getLogger(__name__)


def newest(stores: Sequence[Store]) -> list[Artifact]:
    """Return the newest artifact of every key and partition in every store, the oldest of them first."""
    artifacts: list[Artifact] = []
    for store in stores:
        by_name: dict[str, Artifact] = {}
        for artifact in sorted(store.artifacts(), key=lambda a: a.manifest.created):
            by_name.pop(artifact.name, None)
            by_name[artifact.name] = artifact
        artifacts += by_name.values()
    return artifacts


def drifted_artifacts(artifacts: Sequence[Artifact], registry: Registry) -> list[tuple[Artifact, Drift]]:
    """Return those of today's stages and versions whose code or packages have changed since."""
    drifted = []
    for artifact in artifacts:
        stage = registry.get(artifact.spec.stage)
        if stage is None or stage.version != artifact.spec.stage_version:
            log.info("%s: left out, made by a stage or version that is not this checkout's", artifact.name)
            continue
        drift = drift_of(artifact, stage_code(stage.module))
        if drift is not None:
            drifted.append((artifact, drift))
    return drifted
