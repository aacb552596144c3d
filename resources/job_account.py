"""What the object of a job says of it: what it was made for, which attempt it is, and the account of the failures before."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lineage.jobs import Attempt, Launch
from resources.cluster import Object
from resources.cluster_settings import ClusterSettings
from resources.failures import Failed, Verdict
from resources.manifests import object_name, wanted

KEPT_FAILURES = 20
"""In the annotation, the newest ones; Kubernetes allows 256 KiB of annotations."""


class LaunchRefusedError(RuntimeError):
    """A job of the same name runs for something else."""


def annotations(found: Object) -> dict[str, str]:
    return found["metadata"].get("annotations") or {}


def differences(launch: Launch, settings: ClusterSettings, found: Object) -> list[str]:
    """What a job of this launch's name was made for and this launch is not."""
    has = annotations(found)
    return [
        f"{name.rpartition('/')[2]} is {has.get(name, 'not given')}, this launch has {value}"
        for name, value in wanted(launch, settings).items()
        if has.get(name) != value
    ]


def refuse_other(launch: Launch, settings: ClusterSettings, kind: str, found: Object) -> None:
    """Raises: LaunchRefusedError naming what differs between a running job and what is to be launched."""
    differs = differences(launch, settings, found)
    if differs:
        name, namespace = object_name(launch), found["metadata"]["namespace"]
        raise LaunchRefusedError(
            f"{launch.name}: {kind} {name} runs already, for something else: {'; '.join(differs)}. "
            f"Wait for it, or stop it: kubectl -n {namespace} delete {kind.lower()} {name}"
        )


def attempts_before(history: Sequence[Failed], number: int) -> list[Attempt]:
    """The failed attempts before the one of a number."""
    first = number - len(history)
    return [Attempt(first + i, "", round(failed.seconds, 1), str(failed.verdict)) for i, failed in enumerate(history)]


def to_json(history: Sequence[Failed]) -> str:
    return json.dumps([{"seconds": round(failed.seconds, 1), **asdict(failed.verdict)} for failed in history])


def from_json(text: str) -> tuple[Failed, ...]:
    records: list[dict[str, Any]] = json.loads(text)
    return tuple(Failed(Verdict(r["kind"], r["cause"], r["because"]), r["seconds"]) for r in records)
