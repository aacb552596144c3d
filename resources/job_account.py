"""Annotations of a job's object: what it was made for, which attempt it is, and the failures before."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lineage.jobs.job import Attempt, LaunchRequest
from resources.cluster import Object
from resources.cluster_settings import ClusterSettings
from resources.failures import Failed, Verdict
from resources.manifests import object_name, wanted

KEPT_FAILURES = 20
"""Number of failures in the annotation, newest ones; Kubernetes allows 256 KiB of annotations."""


class LaunchRefusedError(RuntimeError):
    """A job of the same name runs with another purpose."""


def annotations(existing: Object) -> dict[str, str]:
    """Return the annotations of an object of the API server."""
    return existing["metadata"].get("annotations") or {}


def differences(launch: LaunchRequest, settings: ClusterSettings, existing: Object) -> list[str]:
    """Return how the purpose of an existing job of this name differs from this launch."""
    has = annotations(existing)
    return [
        f"{name.rpartition('/')[2]} is {has.get(name, 'not given')}, this launch has {value}"
        for name, value in wanted(launch, settings).items()
        if has.get(name) != value
    ]


def refuse_other(launch: LaunchRequest, settings: ClusterSettings, kind: str, existing: Object) -> None:
    """Refuse the launch if the job that exists under its name was made for another launch.

    Raises: LaunchRefusedError naming the differences and the command that deletes it.
    """
    differs = differences(launch, settings, existing)
    if differs:
        name, namespace = object_name(launch), existing["metadata"]["namespace"]
        raise LaunchRefusedError(
            f"{launch.name}: {kind} {name} runs already, for something else: {'; '.join(differs)}. "
            f"Wait for it, or stop it: kubectl -n {namespace} delete {kind.lower()} {name}"
        )


def attempts_before(history: Sequence[Failed], number: int) -> list[Attempt]:
    """Return the failed attempts before a given attempt."""
    first = number - len(history)
    return [Attempt(first + i, "", round(failed.seconds, 1), str(failed.verdict)) for i, failed in enumerate(history)]


def to_json(history: Sequence[Failed]) -> str:
    """Return the failed attempts of a job as text for an annotation."""
    return json.dumps([{"seconds": round(failed.seconds, 1), **asdict(failed.verdict)} for failed in history])


def from_json(text: str) -> tuple[Failed, ...]:
    """Read what `to_json` wrote."""
    records: list[dict[str, Any]] = json.loads(text)
    return tuple(Failed(Verdict(r["kind"], r["cause"], r["because"]), r["seconds"]) for r in records)
