"""An API server as a dictionary, for what a launcher decides by itself: objects by name and uid, what they own goes with them.

Real ones are in tests/lab. Here a job ends when the test says so: after a number of looks at it, well or not.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from resources.cluster import JOBS, JOBSETS, PODS, ApiError, Object

DONE = {JOBS: "Complete", JOBSETS: "Completed"}


@dataclass
class MemoryCluster:
    """What `resources.cluster.Cluster` is to a launcher."""

    looks: Callable[[int], int] = lambda attempt: 1
    """How often a job of an attempt is looked at before it ends."""
    fails: Callable[[int], str] = lambda attempt: ""
    """The last line of its log, where it ends badly."""
    namespace: str = "lab"
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    created: list[tuple[str, str]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    refused: dict[str, ApiError] = field(default_factory=dict)
    """Collections in which nothing can be created."""
    lists: dict[str, list[Object]] = field(default_factory=dict)
    """What a list of another collection than the pods' returns."""
    pod_status: Object = field(default_factory=dict)
    """Status of every pod, if it is not what its job's state says."""
    suspended: bool = False
    """Whether a queue holds every job."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    uids: "itertools.count[int]" = field(default_factory=itertools.count)

    def create(self, collection: str, body: Object) -> Object:
        key = (collection, body["metadata"]["name"])
        if collection in self.refused:
            raise self.refused[collection]
        with self.lock:
            if key in self.objects:
                raise ApiError(409, "AlreadyExists", f"POST {key}")
            made = deepcopy(body)
            made["metadata"] |= {"uid": f"u-{next(self.uids)}", "namespace": self.namespace}
            if self.suspended and collection in DONE:
                made["spec"]["suspend"] = True
            self.objects[key] = made
            self.created.append(key)
            return deepcopy(made)

    def get(self, collection: str, name: str) -> Object | None:
        with self.lock:
            resource = self.objects.get((collection, name))
            if resource is not None and collection in DONE:
                self._go_on(collection, resource)
            return deepcopy(resource)

    def find(self, collection: str, selector: str = "", fields: str = "") -> list[Object]:
        if collection != PODS:
            return deepcopy(self.lists.get(collection, []))
        with self.lock:
            jobs = deepcopy([resource for (where, _), resource in self.objects.items() if where in DONE])
        pods = [_pod(job) for job in jobs if selector.endswith(f"={_attempt(job)}")]
        return [pod | ({"status": self.pod_status} if self.pod_status else {}) for pod in pods]

    def log(self, pod: str, container: str, *, since: str = "", tail: int = 0) -> list[str]:
        attempts = [
            _attempt(resource) for (where, _), resource in self.objects.items() if where in DONE and _pod_name(resource) == pod
        ]
        return [f"2026-11-22T00:00:00Z {self.fails(attempt) or 'said'}" for attempt in attempts]

    def annotate(self, collection: str, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        resource = self.objects[collection, name]
        if resource["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", name)
        resource["metadata"]["annotations"] |= annotations

    def give(self, collection: str, name: str, uid: str, owner: Mapping[str, object]) -> None:
        resource = self.objects[collection, name]
        if resource["metadata"]["uid"] != uid:
            raise ApiError(409, "Conflict", name)
        resource["metadata"] |= deepcopy(owner)

    def delete(self, collection: str, name: str, uid: str | None = None, *, policy: str = "Background") -> None:
        resource = self.objects.get((collection, name))
        if resource is None or resource["metadata"]["uid"] != uid:
            return
        owned = [key for key, each in self.objects.items() if uid in _owners(each)]
        for key in [(collection, name), *owned]:
            del self.objects[key]

    def names(self, collection: str) -> list[str]:
        return [name for where, name in self.objects if where == collection]

    def _go_on(self, collection: str, resource: Object) -> None:
        uid = resource["metadata"]["uid"]
        self.seen[uid] = self.seen.get(uid, 0) + 1
        if self.seen[uid] > self.looks(_attempt(resource)):
            ended = "Failed" if self.fails(_attempt(resource)) else DONE[collection]
            resource["status"] = {"conditions": [{"type": ended, "status": "True"}]}


def _attempt(resource: Object) -> int:
    return int(resource["metadata"]["annotations"]["marin.community/attempt"])


def _owners(resource: Object) -> list[str]:
    return [reference["uid"] for reference in resource["metadata"].get("ownerReferences", [])]


def _pod(job: Object) -> Object:
    failed = any(condition["type"] == "Failed" for condition in job.get("status", {}).get("conditions", []))
    ended = {"terminated": {"exitCode": 1 if failed else 0, "finishedAt": "2026-11-22T00:00:01Z"}}
    status = {"phase": "Failed" if failed else "Succeeded", "startTime": "2026-11-22T00:00:00Z"}
    metadata = {"name": _pod_name(job), "uid": f"pod-{job['metadata']['uid']}", "creationTimestamp": "2026-11-22T00:00:00Z"}
    containers = {"containerStatuses": [{"name": "job", "state": ended}]}
    return {"metadata": metadata, "spec": {"nodeName": "node-0"}, "status": status | containers}


def _pod_name(job: Object) -> str:
    return f"{job['metadata']['name']}-{job['metadata']['uid']}"
