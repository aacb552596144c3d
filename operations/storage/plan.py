"""The plan of a purge: what is deleted, why, its bytes and dollars, and what protects everything that is kept.

A plan is a file that is named by its digest. A person approves that digest. A plan is refused if it was edited, is older than a
day, or no longer fits the store.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.config import from_jsonable
from lineage.strangers import json_object, naming
from operations.ledger.prices import EXACT, Price
from operations.storage.needs import needs, rollouts_in
from operations.storage.protect import protected, read_all

PLANS = ".operations/purges"
FORMAT = "purge_plan/1"
MAX_AGE = datetime.timedelta(days=1)
YOUNG_DAYS = 7.0
GIB = Decimal(2**30)


class RefusedPlanError(ValueError):
    """A plan that must not be carried out: edited, old, not approved, or the store has changed."""


@dataclass(frozen=True)
class Goes:
    """An artifact that a plan deletes. `manifest` is the sha256 of its manifest's text."""

    address: str
    name: str
    owner: str
    created: str
    bytes: int
    manifest: str
    why: str


@dataclass(frozen=True)
class Plan:
    """`goes` is in the order of the purge: an artifact before what it was made from. `kept`: address -> why."""

    made: str
    under: str
    young_days: float
    goes: tuple[Goes, ...]
    kept: Mapping[str, str]
    bytes: int
    dollars_a_month: str
    """Decimal text; empty if the price of the storage is not known."""


def make_plan(
    store: Store,
    declared: Mapping[str, str],
    price: Price | None,
    now: datetime.datetime,
    *,
    under: str = "",
    young_days: float = YOUNG_DAYS,
) -> Plan:
    """Plan the purge of all artifacts that nothing protects, or only of those below a key prefix.

    Raises: ValueError naming a manifest or a pin that cannot be read.
    """
    artifacts = read_all(store)
    kept = protected(artifacts, store, declared, now, young_days)
    for address, artifact in artifacts.items():
        if address not in kept and under and not _is_under(artifact, under):
            kept |= {address: f"not below {under}"}
    kept |= _needed(artifacts, kept)
    order = _children_first({address: a for address, a in artifacts.items() if address not in kept})
    goes = tuple(_goes(store, artifacts[address]) for address in order)
    total = sum(each.bytes for each in goes)
    dollars = "" if price is None else f"{EXACT.multiply(EXACT.divide(Decimal(total), GIB), price.dollars):.6f}"
    return Plan(now.isoformat(timespec="seconds"), under, young_days, goes, dict(sorted(kept.items())), total, dollars)


def _needed(artifacts: Mapping[str, Artifact], kept: Mapping[str, str]) -> dict[str, str]:
    """Inputs of what is kept, because a kept artifact must not lose an input."""
    needed: dict[str, str] = {}
    pending, rollouts = list(kept), rollouts_in(each.manifest for each in artifacts.values())
    while pending:
        for address in needs(artifacts[pending.pop()].manifest, rollouts):
            if address in artifacts and address not in kept and address not in needed:
                needed[address] = "an input of what is kept"
                pending.append(address)
    return needed


def _is_under(artifact: Artifact, prefix: str) -> bool:
    return f"{artifact.spec.address}/".startswith(f"{prefix.rstrip('/')}/")


def _children_first(goes: Mapping[str, Artifact]) -> list[str]:
    order: dict[str, None] = {}
    rollouts = rollouts_in(each.manifest for each in goes.values())
    for start in sorted(goes):
        pending = [(start, False)]
        while pending:
            address, parents_done = pending.pop()
            if parents_done:
                order[address] = None
            elif address not in order:
                pending.append((address, True))
                needed = needs(goes[address].manifest, rollouts)
                pending += [(each, False) for each in needed if each in goes and each not in order]
    return list(reversed(order))


def _goes(store: Store, artifact: Artifact) -> Goes:
    manifest = artifact.manifest
    return Goes(
        address=artifact.spec.address,
        name=artifact.name,
        owner=manifest.made_by.user,
        created=manifest.created,
        bytes=sum(entry.bytes for entry in manifest.files),
        manifest=text_digest(store.storage.read_text(f"{artifact.spec.address}/{MANIFEST_NAME}") or ""),
        why="nothing that is declared, published, forecast, pinned, young or running was made from it",
    )


def text_digest(text: str) -> str:
    """Return the sha256 of a text, 64 hex characters."""
    return hashlib.sha256(text.encode()).hexdigest()


def save_plan(store: Store, plan: Plan) -> str:
    """Write a plan and return its digest, which a person approves."""
    text = json.dumps({"format": FORMAT, **asdict(plan)}, indent=1, sort_keys=True, ensure_ascii=False)
    digest = text_digest(text)
    store.storage.create(f"{PLANS}/{digest}/plan.json", text)
    return digest


def read_plan(store: Store, digest: str) -> Plan:
    """Read a plan. Raises: RefusedPlanError if there is none or its text has another digest."""
    where = f"{PLANS}/{digest}/plan.json"
    text = store.storage.read_text(where)
    if text is None:
        raise RefusedPlanError(f"there is no plan {digest} in {store.root}; `./marin purge plan` makes one")
    if text_digest(text) != digest:
        raise RefusedPlanError(f"{store.storage.uri(where)} was edited: its digest is {text_digest(text)}; make a new plan")
    with naming(where):
        record = json_object(text, where)
        record.pop("format")
        return from_jsonable(Plan, record, where)


def approve(store: Store, digest: str, who: str, now: datetime.datetime) -> None:
    """Record that a person approves a plan. Raises: RefusedPlanError for a plan that does not exist or was edited."""
    read_plan(store, digest)
    if not who.strip():
        raise RefusedPlanError(f"who approves plan {digest} is {who!r}; a person is needed")
    record = {"plan": digest, "who": who, "when": now.isoformat(timespec="seconds")}
    store.storage.create(f"{PLANS}/{digest}/approval.json", json.dumps(record))


def approval(store: Store, digest: str) -> str | None:
    """Return who approved a plan, or None. Raises: RefusedPlanError for an approval of another plan."""
    text = store.storage.read_text(f"{PLANS}/{digest}/approval.json")
    if text is None:
        return None
    record = json_object(text, f"{PLANS}/{digest}/approval.json")
    if record.get("plan") != digest or not str(record.get("who", "")).strip():
        raise RefusedPlanError(f"the approval beside plan {digest} is of {record.get('plan')!r} by {record.get('who')!r}")
    return str(record["who"])
