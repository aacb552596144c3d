"""Watch the pods of one job: copy their logs, log their restarts, and collect why they failed."""

import datetime
import logging
import sys
from dataclasses import dataclass, field
from typing import Any

from lineage.jobs.job import Attempt, LaunchRequest
from resources.cluster import EVENTS, PODS, ApiError, Cluster, Object
from resources.failures import EVICTED, LOG_LINES, Evidence, classify_pod
from resources.manifests import pod_labels
from resources.pods import CONTAINER

log = logging.getLogger(__name__)

RESTART = "jobset.sigs.k8s.io/restart-attempt"
INDEX = "batch.kubernetes.io/job-completion-index"
STUCK = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that are errors."""


@dataclass
class PodWatch:
    """Polls the pods of a job. Logs are read by time, so a broken connection loses nothing."""

    cluster: Cluster
    launch: LaunchRequest
    attempt: int
    pods: dict[str, Object] = field(default_factory=dict)
    """Every pod by uid, as it was last seen, including deleted ones."""

    present: set[str] = field(default_factory=set)
    """Pods that the last poll returned."""

    copied: dict[str, str] = field(default_factory=dict)
    """Time of the last line copied, by uid."""

    drained: set[str] = field(default_factory=set)
    """Pods whose log was copied after they ended; they are not read again (most of a thousand runners)."""

    logged: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """List the pods, log changes, and copy new log lines."""
        labels = pod_labels(self.launch, self.attempt)
        listed = self.cluster.find(PODS, ",".join(f"{name}={value}" for name, value in labels.items()))
        self.present = {pod["metadata"]["uid"] for pod in listed}
        for pod in sorted(listed, key=lambda pod: pod["metadata"]["name"]):
            self.pods[pod["metadata"]["uid"]] = pod
            self._tell(pod)
            self._copy_log(pod, several=len(listed) > 1)

    def here(self) -> list[Object]:
        """Return the pods that the last poll returned."""
        return [self.pods[uid] for uid in self.present]

    def evictions(self) -> list[Object]:
        """Return the pods of the group that was evicted most often, one of each round.

        Kubernetes replaces an evicted pod like a preempted one, as often as it takes.
        """
        groups: dict[str, dict[tuple[int, str], Object]] = {}
        for pod in self.pods.values():
            if pod["status"].get("reason") == EVICTED:
                groups.setdefault(_group(pod), {})[_round(pod)] = pod
        return max((list(rounds.values()) for rounds in groups.values()), key=len, default=[])

    def evidence(self, *, stuck: bool) -> list[Evidence]:
        """Return the facts of every failed pod, or of pods that cannot start if that is the failure.

        Only the last round counts: a preemption that was overcome does not explain the end of its replacement.
        """
        newest: dict[str, tuple[int, str]] = {}
        for pod in self.pods.values():
            newest[_group(pod)] = max(_round(pod), newest.get(_group(pod), (0, "")))
        failed = [pod for pod in self.pods.values() if pod["status"].get("phase") == "Failed"]
        failed = [pod for pod in failed if _round(pod) == newest[_group(pod)]] or failed
        failed = [pod for pod in failed if not _was_stopped(pod)] or failed  # peers that were terminated explain nothing
        waiting = [
            pod for pod in self.here() if pod["status"].get("phase", "Pending") == "Pending" and "nodeName" in pod["spec"]
        ]
        return [self._evidence(pod) for pod in (waiting if stuck else failed)]

    def attempts(self) -> list[Attempt]:
        """Return one record for each pod in the order of their starts: those that Kubernetes replaced, and the one that
        succeeded. A pod that had succeeded is done, also if it was deleted later: Kubernetes deletes the pods of lost nodes.
        """
        records = []
        for pod in sorted(self.pods.values(), key=lambda pod: pod["metadata"]["creationTimestamp"]):
            place = f"pod {pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}"
            died = pod["status"].get("phase") == "Failed" and not (_was_stopped(pod) and len(self.pods) > 1)
            succeeded = pod["status"].get("phase") == "Succeeded"
            gone = _was_stopped(pod) or (pod["metadata"]["uid"] not in self.present and not succeeded)
            stopped = "stopped with its gang" if RESTART in pod["metadata"].get("labels", {}) else "deleted"
            ended = f"{classify_pod(self._evidence(pod))}; replaced" if died else stopped if gone else "done"
            records.append(Attempt(self.attempt, place, _pod_seconds(pod), ended))
        return records

    def seconds(self) -> float:
        """Return how long the longest pod has run."""
        return max((_pod_seconds(pod) for pod in self.pods.values()), default=0.0)

    def _evidence(self, pod: Object) -> Evidence:
        ended, waiting, status = container_state(pod, "terminated"), container_state(pod, "waiting"), pod["status"]
        disruption = [c.get("reason", "") for c in status.get("conditions", []) if _is_true(c, "DisruptionTarget")]
        lines = self.cluster.log(pod["metadata"]["name"], CONTAINER, tail=LOG_LINES)
        message = status.get("message", "") or ended.get("message", "") or waiting.get("message", "")
        pending = "" if ended or status.get("phase", "Pending") != "Pending" else "ContainerCreating"
        if pending and not message:
            message = last_warning(self.cluster, pod)
        return Evidence(
            exit_code=ended.get("exitCode"),
            reason=ended.get("reason", "") or waiting.get("reason", pending),
            message=message,
            pod_reason=status.get("reason", ""),
            disruption=disruption[0] if disruption else "",
            log="\n".join(line.partition(" ")[2] for line in lines),
        )

    def _tell(self, pod: Object) -> None:
        """Log a pod's state if it has changed."""
        status, metadata = pod["status"], pod["metadata"]
        state = status.get("phase", "Pending")
        for condition in status.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                state = f"{state}: {condition.get('message', '')}"
        waiting = container_state(pod, "waiting").get("reason")
        if waiting in STUCK:
            state = f"{state}: {waiting}"
        if self.logged.get(metadata["uid"]) != state:
            self.logged[metadata["uid"]] = state
            log.info("%s: pod %s on %s: %s", self.launch.name, metadata["name"], pod["spec"].get("nodeName", "no node"), state)

    def _copy_log(self, pod: Object, *, several: bool) -> None:
        """Append new lines to the launch's log and print them; with several pods, with their names."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        ended = bool(container_state(pod, "terminated"))
        if uid in self.drained or not (container_state(pod, "running") or ended):
            return
        last = self.copied.get(uid, "")
        since = f"{last[:19]}Z" if last else ""  # the server filters by whole seconds; the timestamps below are exact
        with self.launch.log_path.open("a") as out:
            lines = self.cluster.log(name, CONTAINER, since=since)
            for line in lines:
                moment, _, text = line.partition(" ")
                if moment > last:
                    self.copied[uid] = moment
                    text = self.launch.format_log_line(f"{text}\n")
                    shown = f"[{name}] {text}" if several else text
                    out.write(shown)
                    sys.stderr.write(shown)
        if ended and lines:  # no lines: no new output, or the node did not answer
            self.drained.add(uid)


def last_warning(cluster: Cluster, pod: Object) -> str:
    """Return the newest warning about a pod as `Reason: message`, or an empty string; also without the right to read events."""
    try:
        listed = cluster.find(EVENTS, fields=f"involvedObject.uid={pod['metadata']['uid']},type=Warning")
    except ApiError as error:
        if error.status != 403:
            raise
        return "no right to read its events"
    newest = max(listed, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "", default=None)
    return "" if newest is None else f"{newest['reason']}: {newest.get('message', '')}"


def container_state(pod: Object, state: str) -> dict[str, Any]:
    """Return the state of our container if it is of this kind (`waiting`, `running` or `terminated`), else nothing."""
    for status in pod["status"].get("containerStatuses", []):
        if status["name"] == CONTAINER:
            return status.get("state", {}).get(state) or {}
    return {}


def _group(pod: Object) -> str:
    """Return the group of pods that replace each other: a whole gang, or one index of an Indexed Job."""
    labels, annotations = (pod["metadata"].get(what, {}) for what in ("labels", "annotations"))
    return "" if RESTART in labels else annotations.get(INDEX, "")


def _round(pod: Object) -> tuple[int, str]:
    """Return a key that grows in a group with every restart of a gang and every replacement of a pod."""
    restart = pod["metadata"].get("labels", {}).get(RESTART)
    return (0, pod["metadata"]["creationTimestamp"]) if restart is None else (int(restart), "")


def _was_stopped(pod: Object) -> bool:
    """Whether somebody deleted the pod while its node is healthy."""
    disrupted = any(_is_true(condition, "DisruptionTarget") for condition in pod["status"].get("conditions", []))
    return "deletionTimestamp" in pod["metadata"] and not disrupted


def _is_true(condition: Object, kind: str) -> bool:
    return condition["type"] == kind and condition["status"] == "True"


def _pod_seconds(pod: Object) -> float:
    started = pod["status"].get("startTime")
    if started is None:
        return 0.0
    ended = container_state(pod, "terminated").get("finishedAt") or datetime.datetime.now(datetime.UTC).isoformat()
    return (datetime.datetime.fromisoformat(ended) - datetime.datetime.fromisoformat(started)).total_seconds()
