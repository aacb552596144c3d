"""Carry out a purge: soft delete, restore, settle.

Soft delete moves a manifest to the trash. So the artifact does not exist, and its data stays. Within SOFT_DAYS the manifest can
be put back, to the byte. Then `settle` deletes the data. Files and rules that are not in the plan are not touched.
"""

import datetime
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from lineage.artifact.manifest import MANIFEST_NAME, Manifest, from_json
from lineage.artifact.spec import partition_address
from lineage.artifact.store import Artifact, Store
from lineage.artifact.trash import in_trash
from lineage.commit_log.entries import announce_deletion, announce_return
from lineage.jobs.claims import MARKS
from lineage.signing.sign import envelope_address
from operations.storage.needs import Bytes, learned_from, needs, rollouts_in
from operations.storage.plan import MAX_AGE, Goes, RefusedPlanError, approval, read_plan, text_digest
from operations.storage.protect import claims, protected, read_all

TRASH = ".trash"
TRASHED = "trashed.json"
"""The name of a manifest in the trash. It is not `manifest.json`, so no listing counts it as an artifact."""
SOFT_DAYS = 3


@dataclass(frozen=True)
class Purged:
    """What a purge did: addresses it deleted, and address -> why of those that it kept although the plan has them."""

    taken: tuple[str, ...]
    left: Mapping[str, str]


def purge(store: Store, digest: str, declared: Mapping[str, str], now: datetime.datetime) -> Purged:
    """Soft delete what an approved plan names. A purge that was killed is continued by the same call.

    Raises: RefusedPlanError for a plan that is edited, not approved, older than a day, or does not fit the store: an artifact
    of it is protected now, was made again, or is an input of an artifact that the plan does not know.
    """
    plan = read_plan(store, digest)
    if approval(store, digest) is None:
        raise RefusedPlanError(f"plan {digest} is not approved; a person runs `./marin purge approve {digest}`")
    planned = datetime.datetime.fromisoformat(plan.made)
    if not datetime.timedelta(0) <= now - planned <= MAX_AGE:
        raise RefusedPlanError(f"plan {digest} is of {plan.made} and it is {now.isoformat(timespec='seconds')}; make a new one")
    mark = f"{MARKS}/{digest}.json"
    store.storage.replace(mark, json.dumps([each.address for each in plan.goes]).encode())  # before claims are read
    try:
        claimed = claims(store, now)
        artifacts = read_all(store)
        left = _left(artifacts, plan.goes, claimed)
        _refuse_stale(store, artifacts, digest, declared, now, left)
        taken = []
        for each in plan.goes:
            if each.address not in left:
                _trash(store, digest, each)
                taken.append(each.address)
        when = {"when": now.isoformat(timespec="seconds"), "taken": taken}
        store.storage.create(f"{TRASH}/{digest}/purge.json", json.dumps(when))
    finally:
        store.storage.delete(mark)
    return Purged(tuple(taken), left)


def _left(artifacts: Mapping[str, Artifact], goes: tuple[Goes, ...], claimed: Mapping[str, str]) -> dict[str, str]:
    """What running attempts have claimed meanwhile, and its ancestors."""
    planned = {each.address for each in goes}
    left = {address: why for address, why in claimed.items() if address in planned}
    pending, rollouts = list(left), rollouts_in(each.manifest for each in artifacts.values())
    while pending:
        current = pending.pop()
        for address in needs(artifacts[current].manifest, rollouts) if current in artifacts else ():
            if address in planned and address not in left:
                left[address] = left[current]
                pending.append(address)
    return left


def _refuse_stale(
    store: Store,
    artifacts: Mapping[str, Artifact],
    digest: str,
    declared: Mapping[str, str],
    now: datetime.datetime,
    left: Mapping[str, str],
) -> None:
    plan = read_plan(store, digest)
    goes = {each.address for each in plan.goes}
    kept = protected(artifacts, store, declared, now, plan.young_days)
    for address in sorted(goes - left.keys()):
        if address in kept:
            raise RefusedPlanError(f"plan {digest} takes {address}, which is protected now ({kept[address]}); make a new plan")
    rollouts = rollouts_in(each.manifest for each in artifacts.values())
    for artifact in artifacts.values():
        if artifact.spec.address not in goes:
            for address in needs(artifact.manifest, rollouts):
                if address in goes and address not in left:
                    raise RefusedPlanError(
                        f"plan {digest} takes {address}, an input of {artifact.spec.address}, which it does not know; "
                        "make a new plan"
                    )
    for each in plan.goes:
        text = store.storage.read_text(f"{each.address}/{MANIFEST_NAME}")
        if text is not None and text_digest(text) != each.manifest:
            raise RefusedPlanError(f"plan {digest} takes {each.address}, whose manifest has changed; make a new plan")


