"""What a job waits for before it runs: quota, a node, an image, a volume. Each wait is logged, and each has a bound.

A pod that is `ContainerCreating` holds its node, so a wait there is short; a job without quota or node holds nothing.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from resources.cluster import WORKLOADS, ApiError, Cluster, Object
from resources.failures import MISSING_VOLUME, Verdict
from resources.pod_watch import STUCK, container_state, last_warning

log = logging.getLogger(__name__)

NEVER_FITS = "maximum capacity"
"""Kueue's words for a workload that is larger than its whole queue (pkg/scheduler/flavorassigner)."""
FIRST_WORD_SECONDS = 60.0
"""A wait is logged when it has lasted this long, and then each time that it has doubled."""

type Reason = Literal["quota", "node", "start", "error"]


@dataclass(frozen=True)
class WaitLimits:
    """Seconds that a job may wait; 0 of `machine` means without end."""

    error: float
    """With an error that Kubernetes reports: an image that is not there, a missing secret, a quota that is too small."""

    start: float
    """On its node, for its image and its volumes."""

    machine: float
    """For quota or a node."""


@dataclass
class Waiting:
    """Follows the waits of one attempt. `look` returns why its job is given up, or None."""

    cluster: Cluster
    name: str
    limits: WaitLimits
    since: dict[Reason, float] = field(default_factory=dict)
    next_word: dict[Reason, float] = field(default_factory=dict)
    logged: dict[Reason, str] = field(default_factory=dict)
    """What each wait is for, in Kubernetes' words."""

    def look(self, job: Object, pods: Iterable[Object]) -> Literal["pods"] | Verdict | None:
        """Return a verdict for a job that waits too long for a machine, and "pods" if pods must be judged that cannot start."""
        reasons = self._reasons(job, pods)
        for gone in self.since.keys() - reasons.keys():
            del self.since[gone], self.next_word[gone]
        for reason, message in reasons.items():
            self.since.setdefault(reason, time.monotonic())
            self._say(reason, message)
        if self._over("error", self.limits.error) or self._over("start", self.limits.start):
            return "pods"
        if MISSING_VOLUME.search(reasons.get("start", "")) and self._over("start", self.limits.error):
            return "pods"
        if NEVER_FITS in reasons.get("quota", "") and self._over("quota", self.limits.error):
            return Verdict("permanent", "larger than its queue", reasons["quota"])
        for reason in ("quota", "node"):
            if self.limits.machine and self._over(reason, self.limits.machine):
                return Verdict("permanent", "no machine", f"not within {self.limits.machine:.0f} s: {reasons[reason]}")
        return None

    def _over(self, reason: Reason, limit: float) -> bool:
        return reason in self.since and time.monotonic() - self.since[reason] >= limit

    def _say(self, reason: Reason, message: str) -> None:
        """Log a wait when its reason is new, after a minute, and whenever it has doubled since."""
        waited = time.monotonic() - self.since[reason]
        if self.logged.get(reason) != message:
            self.logged[reason] = message
            log.info("%s: waits: %s", self.name, message)
        if waited >= self.next_word.setdefault(reason, FIRST_WORD_SECONDS):
            self.next_word[reason] = 2 * waited
            log.warning("%s: has waited for %.0f minutes: %s", self.name, waited / 60, message)

    def _reasons(self, job: Object, pods: Iterable[Object]) -> dict[Reason, str]:
        if job["spec"].get("suspend"):
            return {"quota": self._why_suspended(job)}
        reasons: dict[Reason, str] = {}
        for pod in pods:
            if pod["status"].get("phase", "Pending") != "Pending":
                continue
            pod_name, waiting = pod["metadata"]["name"], container_state(pod, "waiting")
            unscheduled = [
                c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled" and c["status"] == "False"
            ]
            if unscheduled:
                reasons["node"] = f"no node for pod {pod_name}: {unscheduled[0].get('message', '')}"
            elif waiting.get("reason") in STUCK:
                reasons["error"] = f"pod {pod_name}: {waiting['reason']}: {waiting.get('message', '')}"
            elif "nodeName" in pod["spec"]:  # its kubelet prepares it, or says nothing
                message = waiting.get("reason", "its kubelet has not reported")
                reasons["start"] = f"pod {pod_name} on {pod['spec']['nodeName']}: {message}: {last_warning(self.cluster, pod)}"
        return reasons

    def _why_suspended(self, job: Object) -> str:
        """Return what Kueue says of a suspended job's workload."""
        try:
            workloads = self.cluster.find(WORKLOADS, f"kueue.x-k8s.io/job-uid={job['metadata']['uid']}")
        except ApiError as error:
            if error.status not in (403, 404):  # no right, or no Kueue
                raise
            return f"suspended, and its workload cannot be read: {error}"
        conditions = [c for each in workloads for c in each.get("status", {}).get("conditions", [])]
        messages = [c.get("message", "") for c in conditions if c["type"] in ("QuotaReserved", "Evicted", "Admitted")]
        return f"suspended by its queue: {'; '.join(filter(None, messages)) or 'its workload has no condition yet'}"
