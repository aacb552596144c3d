"""Kinds of jobs (Job, JobSet, Indexed Job): API path, manifest, end state, and which kind an identity runs as."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from lineage.jobs.job import LaunchRequest
from recipes.hardware import Hardware, hardware
from resources.cluster import JOBS, JOBSETS, Cluster, Object
from resources.cluster_settings import ClusterSettings
from resources.job_account import annotations, differences, refuse_other, to_json
from resources.manifests import (
    ATTEMPT,
    HARDWARE,
    HISTORY,
    VERDICT,
    Manifest,
    indexed_job_manifest,
    job_manifest,
    jobset_manifest,
    object_name,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kind:
    """What differs between a Job, a JobSet and an Indexed Job: API path, manifest, deletion and end state."""

    name: str
    collection: str
    render: Callable[[LaunchRequest, Hardware, ClusterSettings, int, str], Manifest]
    done: str
    deletion: str
    gang: bool = True
    """Whether its pods fail together: then the error of one explains those of the others."""


JOB = Kind("Job", JOBS, job_manifest, "Complete", "Background")
JOBSET = Kind("JobSet", JOBSETS, jobset_manifest, "Completed", "Foreground")
"""The jobs of a JobSet have names derived from its own, so the next attempt must wait until the last one's are gone."""
INDEXED = Kind("Job", JOBS, indexed_job_manifest, "Complete", "Background", gang=False)
"""Its pods share only shards: each fails independently."""


@dataclass(frozen=True)
class Start:
    """The start of a launch: hardware and kind of its job, the number of its first attempt, and the failures before."""

    shape: Hardware
    kind: Kind
    attempt: int = 1
    history: str = to_json(())


def kind_of(launch: LaunchRequest, shape: Hardware) -> Kind:
    """Return the kind of a launch. Raises: ValueError if each of several indices would need several hosts."""
    if launch.indices and shape.pods > 1:
        raise ValueError(f"{launch.name}: {shape.name} is {shape.pods} hosts; each of several indices runs on one")
    return INDEXED if launch.indices else JOB if shape.pods == 1 else JOBSET


def start_of(cluster: Cluster, settings: ClusterSettings, launch: LaunchRequest, shape: Hardware, look_seconds: float) -> Start:
    """Find a job of this identity of another kind: hardware is not part of the identity, and a recipe may have named other
    hardware.

    While it runs it is adopted. If it has ended it is replaced, and the count of attempts continues, because its pods and its
    job file have the number in their names. Raises: LaunchRefusedError if it runs with another purpose.
    """
    start = Start(shape, kind_of(launch, shape))
    if start.kind is INDEXED:  # a stage is either a job or a map of shards, always
        return start
    other, name = (JOBSET if start.kind is JOB else JOB), object_name(launch)
    while (existing := cluster.get(other.collection, name)) is not None:
        purpose = annotations(existing)
        if "deletionTimestamp" not in existing["metadata"]:
            state = state_of(other, existing)
            if state == "active":
                refuse_other(launch, settings, other.name, existing)
                ran_on = purpose[HARDWARE]
                log.warning(
                    "%s: %s %s runs on %s, and is adopted; wanted was %s", launch.name, other.name, name, ran_on, shape.name
                )
                return Start(hardware(ran_on), other)
            log.info("%s: %s %s of other hardware is %s: replaced", launch.name, other.name, name, state)
            over = state == "done" or VERDICT in purpose or differences(launch, settings, existing)
            history = to_json(()) if over else purpose[HISTORY]
            start = Start(shape, start.kind, int(purpose[ATTEMPT]) + 1, history)
            cluster.delete(other.collection, name, existing["metadata"]["uid"], policy=other.deletion)
        time.sleep(look_seconds)
    return start


def state_of(kind: Kind, existing: Object) -> str:
    """`active`, `done` or `failed`."""
    conditions = existing.get("status", {}).get("conditions") or []
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return "done" if kind.done in true else "failed" if "Failed" in true else "active"
