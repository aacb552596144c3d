"""Verdicts of the time before the verdict log (until 2026-11-24): files beside manifests that an upgrade moves into the log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from lineage.artifact.manifest import MANIFEST_NAME
from lineage.artifact.store import Artifact, Store
from lineage.trust.verdict_log import Verdict, append, read_log
from lineage.trust.verdicts import subject_of

OLD_FOLDER = "verdicts"
OLD_FILE = "verdict.json"


@dataclass(frozen=True)
class OldVerdict:
    """One file `<address>/verdicts/<name>/verdict.json`."""

    where: str
    text: str
    artifact: Artifact
    verdict: Verdict


def old_verdicts(store: Store) -> Iterator[OldVerdict]:
    """Yield every old verdict at an artifact's address. Data files of the same name are no verdicts.

    Raises: ValueError naming a file that holds none.
    """
    addresses = {where.rpartition("/")[0] for where in store.storage.stamps(MANIFEST_NAME)}
    for where in store.storage.find("", OLD_FILE):
        address, _, rest = where.partition(f"/{OLD_FOLDER}/")
        if address not in addresses or rest.count("/") != 1:
            continue
        text, artifact = store.storage.read_text(where), store.open(address)
        if text is None or artifact is None:
            continue
        try:
            yield OldVerdict(where, text, artifact, Verdict(**json.loads(text)))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{where} holds no verdict ({error}); mend it by hand, or quarantine {address} and delete it"
            ) from error


def move_to_log(old: OldVerdict) -> None:
    """Append a verdict to the log unless it is there, then delete its file."""
    store, subject = old.artifact.store, subject_of(old.artifact)
    if old.verdict not in (record.verdict for record in read_log(store).records if record.subject == subject):
        append(store, subject, old.verdict)
    store.storage.delete(old.where.rpartition("/")[0])
