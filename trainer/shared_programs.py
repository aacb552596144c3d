"""Compiled programs below the root of a store: a job on another machine, or a pod that replaces one, does not compile again.

JAX keeps programs in a local folder (`trainer.programs`). Before a job, `fetch` copies into it what other machines published
for the same stage and model; after the first step and at the end, `publish` adds what is new. Below the root:

    .work/programs/<JAX's version>/<kind of device>/<stage and model>/<sha256 of a program>
    .work/programs/.../<sha256 of the record>.json      the programs that a job published: name -> sha256 and bytes

A program is code that the reader runs. So a record counts only if a key that may `make` in the policy has signed it
(`lineage.signing`), whatever the policy allows for unsigned data, and a program only if it has the sha256 that a record
states. JAX warns of the same: who may write the cache may run code on all machines that read it.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from lineage.jobs.job import Job
from lineage.signing.envelope import EnvelopeError
from lineage.signing.keys import SIGNING_KEY, signer_from
from lineage.signing.policy import Policy, policy_from
from lineage.signing.sign import find_envelope, sign_record
from lineage.signing.statement import text_sha256
from lineage.storage.digests import canonical_json, identity_digest
from lineage.storage.root import Storage
from trainer.programs import keep_programs
from trainer.progress import Show, StepReport

log = logging.getLogger("trainer")

FOLDER = ".work/programs"
MOST_BYTES = 256 << 20
"""Programs of one folder that a job fetches; a folder that has more is emptied by the next job that publishes."""
MOST_RECORD_BYTES = 1 << 20
"""A larger record is not read: who may write the bucket may put anything there."""
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,200}-cache")
"""JAX's name of a program's file."""
_SHA256 = re.compile(r"[0-9a-f]{64}")

type Programs = dict[str, str]
"""Name of a program's file -> sha256 of its bytes."""


@contextmanager
def sharing_programs(job: Job, platform: str, *, many: bool) -> Iterator["SharedPrograms | None"]:
    """Keep the programs of a job, which has those of other machines; new ones are published if it ends well.

    Gives None where they stay on this machine: none is kept in a folder of ours, the root is a folder (then the scratch folder
    is beside it), or nobody else would accept this process's signature.
    """
    shared = _shared(job, keep_programs(job.store.scratch / "compiled", platform, many=many))
    if shared is not None:
        shared.fetch()
    yield shared
    if shared is not None:
        shared.publish()


def _shared(job: Job, folder: Path | None) -> "SharedPrograms | None":
    if folder is None or job.store.storage.is_local:
        return None
    policy = policy_from(os.environ)
    if (reason := why_not_shared(policy)) is not None:
        log.info("compiled programs stay on this machine: %s (docs/recipes/run_on_a_cluster.md)", reason)
        return None
    address = f"{FOLDER}/{jax.__version__}/{folder.name}/{identity_digest(_shape(job))}"
    return SharedPrograms(job.store.storage, policy, folder, address)


def why_not_shared(policy: Policy) -> str | None:
    """Return why no other machine would accept a program that this process signs, or None."""
    signer = signer_from(os.environ)
    if signer is None:
        return f"{SIGNING_KEY} is off, and programs count only if they are signed"
    if policy.strangers == "allow" and SIGNING_KEY not in os.environ:
        return f"this machine signs with a key of its own; name one that others accept in {SIGNING_KEY} and lab.yaml"
    if not any(key.public == signer.public and "make" in key.may for key in policy.keys):
        return f"the key of this process may not make artifacts by {policy.source}"
    return None


def _shape(job: Job) -> dict[str, Any]:
    """What chooses the folder: jobs that differ in it share no step. JAX's own keys decide which program is used."""
    run = job.spec.config.get("run")
    return {"stage": job.spec.stage, "model": run.get("model") if isinstance(run, dict) else None}


