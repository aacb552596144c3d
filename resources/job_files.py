"""Job files on a cluster: a ConfigMap for each attempt, created before the job and deleted with it.

The file is also the claim of a launch. Its name depends on the identity and the attempt only, so of two launches at once the
second finds the first one's file, which says on which hardware the job will be, and creates or adopts that job.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lineage.jobs.job import LaunchRequest
from recipes.hardware import Hardware, hardware
from resources.cluster import CONFIG_MAPS, ApiError, Cluster, Object
from resources.cluster_settings import ClusterSettings
from resources.job_account import LaunchRefusedError, annotations, differences
from resources.job_kinds import Start, kind_of
from resources.manifests import ATTEMPT, HARDWARE, job_file, object_name, owned_by

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobFiles:
    """Creates job files, and gives them to their jobs."""

    cluster: Cluster
    settings: ClusterSettings
    patience_seconds: float
    """Seconds that the file of a deleted job may stay."""

    pause_seconds: float

    def claim(self, launch: LaunchRequest, start: Start) -> Start:
        """Create the job file of an attempt, or continue with the hardware of the launch that created it first.

        Raises: ValueError if the file is too large; ApiError if the cluster refuses it, by a quota for example;
        LaunchRefusedError if the file of a deleted job is not collected.
        """
        end = time.monotonic() + self.patience_seconds
        while True:
            body = job_file(launch, start.shape, self.settings, start.attempt)
            name = body["metadata"]["name"]
            try:
                self.cluster.create(CONFIG_MAPS, body)
                return start
            except ApiError as error:
                if error.status != 409:
                    raise
            existing_file = self.cluster.get(CONFIG_MAPS, name)
            if existing_file is None:
                continue
            owners = owners_of(existing_file)
            if not owners and differences(
                launch, self.settings, existing_file
            ):  # other code, whose launch died or makes its job now
                start = replace(start, attempt=start.attempt + 1)
                continue
            shape = hardware(annotations(existing_file).get(HARDWARE, start.shape.name))
            kind = kind_of(launch, shape)
            if not owners or self.cluster.get(kind.collection, object_name(launch)) is not None:
                if shape != start.shape:
                    log.warning("%s: another launch was first, on %s; wanted was %s", launch.name, shape.name, start.shape.name)
                return replace(start, shape=shape, kind=kind)
            self._wait(end, launch, name, owners)

    def give(self, launch: LaunchRequest, shape: Hardware, job: Object) -> None:
        """Let the job file be deleted with its job. A file that is missing is created.

        Raises: LaunchRefusedError if the file of a deleted job is not collected.
        """
        body = job_file(launch, shape, self.settings, int(annotations(job)[ATTEMPT]))
        name, end = body["metadata"]["name"], time.monotonic() + self.patience_seconds
        while True:
            existing_file = self.cluster.get(CONFIG_MAPS, name)
            owners = [] if existing_file is None else owners_of(existing_file)
            if job["metadata"]["uid"] in owners:
                return
            try:
                if existing_file is None:
                    self.cluster.create(CONFIG_MAPS, body | {"metadata": body["metadata"] | owned_by(job)})
                    return
                if not owners:
                    self.cluster.give(CONFIG_MAPS, name, existing_file["metadata"]["uid"], owned_by(job))
                    return
            except ApiError as error:
                if error.status not in (404, 409):  # another launch of the same identity did it meanwhile
                    raise
            self._wait(end, launch, name, owners)

    def _wait(self, end: float, launch: LaunchRequest, name: str, owners: Sequence[str]) -> None:
        if time.monotonic() > end:
            raise LaunchRefusedError(
                f"{launch.name}: the ConfigMap {name} is of another object ({', '.join(owners) or 'nobody'}) and was not "
                f"collected within {self.patience_seconds:.0f} s; "
                f"kubectl -n {self.cluster.namespace} delete configmap {name}"
            )
        time.sleep(self.pause_seconds)


def owners_of(existing: Object) -> list[str]:
    """Return the uids of the objects that an object is deleted with."""
    return [reference["uid"] for reference in existing["metadata"].get("ownerReferences", [])]
