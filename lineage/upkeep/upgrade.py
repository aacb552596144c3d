"""Apply the plan of an upgrade. A process that is killed at any point loses nothing; the next run finishes the work.

1. Every manifest that changes is written in its new form, inputs before what was made from them. An artifact whose key or
   inputs change has a new identity, so it gets a new address: its files are copied there and the old address stays.
2. Old addresses are removed, descendants first. Every replaced manifest is kept below `.work/upgraded/`.
3. Verdicts beside manifests move into the verdict log (`lineage.upkeep.old_verdicts`).

Data files and data versions never change. At any moment each artifact is whole under its old address, its new one, or both.
No other process may write to the store meanwhile.
"""

from collections.abc import Iterator

from lineage.artifact.manifest import MANIFEST_NAME, sound_manifest
from lineage.artifact.store import Artifact, Store
from lineage.commit_log.entries import announce, announce_deletion
from lineage.signing.judge import Judge
from lineage.signing.policy import policy_from
from lineage.signing.sign import sign_manifest
from lineage.storage.digests import text_digest
from lineage.upkeep.old_verdicts import move_to_log, old_verdicts
from lineage.upkeep.upgrade_plan import Change, Plan, Rewrite, verdict_change

KEPT_FOLDER = ".work/upgraded"
"""Below the root: manifests and records as they were before an upgrade. Nothing reads them."""


def apply_upgrade(store: Store, plan: Plan) -> Iterator[Change]:
    """Do what a plan lists, and yield each change once it is done.

    Raises: ValueError naming an artifact without a seal whose files are not those of its manifest, or one whose signature
    the policy does not accept: what is rewritten is signed again, so a forged manifest must not pass.
    """
    judge = Judge(policy_from())
    for rewrite in plan.rewrites:
        _check_signature(store, rewrite, judge)
        if rewrite.is_unsealed:
            _artifact(store, rewrite).verify()
        if rewrite.moves and not rewrite.exists:
            _copy(store, rewrite)
        elif not rewrite.moves:
            _keep(store, f"{rewrite.source}/{MANIFEST_NAME}", rewrite.before)
            _sign(store, rewrite)
            store.storage.replace(f"{rewrite.source}/{MANIFEST_NAME}", rewrite.after.encode())
        yield rewrite.change
    for rewrite in reversed(plan.rewrites):
        if rewrite.moves:
            _keep(store, f"{rewrite.source}/{MANIFEST_NAME}", rewrite.before)
            announce_deletion(store.storage, rewrite.source, text_digest(rewrite.before))
            store.storage.delete(f"{rewrite.source}/{MANIFEST_NAME}")
            store.storage.delete(rewrite.source)
    for address in plan.leftovers:
        store.storage.delete(address)
    for old in list(old_verdicts(store)):
        _keep(store, old.where, old.text)
        move_to_log(old)
        yield verdict_change(old.where)


def _artifact(store: Store, rewrite: Rewrite) -> Artifact:
    return Artifact(store, sound_manifest(rewrite.before, rewrite.source, rewrite.source))


def _copy(store: Store, rewrite: Rewrite) -> None:
    """Copy the data and the records of an artifact to its new address, then write its manifest there.

    Raises: RuntimeError if the copy is not whole.
    """
    manifest = _artifact(store, rewrite).manifest
    data = f"{manifest.data_folder}/"
    wanted = {f"{data}{entry.path}": entry.bytes for entry in manifest.files}
    present = store.storage.sizes(rewrite.source)
    beside = {path for path in present if not path.startswith("data-") and path != MANIFEST_NAME}
    names = sorted(wanted.keys() | beside)
    store.storage.copy({f"{rewrite.source}/{name}": f"{rewrite.target}/{name}" for name in names})
    copied = store.storage.sizes(rewrite.target)
    if lacking := sorted(name for name, size in wanted.items() if copied.get(name) != size):
        raise RuntimeError(f"{manifest.spec.name}: {len(lacking)} files were not copied to {rewrite.target}: {lacking[:3]}")
    _sign(store, rewrite)
    store.storage.create(f"{rewrite.target}/{MANIFEST_NAME}", rewrite.after)


def _check_signature(store: Store, rewrite: Rewrite, judge: Judge) -> None:
    problem = judge.file(store.storage, f"{rewrite.source}/{MANIFEST_NAME}", rewrite.before, "make")
    if problem is not None:
        raise ValueError(f"{rewrite.source}: {problem.kind}: {problem.detail}; see docs/design/provenance.md")


def _sign(store: Store, rewrite: Rewrite) -> None:
    """Write the signature and the commit log's entry of a manifest that is about to be written."""
    manifest = sound_manifest(rewrite.after, rewrite.target, rewrite.target)
    sign_manifest(store.storage, manifest, rewrite.after)
    announce(store.storage, manifest, rewrite.after, replaces=not rewrite.moves)


def _keep(store: Store, where: str, text: str) -> None:
    """Keep a copy of a text that will be replaced; nothing happens if it is kept already."""
    folder, _, name = where.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    store.storage.create(f"{KEPT_FOLDER}/{folder}/{stem}.{text_digest(text)[:12]}.{suffix}", text)