@dataclass
class SharedPrograms:
    """The programs of one kind of device, stage and model: the local folder of JAX, and their place below the root."""

    storage: Storage
    policy: Policy
    folder: Path
    address: str
    _there: Programs = field(default_factory=dict)
    """What is below the root by accepted records."""

    _others: frozenset[str] = frozenset()
    """What JAX's folder holds when the job begins: programs of earlier jobs, of any model."""

    def fetch(self) -> None:
        """Copy programs that are not here into JAX's folder, each whole or not at all. Failures are logged: JAX compiles."""
        self._look()
        wanted = {name: digest for name, digest in self._there.items() if not (self.folder / name).exists()}
        self.folder.mkdir(parents=True, exist_ok=True)
        fetched = size = 0
        for name, data in zip(wanted, self.storage.read_each(self._read, wanted.values()), strict=True):
            if data is None or hashlib.sha256(data).hexdigest() != wanted[name]:
                log.warning("program %s below %s is absent or not what its record states; it is compiled again", name, self.uri)
                del self._there[name]
                continue
            part = self.folder / f".{name}.{os.getpid()}"
            part.write_bytes(data)
            part.rename(self.folder / name)
            fetched, size = fetched + 1, size + len(data)
        self._others = frozenset(path.name for path in self.folder.glob("*-cache"))
        log.info("%d compiled programs, %.1f MB, fetched from %s", fetched, size / 1e6, self.uri)

    def publish(self) -> None:
        """Put the programs that this job compiled below the root, then a signed record of them."""
        new = [path for path in sorted(self.folder.glob("*-cache")) if path.name not in self._others | self._there.keys()]
        if not new:
            return
        if sum(self.storage.sizes(self.address).values()) > MOST_BYTES:
            log.info("%s holds more than %d MB; it is emptied", self.uri, MOST_BYTES >> 20)
            self.storage.delete(self.address)
            self._there.clear()
        programs: dict[str, dict[str, Any]] = {}
        for path in new:
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            self.storage.replace(f"{self.address}/{digest}", data)
            programs[path.name] = {"sha256": digest, "bytes": len(data)}
        text = canonical_json({"schema": 1, "programs": programs})
        where = f"{self.address}/{text_sha256(text)}.json"
        sign_record(self.storage, where, text, "make")
        self.storage.create(where, text)
        self._there |= {name: str(each["sha256"]) for name, each in programs.items()}
        size = sum(each["bytes"] for each in programs.values())
        log.info("%d compiled programs, %.1f MB, published at %s", len(programs), size / 1e6, self.uri)

    @property
    def uri(self) -> str:
        return self.storage.uri(self.address)

    def _look(self) -> None:
        """Read the records that count, and which programs they state; at most `MOST_BYTES` of programs."""
        sizes = self.storage.sizes(self.address)
        records = [name for name in sorted(sizes) if "/" not in name and name.endswith(".json")]
        left = MOST_BYTES
        for programs in filter(
            None, self.storage.read_each(self._record, [n for n in records if sizes[n] <= MOST_RECORD_BYTES])
        ):
            for name, facts in programs.items():
                if sizes.get(facts["sha256"]) != facts["bytes"]:
                    log.warning(
                        "program %s below %s is absent or not what its record states; it is compiled again", name, self.uri
                    )
                elif name not in self._there and facts["bytes"] <= left:
                    left -= facts["bytes"]
                    self._there[name] = facts["sha256"]

    def _record(self, name: str) -> dict[str, dict[str, Any]] | None:
        """The programs of a record; None, with a warning, if it does not count."""
        where = f"{self.address}/{name}"
        text = (self.storage.read_bytes(where) or b"").decode(errors="replace")
        try:
            envelope = find_envelope(self.storage, where, text)
            if envelope is None or not self.policy.signers(envelope, "make"):
                raise EnvelopeError(f"{where} has no signature of a key that may make artifacts by {self.policy.source}")
            return sound_programs(json.loads(text))
        except (EnvelopeError, ValueError) as error:
            log.warning("the programs of %s are not used: %s", self.storage.uri(where), error)
            return None

    def _read(self, digest: str) -> bytes | None:
        return self.storage.read_bytes(f"{self.address}/{digest}")


@dataclass
class PublishesFirst:
    """Shows a run, and publishes its programs after the first step that is shown, so that a pod may be killed then."""

    show: Show
    shared: SharedPrograms
    is_done: bool = False

    def step(self, report: StepReport) -> None:
        self.show.step(report)
        if not self.is_done:
            self.is_done = True
            self.shared.publish()


def sound_programs(record: Any) -> dict[str, dict[str, Any]]:
    """Return the programs of a record. Raises: ValueError for names that leave the folder, digests or sizes that are none."""
    programs = record.get("programs") if isinstance(record, dict) and record.get("schema") == 1 else None
    if not isinstance(programs, dict):
        raise ValueError("it is no record of programs of schema 1")
    for name, facts in programs.items():
        sound = isinstance(facts, dict) and type(facts.get("bytes")) is int and facts["bytes"] >= 0
        if not (sound and _NAME.fullmatch(name) and _SHA256.fullmatch(str(facts.get("sha256")))):
            raise ValueError(f"its program {name!r:.100} is {facts!r:.200}; a name of JAX, a sha256 and bytes are wanted")
    return programs
