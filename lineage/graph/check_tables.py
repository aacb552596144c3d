"""The consistency check of lineage: compare manifests with the saved tables and with each other.

Every manifest is read again; nothing is repaired. Each finding names the artifact, the input if there is one, and a remedy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, UnsoundManifestError, sound_manifest
from lineage.artifact.store import Store
from lineage.artifact.verified import changed_on_bucket
from lineage.graph.edges import LineageTables, edge_rows, read_tables
from lineage.graph.scan import unlogged
from lineage.storage.digests import text_digest
from lineage.storage.files import Listed
from lineage.storage.root import WORKING

type Kind = Literal[
    "missing_edge",
    "forged_edge",
    "missing_artifact",
    "forged_artifact",
    "edited",
    "moved",
    "damaged",
    "lost_input",
    "swapped_input",
    "unlogged",
]
REMEDIES: dict[Kind, str] = {
    "missing_edge": "the manifest names this input, the table does not: rebuild the tables (`./marin lineage --rebuild`)",
    "forged_edge": "the table names this input, the manifest does not: rebuild the tables (`./marin lineage --rebuild`)",
    "missing_artifact": "committed, but not in the table: any lineage query adds it",
    "forged_artifact": "the table says what no manifest says: rebuild the tables (`./marin lineage --rebuild`)",
    "edited": "the manifest was changed after the commit: delete the artifact and materialize it again",
    "moved": "the manifest belongs to another folder: it was copied or moved by hand; put it back",
    "damaged": "data files are absent or have another size: copy them back, or delete the artifact and materialize it again",
    "lost_input": "its input is gone: it can be used, not walked or reproduced; materialize the input again",
    "swapped_input": "its input now has other bytes than it read: materialize it again",
    "unlogged": "committed, but the commit log lacks it: make the log again (`./marin lineage --rebuild`)",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One disagreement: its kind, the artifact's address, the input's name and address if it is about one, and details."""

    kind: Kind
    artifact: str
    input: str = ""
    parent: str = ""
    detail: str = ""

    def __str__(self) -> str:
        edge = f" input {self.input} <- {self.parent}" if self.input else ""
        return f"{self.kind}: {self.artifact}{edge}{': ' + self.detail if self.detail else ''} ({REMEDIES[self.kind]})"


@dataclass(frozen=True)
class Manifests:
    """All manifests of a store: sound ones by address, the digests of their texts, and findings on the others."""

    sound: Mapping[str, Manifest]
    digests: Mapping[str, str]
    unsound: tuple[Finding, ...]
    damaged: tuple[Finding, ...] = ()
    """Sound manifests whose data files are absent or have another size, by the listing that found the manifests."""


def check_lineage(store: Store) -> list[Finding]:
    """Return every disagreement in address order. Missing tables or a missing log are no finding: queries make them."""
    manifests = every_manifest(store)
    missing = [Finding("unlogged", address) for address in unlogged(store, manifests.sound)]
    return sorted(
        [*check_tables(manifests, read_tables(store)), *missing], key=lambda f: (f.artifact, f.kind, f.input, f.parent)
    )


def check_tables(manifests: Manifests, tables: LineageTables | None) -> list[Finding]:
    """Return the disagreements between manifests and tables, and among manifests, in address order."""
    findings = [*manifests.unsound, *manifests.damaged, *_among_manifests(manifests.sound)]
    if tables is not None:
        broken = {finding.artifact for finding in manifests.unsound}
        findings += _against_tables(manifests.sound, tables, broken)
    return sorted(findings, key=lambda f: (f.artifact, f.kind, f.input, f.parent))


def manifest_digest(store: Store, address: str) -> str:
    """Return the digest of a manifest's text, as in `every_manifest`. Raises: ValueError if there is no manifest."""
    text = store.storage.read_text(f"{address}/{MANIFEST_NAME}")
    if text is None:
        raise ValueError(f"there is no manifest at {store.storage.uri(address)}")
    return text_digest(text)


