"""The ancestors of some inputs, by bytes: what the launch gate looks at.

Identity goes by data version: a stage that is made again with equal bytes leaves everything below it as it is. So trust goes by
bytes as well. Artifacts of one key, partition and data version are one *class* (`Subject`); its ancestors are those of every
member, and any member can stand in for one that is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, UnsoundManifestError, sound_manifest
from lineage.artifact.spec import InputRef, partition_address
from lineage.artifact.store import Store
from lineage.signing.judge import Judge
from lineage.storage.files import Listed
from lineage.trust.verdict_log import Subject
from lineage.trust.verdicts import subject_of_ref

type Problem = Literal[
    "missing", "stale", "edited", "moved", "swapped", "damaged", "incomplete", "failed", "quarantined", "unaudited", "unjudged",
    "unsigned", "forged", "rolled_back",
]  # fmt: skip

READERS = 16
"""Classes that are looked at at once; each takes a listing and a read for each version of the partition."""


@dataclass(frozen=True)
class Unsound:
    """Why the manifest at a ref's address cannot be used."""

    problem: Problem
    detail: str


@dataclass(frozen=True)
class Seen:
    """One class as it was found."""

    ref: InputRef
    """How a descendant refers to it."""
    chosen: Manifest | Unsound
    """The member at the ref's address, else one of equal bytes, else what is wrong with the one at the address."""
    members: Mapping[str, Manifest]
    """Sound manifests of the class, by address."""
    listed: Mapping[str, Listed]
    """Every file of the partition, by address."""
    through: str = ""
    """If not empty: it is above this artifact, whose bytes are equal to those of a nearer ancestor, and above no other."""

    @property
    def subject(self) -> Subject:
        return subject_of_ref(self.ref)

    def inputs(self) -> Iterator[tuple[InputRef, str]]:
        """Yield the inputs of every member, those of the chosen one first, with what they are reached through."""
        own = self.chosen.spec.address if isinstance(self.chosen, Manifest) else ""
        for address in sorted(self.members, key=lambda each: (each != own, each)):
            for ref in self.members[address].spec.inputs:
                yield ref, self.through or ("" if address == own else address)


def ancestry(store: Store, refs: Sequence[InputRef], judge: Judge) -> list[Seen]:
    """Return the classes of some inputs and of all their ancestors, nearest first, each once.

    `judge` knows who may make what.
    """
    found: dict[Subject, Seen] = {}
    level = [(ref, "") for ref in refs]
    with ThreadPoolExecutor(READERS, thread_name_prefix="ancestors") as pool:
        while level:
            fresh: dict[Subject, tuple[InputRef, str]] = {}
            for ref, through in sorted(level, key=lambda pair: bool(pair[1])):  # stable: direct ancestors first
                if subject_of_ref(ref) not in found:
                    fresh.setdefault(subject_of_ref(ref), (ref, through))
            seen = list(pool.map(partial(_look, store, judge), fresh.values()))
            found.update({one.subject: one for one in seen})
            level = [pair for one in seen for pair in one.inputs()]
    return list(found.values())


def _look(store: Store, judge: Judge, asked: tuple[InputRef, str]) -> Seen:
    ref, through = asked
    place = partition_address(ref.key, ref.partition)
    listed = {f"{place}/{name}": facts for name, facts in store.storage.listed(place).items()}
    versions = [name.rpartition("/")[0] for name in listed if name.count("/") == place.count("/") + 2]
    versions = [address for address in versions if f"{address}/{MANIFEST_NAME}" in listed]
    own = _manifest(store, ref.address, judge)
    members = {}
    for address in versions:
        manifest = own if address == ref.address else _manifest(store, address, judge)
        if isinstance(manifest, Manifest) and manifest.data_version == ref.data_version:
            members[address] = manifest
    chosen = own
    if isinstance(own, Manifest) and ref.address not in versions:
        chosen = Unsound("moved", f"{ref.address} is not in a listing of the root: it is a link; put the folder there")
    elif isinstance(own, Manifest) and ref.address not in members:
        chosen = Unsound("swapped", f"was read as data version {ref.data_version}, there is {own.data_version}")
    if isinstance(chosen, Unsound) and chosen.problem in ("missing", "swapped") and members:
        chosen = members[min(members)]
    return Seen(ref, chosen, members, listed, through)


def _manifest(store: Store, address: str, judge: Judge) -> Manifest | Unsound:
    where = f"{address}/{MANIFEST_NAME}"
    try:
        text = store.storage.read_text(where)
        if text is None:
            return Unsound("missing", f"there is no {where} in {store.root}")
        manifest = sound_manifest(text, address, store.storage.uri(where))
    except UnsoundManifestError as error:
        return Unsound(error.kind, str(error))
    except ValueError as error:
        return Unsound("edited", str(error))
    problem = judge.manifest(store.storage, manifest, text)
    return manifest if problem is None else Unsound(problem.kind, problem.detail)
