"""Which of several artifacts is the newest, when their writers' clocks may be wrong.

`created` is the clock of the machine that made an artifact, and the writer of a manifest chooses it. The storage has its own
clock. If both clocks name the same artifact, it is the newest. If they differ, the order is unknown: an error says so.
"""

from collections.abc import Sequence

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact


class UnclearOrderError(ValueError):
    """The clocks of writers and of the storage disagree on which artifact is the newest."""


def newest(candidates: Sequence[Artifact], what: str) -> Artifact:
    """Return the newest of some artifacts, of one or several stores; `what` names them in errors.

    A storage that does not keep when it was written to leaves the writers' clocks to decide.
    Raises: UnclearOrderError with two addresses; ValueError if there are none.
    """
    if not candidates:
        raise ValueError(f"there is no {what}")
    by_writer = max(candidates, key=lambda artifact: (artifact.manifest.created, artifact.spec.version))
    if len(candidates) == 1:
        return by_writer
    written = [artifact.store.storage.files.written_ns(f"{artifact.spec.address}/{MANIFEST_NAME}") for artifact in candidates]
    known = [ns for ns in written if ns is not None]
    if len(known) < len(written):
        return by_writer
    last = candidates[known.index(max(known))]
    if last.manifest.created < by_writer.manifest.created:
        raise UnclearOrderError(
            f"it is unclear which {what} is the newest: {by_writer.spec.address} says that it was made at "
            f"{by_writer.manifest.created}, and {last.spec.address} ({last.manifest.created}) was written to "
            f"{last.store.root} later; a clock was wrong, or manifests were copied: give an address"
        )
    return by_writer