def _trash(store: Store, digest: str, each: Goes) -> None:
    """Mark the data, copy the manifest to the trash, then delete it. A purge that is killed in between has lost nothing.

    The mark keeps the data if the artifact is made again: a commit deletes other data folders of its address.
    """
    text = store.storage.read_text(f"{each.address}/{MANIFEST_NAME}")
    if text is not None:
        store.storage.create(_mark(each.address, from_json(text, each.address).data_folder, digest), "{}")
        store.storage.create(f"{TRASH}/{digest}/{each.address}/{TRASHED}", text)
        announce_deletion(store.storage, each.address, uuid.uuid4().hex)
        store.storage.delete(f"{each.address}/{MANIFEST_NAME}")


def _mark(address: str, data_folder: str, digest: str) -> str:
    return f"{address}/{in_trash(data_folder)}/{digest}.json"


def trashed(store: Store, digest: str) -> list[str]:
    """Return addresses that a plan took and that can be restored."""
    return sorted(n.removesuffix(f"/{TRASHED}") for n in store.storage.sizes(f"{TRASH}/{digest}") if n.endswith(f"/{TRASHED}"))


def restore(store: Store, digest: str, address: str) -> list[str]:
    """Restore an artifact with every ancestor that the same plan took. Returns the restored addresses, ancestors first.

    What was made again meanwhile stays as it is, and its older version stays in the trash. Raises: ValueError if the artifact
    is not in the trash, or if its data was deleted.
    """
    wanted: dict[str, Manifest] = {}
    texts: dict[str, str] = {}
    pending = [address]
    while pending:
        current = pending.pop()
        text = store.storage.read_text(f"{TRASH}/{digest}/{current}/{TRASHED}")
        if text is None and current == address:
            raise ValueError(f"{address} is not in the trash of plan {digest}; it has {len(trashed(store, digest))} artifacts")
        if text is not None:
            wanted.pop(current, None)
            wanted[current], texts[current] = from_json(text, current), text
            pending += needs(wanted[current], _trashed_rollouts(store, digest, wanted[current]))
    for current, manifest in wanted.items():
        _check_data(store, current, manifest)
    restored = []
    for current, manifest in reversed(wanted.items()):
        announce_return(store.storage, manifest, uuid.uuid4().hex)
        if store.storage.create(f"{current}/{MANIFEST_NAME}", texts[current]):
            store.storage.delete(f"{TRASH}/{digest}/{current}/{TRASHED}")
            store.storage.delete(_mark(current, manifest.data_folder, digest))
            restored.append(current)
    return restored


def _trashed_rollouts(store: Store, digest: str, checkpoint: Manifest) -> dict[Bytes, list[str]]:
    """Return the rollouts in the trash that a checkpoint learned from, by what it lists them by."""
    listed = learned_from(checkpoint)
    if not listed:
        return {}
    folders = tuple(f"{partition_address(key, partition)}/" for key, partition, _ in listed)
    return rollouts_in(_in_trash(store, digest, each) for each in trashed(store, digest) if each.startswith(folders))


def _in_trash(store: Store, digest: str, address: str) -> Manifest:
    where = f"{TRASH}/{digest}/{address}/{TRASHED}"
    return from_json(store.storage.read_text(where) or "", store.storage.uri(where))


def _check_data(store: Store, address: str, manifest: Manifest) -> None:
    """Raises: ValueError if a file of a trashed artifact is not there."""
    there = store.storage.sizes(f"{address}/{manifest.data_folder}")
    lost = [entry.path for entry in manifest.files if entry.path not in there]
    if lost and store.open(address) is None:
        raise ValueError(f"{address} cannot be restored: {lost[0]} and {len(lost) - 1} other files of it were deleted")


def settle(store: Store, digest: str, now: datetime.datetime) -> list[str]:
    """Delete the data of what a plan took at least SOFT_DAYS ago. If something was made from an artifact since, it is restored.

    Returns the addresses whose data is deleted. Raises: RefusedPlanError before that day.
    """
    record = json.loads(store.storage.read_text(f"{TRASH}/{digest}/purge.json") or "null")
    if record is None:
        raise RefusedPlanError(f"plan {digest} has taken nothing; `./marin purge run {digest}` comes first")
    since = datetime.datetime.fromisoformat(record["when"])
    if now - since < datetime.timedelta(days=SOFT_DAYS):
        raise RefusedPlanError(
            f"plan {digest} took its artifacts at {record['when']}; they can be restored for {SOFT_DAYS} days"
        )
    in_trash = {address: _in_trash(store, digest, address) for address in trashed(store, digest)}
    rollouts = rollouts_in(in_trash.values())
    needed = {address for artifact in read_all(store).values() for address in needs(artifact.manifest, rollouts)}
    for address in in_trash:
        if address in needed and store.open(address) is None:  # a restore before may have brought it back
            restore(store, digest, address)
    gone = []
    for address in trashed(store, digest):
        where = f"{TRASH}/{digest}/{address}/{TRASHED}"
        text = store.storage.read_text(where)
        if text is None:
            continue
        data = from_json(text, where).data_folder
        present = store.open(address)
        if present is None or present.manifest.data_folder != data:
            store.storage.delete(f"{address}/{data}")
            store.storage.delete(envelope_address(f"{address}/{MANIFEST_NAME}", text))
        store.storage.delete(_mark(address, data, digest))
        store.storage.delete(where)
        gone.append(address)
    return gone
