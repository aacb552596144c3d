"""Waivers: a person's decision that the gate ignores one kind of problem until a date.

A waiver is an artifact (key `waivers/<problem>-<digest>`), so it has an identity, a date and an address. Work that it allowed
names that address in its manifest. It applies to what its patterns match until the day it expires, or until it is revoked: a
verdict on the waiver (`lineage.trust.verdicts.revoke`).
"""

import datetime
import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from lineage.artifact.manifest import MANIFEST_NAME, sound_manifest
from lineage.artifact.store import Artifact, Store
from lineage.config import from_jsonable, to_jsonable
from lineage.signing.judge import WAIVER_STAGE, Judge
from lineage.storage.digests import identity_digest, utf8_digest
from lineage.trust.verdict_log import Subject, VerdictLog

type Waivable = Literal["failed", "quarantined", "unaudited", "incomplete"]
"""Problems that a person may overrule. Artifacts that are missing, stale, edited, swapped or damaged cannot be used at all."""

WAIVERS_KEY = "waivers"
WAIVER_FILE = "waiver.json"


@dataclass(frozen=True)
class Waiver:
    """`artifact` and `target` are shell patterns over names such as `corpus/default[kjv]`; `[` is an ordinary character."""

    problem: Waivable
    artifact: str
    """The artifact that has the problem."""
    who: str
    why: str
    expires: str
    """Last day it applies, YYYY-MM-DD in UTC."""
    target: str = "*"
    """What may be built on it."""

    def __post_init__(self) -> None:
        allowed = get_args(Waivable.__value__)
        if self.problem not in allowed:
            raise ValueError(f"waiver problem is {self.problem!r}; allowed: {', '.join(allowed)} (others must be mended)")
        for name in ("artifact", "target", "who", "why"):
            if not getattr(self, name).strip():
                raise ValueError(f"waiver {name} is {getattr(self, name)!r}; it must say something")
        try:
            datetime.date.fromisoformat(self.expires)
        except ValueError:
            raise ValueError(f"waiver expires is {self.expires!r}; give a day, YYYY-MM-DD") from None

    def covers(self, problem: str, artifact: str, target: str, today: datetime.date) -> bool:
        """Whether it allows `target` to use `artifact` in spite of `problem` on a day.

        >>> waiver = Waiver("failed", "corpus/*[kjv]", "ada", "known", "2026-01-31", target="runs/*")
        >>> day = datetime.date(2026, 1, 31)
        >>> waiver.covers("failed", "corpus/default[kjv]", "runs/tiny/checkpoint[x]", day)
        True
        >>> waiver.covers("failed", "corpus/default[kjv]", "runs/tiny/checkpoint[x]", day + datetime.timedelta(1))
        False
        """
        return (
            problem == self.problem
            and today <= datetime.date.fromisoformat(self.expires)
            and _matches(artifact, self.artifact)
            and _matches(target, self.target)
        )


@dataclass(frozen=True)
class Waivers:
    """The waivers of a store: those that count (expired ones too), and why each of the others does not."""

    sound: tuple[tuple[Artifact, Waiver], ...]
    refused: tuple[tuple[str, str], ...]
    """(address, why)."""


def waiver_key(waiver: Waiver) -> tuple[str, ...]:
    """Return the key of a waiver's artifact: it has a digest of what the waiver says."""
    return WAIVERS_KEY, f"{waiver.problem}-{identity_digest(to_jsonable(waiver))[:8]}"


def waiver_text(waiver: Waiver) -> str:
    """Return the text of its data file, for people."""
    return json.dumps(to_jsonable(waiver), indent=1, ensure_ascii=False)


def recorded_waivers(store: Store, log: VerdictLog, judge: Judge) -> Waivers:
    """Read every waiver of a store as strictly as the gate reads manifests. A bad one is named and does not count."""
    sound, refused = [], []
    listed = store.storage.sizes(WAIVERS_KEY)
    for name in sorted(path for path in listed if path.rsplit("/", 1)[-1] == MANIFEST_NAME):
        address = f"{WAIVERS_KEY}/{name.rpartition('/')[0]}"
        try:
            sound.append(_read_waiver(store, address, listed, log, judge))
        except ValueError as error:
            refused.append((address, str(error)))
    return Waivers(tuple(sound), tuple(refused))


def _read_waiver(
    store: Store, address: str, listed: Mapping[str, int], log: VerdictLog, judge: Judge
) -> tuple[Artifact, Waiver]:
    """Raises: ValueError saying why the waiver at an address does not count."""
    where = f"{address}/{MANIFEST_NAME}"
    text = store.storage.read_text(where)
    if text is None:
        raise ValueError("it was deleted just now")
    manifest = sound_manifest(text, address, where)
    problem = judge.manifest(store.storage, manifest, text)
    if problem is not None:
        raise ValueError(f"{problem.kind}: {problem.detail}")
    spec, waiver = manifest.spec, from_jsonable(Waiver, manifest.spec.config)
    if spec.stage != WAIVER_STAGE or spec.inputs or spec.partition is not None or spec.key != waiver_key(waiver):
        raise ValueError(
            f"it is {spec.name} of stage {spec.stage}; a waiver of this content is {'/'.join(waiver_key(waiver))} of stage "
            f"{WAIVER_STAGE}, as `./marin waive` writes it"
        )
    content = waiver_text(waiver).encode()
    entries = [(entry.path, entry.bytes, entry.digest) for entry in manifest.files]
    file = f"{address}/{manifest.data_folder}/{WAIVER_FILE}".removeprefix(f"{WAIVERS_KEY}/")
    if entries != [(WAIVER_FILE, len(content), utf8_digest(content))] or listed.get(file) != len(content):
        raise ValueError(f"its data file {WAIVER_FILE} is missing or does not say what the manifest says")
    subject = Subject(spec.key, spec.partition, manifest.data_version)
    for fault in log.faults:
        if fault.is_about(subject):
            raise ValueError(fault.detail)
    for verdict in log.standing(subject):
        raise ValueError(f"it is {verdict.kind} by {verdict.who} ({verdict.when}): {verdict.why}")
    return Artifact(store, manifest), waiver


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
