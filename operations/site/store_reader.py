"""Read from the stores all that the site is made from: manifests, costs, verdicts, waivers and incidents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lineage.artifact.manifest import MANIFEST_NAME, UnsoundManifestError, sound_manifest
from lineage.artifact.store import Artifact, Store
from lineage.strangers import naming
from lineage.trust.verdict_log import Fault, Verdict, read_log
from lineage.trust.verdicts import subject_of
from operations.alerts.incidents import FILE as INCIDENTS_FILE
from operations.alerts.incidents import Incident, read_state
from operations.ledger.database import opened, query
from operations.ledger.ledger import Ledger, name_of

type Place = tuple[str, str]
"""A store's name and the address of an artifact in it."""
type Row = Mapping[str, Any]


@dataclass(frozen=True)
class SiteArtifact:
    """An artifact that the site has a page about. `withheld` says why its content is not shown; empty: it is shown."""

    place: Place
    artifact: Artifact
    verdicts: tuple[Verdict, ...]
    withheld: str = ""


@dataclass(frozen=True)
class World:
    """The stores at one moment. `unreadable`: what could not be read -> why. `people`: names that must not be shown."""

    artifacts: Mapping[Place, SiteArtifact]
    children: Mapping[Place, tuple[Place, ...]]
    costs: Mapping[Place, Row]
    verdicts: Sequence[Row]
    waivers: Sequence[Row]
    failures: Sequence[Row]
    incidents: Sequence[Incident]
    unreadable: Mapping[str, str]
    people: frozenset[str]
    campaigns: Mapping[str, Row] | None = None
    """Runs and passes of each campaign, which only Dagster's database has; None without it."""
    by_name: Mapping[tuple[str, str], Place] = field(default_factory=dict)
    """Name and data version -> the newest artifact with both."""

    def parents(self, place: Place) -> list[tuple[str, Place]]:
        """Return the name and place of each input that has a page."""
        refs = self.artifacts[place].artifact.spec.inputs
        return [(ref.name, (place[0], ref.address)) for ref in refs if (place[0], ref.address) in self.artifacts]

    def ancestors(self, place: Place, most: int | None = None) -> list[Place]:
        """Return the ancestors that have pages, nearest first, each once."""
        seen: dict[Place, None] = {place: None}
        pending = [place]
        while pending and (most is None or len(seen) <= most):
            current = pending.pop(0)
            new = [parent for _, parent in self.parents(current) if parent not in seen]
            seen.update(dict.fromkeys(new))
            pending += new
        return list(seen)[1 : None if most is None else most + 1]


def read_world(stores: Sequence[Store], ledger: Ledger, campaigns: Mapping[str, Row] | None = None) -> World:
    """Read the stores. A manifest that is not sound becomes an entry of `unreadable`. The others are still read."""
    artifacts: dict[Place, SiteArtifact] = {}
    unreadable: dict[str, str] = {}
    incidents: list[Incident] = []
    verdicts: list[Row] = []
    read_here: set[str] = set()
    for store in stores:
        of_store, bad = _artifacts(store)
        log = read_log(store)
        name = name_of(store)
        unreadable |= {f"{name}: {what}": why for what, why in bad.items()}
        read_here |= {store.storage.uri(what.removesuffix(f"/{MANIFEST_NAME}")) for what in bad}
        unreadable |= {f"{name}: record {fault.number} of the verdict log": fault.detail for fault in log.all_faults}
        for artifact in of_store:
            place, subject = (name, artifact.spec.address), subject_of(artifact)
            standing = tuple(log.standing(subject))
            artifacts[place] = SiteArtifact(
                place, artifact, standing, _withheld(standing, [f for f in log.faults if f.is_about(subject)])
            )
        for record in log.records:
            about = (_name(record.subject.key, record.subject.partition), record.subject.data_version)
            verdicts.append({"name": about[0], "data_version": about[1], "verdict": record.verdict})
        try:
            incidents += read_state(store).incidents.values()
        except ValueError as error:
            unreadable[f"{name}: {INCIDENTS_FILE}"] = str(error)
    children: dict[Place, list[Place]] = {}
    for place, one in artifacts.items():
        for address in dict.fromkeys(ref.address for ref in one.artifact.spec.inputs):
            children.setdefault((place[0], address), []).append(place)
    newest = sorted(artifacts.values(), key=lambda one: (one.artifact.manifest.created, one.place))
    tables = ledger.tables
    people = {str(v) for table in ("artifacts", "attempts") for name in ("owner", "host") for v in tables[table][name] if v}
    people |= {str(who) for who in tables["waivers"]["who"] if who} | {row["verdict"].who for row in verdicts}
    people |= {
        v for one in artifacts.values() for v in (one.artifact.manifest.made_by.user, one.artifact.manifest.made_by.host)
    }
    with opened(ledger) as connection:
        costs = query(connection, "SELECT store, address, dollars, unpriced, attempts, failed_attempts FROM costs").to_dicts()
        failures = query(connection, _FAILURES).to_dicts()
        waivers = query(connection, "SELECT * FROM waivers ORDER BY created DESC NULLS LAST, address, problem").to_dicts()
    return World(
        artifacts=artifacts,
        children={place: tuple(sorted(of)) for place, of in children.items()},
        costs={(row["store"], row["address"]): row for row in costs},
        verdicts=verdicts,
        waivers=waivers,
        failures=failures,
        incidents=sorted(incidents, key=lambda one: (one.opened, one.id), reverse=True),
        unreadable=unreadable | {what: why for what, why in ledger.unreadable.items() if what not in read_here},
        people=frozenset(people),
        campaigns=campaigns,
        by_name={(one.artifact.name, one.artifact.data_version): one.place for one in newest},
    )


_FAILURES = """
    SELECT name, state, why, started, ended, dollars FROM attempts WHERE state IN ('failed', 'interrupted')
    ORDER BY started DESC, name, number LIMIT 500"""


def _artifacts(store: Store) -> tuple[list[Artifact], dict[str, str]]:
    artifacts, bad = [], {}
    for where in store.storage.find("", MANIFEST_NAME):
        if where.startswith("."):
            continue
        address = where.removesuffix(f"/{MANIFEST_NAME}")
        try:
            with naming(where):
                text = store.storage.read_text(where)
                if text is not None:
                    artifacts.append(Artifact(store, sound_manifest(text, address, where)))
        except (UnsoundManifestError, ValueError) as error:
            bad[where] = str(error)
    return artifacts, bad


def _withheld(standing: Sequence[Verdict], faults: Sequence[Fault]) -> str:
    if any(verdict.kind == "quarantined" for verdict in standing):
        return "It is quarantined: somebody took it out of use. Its content is not shown."
    if faults:
        return "The log of verdicts is damaged, and a lost record may be a quarantine. Its content is not shown."
    return ""


def _name(key: Sequence[str], partition: str | None) -> str:
    return "/".join(key) + (f"[{partition}]" if partition else "")
