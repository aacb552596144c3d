"""Jobs, job sets and indexed jobs: where each is, how it is written, when it is done, and which of them an identity runs as."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from lineage.jobs import Launch
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
    """What differs between a Job, a JobSet and an Indexed Job: where it is, how it is written and deleted, when it is done."""

    name: str
    collection: str
    render: Callable[[Launch, Hardware, ClusterSettings, int, str], Manifest]
    done: str
    deletion: str
    gang: bool = True
    """Whether its pods fail together: then one's error explains the others'."""


JOB = Kind("Job", JOBS, job_manifest, "Complete", "Background")
JOBSET = Kind("JobSet", JOBSETS, jobset_manifest, "Completed", "Foreground")
"""The names of a JobSet's jobs follow from its own: the next attempt's can be made when the last one's are gone."""
INDEXED = Kind("Job", JOBS, indexed_job_manifest, "Complete", "Background", gang=False)
"""Its pods share shards and nothing else: each fails for itself."""


@dataclass(frozen=True)
class Start:
    """What a launch begins with: the hardware and kind of its job, the number of its first attempt, the failures before."""

    shape: Hardware
    kind: Kind
    attempt: int = 1
    history: str = to_json(())


def kind_of(launch: Launch, shape: Hardware) -> Kind:
    """Raises: ValueError where each of several indices would be several hosts."""
    if launch.indices and shape.pods > 1:
        raise ValueError(f"{launch.name}: {shape.name} is {shape.pods} hosts; each of several indices runs on one")
    return INDEXED if launch.indices else JOB if shape.pods == 1 else JOBSET


def start_of(cluster: Cluster, settings: ClusterSettings, launch: Launch, shape: Hardware, look_seconds: float) -> Start:
    """Hardware is in no identity, so a job of this one may be there as the other kind, of a recipe that named other hardware.

    While it runs it is the job of this launch. Ended, it makes room, and the count of attempts goes on: its pods and its job
    file have the number in their names. Raises: LaunchRefusedError where it runs for something else.
    """
    start = Start(shape, kind_of(launch, shape))
    if start.kind is INDEXED:  # no stage is a job at one time and a map of shards at another
        return start
    other, name = (JOBSET if start.kind is JOB else JOB), object_name(launch)
    while (found := cluster.get(other.collection, name)) is not None:
        told = annotations(found)
        if "deletionTimestamp" not in found["metadata"]:
            state = state_of(other, found)
            if state == "active":
                refuse_other(launch, settings, other.name, found)
                ran_on = told[HARDWARE]
                log.warning(
                    "%s: %s %s runs on %s, and is adopted; wanted was %s", launch.name, other.name, name, ran_on, shape.name
                )
                return Start(hardware(ran_on), other)
            log.info("%s: %s %s of other hardware is %s: replaced", launch.name, other.name, name, state)
            over = state == "done" or VERDICT in told or differences(launch, settings, found)
            history = to_json(()) if over else told[HISTORY]
            start = Start(shape, start.kind, int(told[ATTEMPT]) + 1, history)
            cluster.delete(other.collection, name, found["metadata"]["uid"], policy=other.deletion)
        time.sleep(look_seconds)
    return start


def state_of(kind: Kind, found: Object) -> str:
    """`active`, `done` or `failed`."""
    conditions = found.get("status", {}).get("conditions") or []
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return "done" if kind.done in true else "failed" if "Failed" in true else "active"
