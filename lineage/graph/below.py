"""What was made from some bytes, directly or through others, by the commit log: no query here lists the root.

The log gives candidates and each one's manifest confirms it, so a forged row adds nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from lineage.artifact.store import Artifact, Store
from lineage.commit_log.entries import DamagedLogError
from lineage.commit_log.keys import Bytes, bytes_read, data_key, own_bytes, stage_key
from lineage.commit_log.reader import CommitLog
from lineage.graph.edges import LineageTables, tables_of
from lineage.graph.scan import open_log
from lineage.names import check_relative


def children_of(artifact: Artifact) -> list[Artifact]:
    """Return what was made directly from the bytes of an artifact, in address order.

    What read an equal artifact at another address is included: a stage that is made again with equal bytes leaves its children
    as they are. What read other bytes at this address, before it was made again, is not.
    """
    candidates = Candidates(artifact.store, open_log(artifact.store))
    own = own_bytes(artifact.manifest)
    return [child for child in candidates.of([data_key(own)]) if own in set(bytes_read(child.manifest))]


def tables_below(store: Store, origins: Sequence[Artifact]) -> LineageTables:
    """Return the tables of the origins, of what is equal to them, of all that read such bytes, and so on.

    They hold all that `lineage.graph.affected.affected_by` needs to answer for the origins as it does with the whole tables.
    """
    candidates = Candidates(store, open_log(store))
    manifests = {origin.spec.address: origin.manifest for origin in origins}
    done: set[Bytes] = set()
    while pending := {own_bytes(manifest) for manifest in manifests.values()} - done:
        done |= pending
        for artifact in candidates.of([data_key(data) for data in sorted(pending)]):
            if own_bytes(artifact.manifest) in pending or not pending.isdisjoint(bytes_read(artifact.manifest)):
                manifests[artifact.spec.address] = artifact.manifest
    return tables_of([(address, manifest, "") for address, manifest in manifests.items()])


def made_by(store: Store, stage: str, version: str | None = None) -> list[Artifact]:
    """Return every artifact that a version of a stage made, or any version, in address order."""
    candidates = Candidates(store, open_log(store))
    artifacts = candidates.of([stage_key(stage, version)])
    return [each for each in artifacts if each.spec.stage == stage and version in (None, each.spec.stage_version)]


@dataclass
class Candidates:
    """Artifacts that the log names, opened several at once; each manifest is read once."""

    store: Store
    log: CommitLog
    _opened: dict[str, Artifact | None] = field(default_factory=dict)

    def of(self, keys: Collection[int]) -> list[Artifact]:
        """Return the candidates of some keys that are there, in address order.

        Raises: ValueError naming a manifest that was edited or moved.
        """
        by_key = self.log.find(keys)
        addresses = sorted({address for each in by_key.values() for address in each})
        for address in addresses:
            _check_address(address, self.store)
        self._open(address for address in addresses if address not in self._opened)
        return [artifact for address in addresses if (artifact := self._opened[address]) is not None]

    def _open(self, addresses: Iterable[str]) -> None:
        fresh = list(addresses)
        self._opened |= dict(zip(fresh, self.store.storage.read_each(self.store.open, fresh), strict=True))


def _check_address(address: str, store: Store) -> None:
    """Raises: DamagedLogError for an address that would lead outside the root."""
    try:
        check_relative(address, "an address")
    except ValueError as error:
        raise DamagedLogError(f"the commit log of {store.root}", error) from error
