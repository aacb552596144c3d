"""Delete an artifact, and say so in the commit log."""

from lineage.artifact.store import Artifact
from lineage.commit_log.entries import announce_deletion


def delete(artifact: Artifact) -> None:
    """Delete an artifact, its manifest before its data. The entry of the log comes first, so no deletion is missed."""
    announce_deletion(artifact.store.storage, artifact.spec.address, artifact.manifest.data_folder)
    artifact.store.delete(artifact)