def every_manifest(store: Store) -> Manifests:
    """Read every manifest below the root, and check that each is consistent, belongs at its address and has its files.

    One listing of the whole root gives manifests and sizes.
    """
    listed = {name: facts for name, facts in store.storage.files.listing("", None).items() if not name.startswith(WORKING)}
    manifests: dict[str, Manifest] = {}
    digests: dict[str, str] = {}
    findings = []
    outermost = _outermost(name.rpartition("/")[0] for name in listed if name.rpartition("/")[2] == MANIFEST_NAME)
    for address in outermost:
        where = f"{address}/{MANIFEST_NAME}"
        try:
            text = store.storage.read_text(where)
        except ValueError as error:
            findings.append(Finding("edited", address, detail=str(error)))
            continue
        if text is None:
            continue
        try:
            manifests[address] = sound_manifest(text, address, where)
            digests[address] = text_digest(text)
        except UnsoundManifestError as error:
            findings.append(Finding(error.kind, address, detail=str(error)))
    damaged = [
        finding for address, manifest in manifests.items() if (finding := _damage(address, manifest, listed)) is not None
    ]
    return Manifests(manifests, digests, tuple(findings), tuple(damaged))


def _outermost(folders: Iterable[str]) -> list[str]:
    """Sorted folders without those below another one: a data file may be called as a manifest is."""
    outermost: list[str] = []
    for folder in sorted(folders, key=lambda name: f"{name}/"):
        if not outermost or not folder.startswith(f"{outermost[-1]}/"):
            outermost.append(folder)
    return outermost


def _damage(address: str, manifest: Manifest, listed: Mapping[str, Listed]) -> Finding | None:
    folder = f"{address}/{manifest.data_folder}"
    wrong = [entry for entry in manifest.files if changed_on_bucket(entry, listed.get(f"{folder}/{entry.path}"))]
    if not wrong:
        return None
    detail = f"{len(wrong)} of {len(manifest.files)} files are not as committed, {wrong[0].path} first"
    return Finding("damaged", address, detail=detail)


def _among_manifests(manifests: Mapping[str, Manifest]) -> list[Finding]:
    findings = []
    for address, manifest in manifests.items():
        for ref in manifest.spec.inputs:
            parent = manifests.get(ref.address)
            if parent is None:
                findings.append(Finding("lost_input", address, ref.name, ref.address))
            elif parent.data_version != ref.data_version:
                detail = f"read {ref.data_version}, there is {parent.data_version}"
                findings.append(Finding("swapped_input", address, ref.name, ref.address, detail))
    return findings


def _against_tables(manifests: Mapping[str, Manifest], tables: LineageTables, broken: set[str]) -> list[Finding]:
    """Compare edges (child, input, parent, parent's data version). Edges of unknown artifacts are part of the artifact's
    finding."""
    in_artifacts = set(tables.artifacts["address"].to_list())
    findings = [Finding("missing_artifact", address) for address in manifests.keys() - in_artifacts]
    findings += [Finding("forged_artifact", address) for address in in_artifacts - manifests.keys() - broken]
    rows = tables.artifacts.select("address", "stage", "stage_version", "data_version").iter_rows()
    for address, *recorded in rows:
        if address in manifests and recorded != _identity(manifests[address]):
            detail = f"the table says {recorded}, the manifest {_identity(manifests[address])}"
            findings.append(Finding("forged_artifact", address, detail=detail))
    wanted = {
        row[:4] for address, manifest in manifests.items() if address in in_artifacts for row in edge_rows(address, manifest)
    }
    in_tables = set(tables.edges.select("child", "input", "parent", "parent_data_version").iter_rows())
    in_tables = {row for row in in_tables if row[0] not in broken and (row[0] in manifests or row[0] not in in_artifacts)}
    findings += [Finding("missing_edge", c, i, p, version) for c, i, p, version in wanted - in_tables]
    return findings + [Finding("forged_edge", c, i, p, version) for c, i, p, version in in_tables - wanted]


def _identity(manifest: Manifest) -> list[str]:
    return [manifest.spec.stage, manifest.spec.stage_version, manifest.data_version]
