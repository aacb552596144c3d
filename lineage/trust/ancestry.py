"""The ancestors of some inputs: what the launch gate looks at.

Identity goes by data version: a stage that is made again with equal bytes leaves everything below it as it is. So artifacts of
one key, partition and data version are one *class*: a verdict applies to every member, and any member can replace one that
is gone. What lies above a member is its own: equal bytes may have been made from other inputs (an empty table of duplicates is
equal for a clean and a leaked source), so the walk follows the inputs of the members that are used and of no other.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, UnsoundManifestError, sound_manifest
from lineage.artifact.spec import InputRef, partition_address
from lineage.artifact.store import Store
from lineage.signing.judge import Judge
from lineage.storage.files import Listed
from lineage.storage.root import READERS
from lineage.trust.snapshot import Reader, Snapshot, snapshot_of

type Problem = Literal[
    "missing", "stale", "edited", "moved", "swapped", "damaged", "incomplete", "failed", "quarantined", "unaudited", "unjudged",
    "unsigned", "forged", "rolled_back",
]  # fmt: skip


@dataclass(frozen=True)
class Unsound:
    """Why the manifest at a ref's address cannot be used."""

    problem: Problem
    detail: str


type RefKey = tuple[str, str]
"""Address and data version of a ref: what one descendant read, and where."""


@dataclass(frozen=True)
class Ancestor:
    """One ancestor as it was found."""

    ref: InputRef
    """How a descendant refers to it."""
    chosen: Manifest | Unsound
    """What lies at the ref's address, else an artifact of equal bytes, else what is wrong at the address."""
    listed: Mapping[str, Listed]
    """Every file of the partition, by address."""

    @property
    def ref_key(self) -> RefKey:
        return self.ref.address, self.ref.data_version

    @property
    def stage(self) -> str:
        """The stage that made it; empty where nothing usable was found."""
        return self.chosen.spec.stage if isinstance(self.chosen, Manifest) else ""

    @property
    def inputs(self) -> tuple[InputRef, ...]:
        """The inputs of the chosen member: the walk follows these, not those of an equal sibling."""
        return self.chosen.spec.inputs if isinstance(self.chosen, Manifest) else ()


def ancestry(store: Store, refs: Sequence[InputRef], judge: Judge) -> list[Ancestor]:
    """Return some inputs and all their ancestors, nearest first, each once.

    `judge` knows who may make what.
    """
    visited: dict[RefKey, Ancestor] = {}
    level, snapshot = list(refs), snapshot_of(store)
    with ThreadPoolExecutor(READERS, thread_name_prefix="ancestors") as pool:
        snapshot.list_remembered(refs, pool)
        while level:
            fresh = {(ref.address, ref.data_version): ref for ref in level if (ref.address, ref.data_version) not in visited}
            snapshot.list_partitions(fresh.values(), pool)
            ancestors = list(pool.map(partial(_look, snapshot, judge), fresh.values()))
            visited.update({one.ref_key: one for one in ancestors})
            level = [ref for one in ancestors for ref in one.inputs]
    snapshot.remember(refs, [one.ref for one in visited.values()])
    return list(visited.values())


def _look(snapshot: Snapshot, judge: Judge, ref: InputRef) -> Ancestor:
    reader = snapshot.of(partition_address(ref.key, ref.partition))
    chosen = _manifest(reader, ref.address, judge)
    if isinstance(chosen, Manifest) and f"{ref.address}/{MANIFEST_NAME}" not in reader.listed:
        chosen = Unsound("moved", f"{ref.address} is not in a listing of the root: it is a link; put the folder there")
    elif isinstance(chosen, Manifest) and chosen.data_version != ref.data_version:
        chosen = Unsound("swapped", f"was read as data version {ref.data_version}, there is {chosen.data_version}")
    if isinstance(chosen, Unsound) and chosen.problem in ("missing", "swapped"):
        chosen = _equal(reader, judge, ref) or chosen
    return Ancestor(ref, chosen, reader.listed)


def _equal(reader: Reader, judge: Judge, ref: InputRef) -> Manifest | None:
    """Return the first manifest of the partition, by address, that has the ref's data version.

    A manifest that cannot be read, or that the judge refuses, does not count.
    """
    for name in sorted(reader.listed):
        version, _, file = name.removeprefix(f"{reader.place}/").partition("/")
        if file == MANIFEST_NAME:
            manifest = _manifest(reader, f"{reader.place}/{version}", judge)
            if isinstance(manifest, Manifest) and manifest.data_version == ref.data_version:
                return manifest
    return None


def _manifest(reader: Reader, address: str, judge: Judge) -> Manifest | Unsound:
    where = f"{address}/{MANIFEST_NAME}"
    uri = reader.snapshot.storage.uri(where)
    try:
        data = reader.read_bytes(where)
        if data is None:
            return Unsound("missing", f"there is no {where} in {reader.snapshot.storage.root}")
        text = data.decode()
        manifest = sound_manifest(text, address, uri)
    except UnsoundManifestError as error:
        return Unsound(error.kind, str(error))
    except UnicodeDecodeError as error:
        return Unsound("edited", f"{uri} is no UTF-8 text: {error}")
    except ValueError as error:
        return Unsound("edited", str(error))
    problem = judge.manifest(reader, manifest, text)
    return manifest if problem is None else Unsound(problem.kind, problem.detail)
