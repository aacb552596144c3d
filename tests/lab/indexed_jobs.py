"""Indexed Jobs on an API server that has none (1.20): a front that keeps the fields it would drop, and a controller.

    with IndexedJobs(plane.cluster("default")) as indexed:
        indexed.front(cluster)          # the same cluster, through the front

The front passes requests on. It stores the spec of a Job with `completionMode: Indexed` in an annotation and asks the server
for `parallelism: 0`, so the real Job controller leaves that Job alone. The real server does everything else (storage, owners,
deletion). The controller makes a pod for every index. The Job owns the pods, and they are scheduled and run as any other. It
replaces pods that podFailurePolicy ignores, gives up an index beyond `backoffLimitPerIndex`, and ends the Job after the last
index. A pod that has ended counts when it is deleted, too, as in later releases, where a finalizer keeps it until it is
counted: the collector of orphans deletes the pods of a node that is gone, after a minute.
"""

import json
import threading
from collections import defaultdict
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from kubelet import now
from rounds import is_of_the_world

from resources.cluster import JOBS, PODS, ApiError, Cluster, Object

KEPT, OWNER = "lab.marin/spec", "lab.marin/job-uid"
"""Not the Job controller's own label: it would adopt such pods, and with no parallelism delete them."""
ALL_JOBS = "/apis/batch/v1/jobs"
INDEX = "batch.kubernetes.io/job-completion-index"
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive"}


class IndexedJobs:
    """Runs while the context is open; `errors` has the errors that must not end a round (`rounds.py`)."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.stopping = threading.Event()
        self.errors: list[str] = []
        self.pods: dict[str, dict[str, Object]] = defaultdict(dict)
        """The pods of each Job by uid: those that exist, and those that had ended before they were deleted."""

    def __enter__(self) -> "IndexedJobs":
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.cluster))
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.server.serve_forever, self._loop)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        for thread in self.threads:
            thread.join()

    def front(self, cluster: Cluster) -> Cluster:
        """Return a cluster as launchers reach it: the same namespace and account, through the front."""
        return replace(cluster, server=f"http://127.0.0.1:{self.server.server_port}", ca_file=None)

    def _loop(self) -> None:
        while not self.stopping.wait(0.2):
            try:
                for job in self.cluster.find(ALL_JOBS):
                    if KEPT in (job["metadata"].get("annotations") or {}):
                        cluster = replace(self.cluster, namespace=job["metadata"]["namespace"])
                        _sync(cluster, job, self.pods[job["metadata"]["uid"]])
            except (ApiError, requests.RequestException) as error:
                if not is_of_the_world(error):
                    self.errors.append(str(error))


def _sync(cluster: Cluster, job: Object, known: dict[str, Object]) -> None:
    """Run one round of one Job. `known` has its pods of earlier rounds."""
    if "deletionTimestamp" in job["metadata"] or job.get("status", {}).get("conditions"):
        return
    spec = json.loads(job["metadata"]["annotations"][KEPT])
    pods: dict[int, list[Object]] = defaultdict(list)
    listed = {pod["metadata"]["uid"]: pod for pod in cluster.find(PODS, f"{OWNER}={job['metadata']['uid']}")}
    for uid in known.keys() - listed.keys():
        if known[uid]["status"].get("phase") not in ("Succeeded", "Failed"):
            del known[uid]
    known |= listed
    for pod in known.values():
        pods[int(pod["metadata"]["annotations"][INDEX])].append(pod)
    done, failed, active = [], [], 0
    for index in range(spec["completions"]):
        phases = [pod["status"].get("phase", "Pending") for pod in pods[index]]
        counted = [p for p in pods[index] if p["status"].get("phase") == "Failed" and not _ignored(spec, p)]
        if "Succeeded" in phases:
            done.append(index)
        elif len(counted) > spec.get("backoffLimitPerIndex", 0):
            failed.append(index)
        elif any(phase in ("Pending", "Running") for phase in phases):
            active += 1
        elif active < spec["parallelism"]:
            active += 1
            _create_pod(cluster, job, spec, index, len(phases))
    if len(done) + len(failed) == spec["completions"]:
        kind, reason = ("Failed", "FailedIndexes") if failed else ("Complete", "")
        condition = {"type": kind, "status": "True", "reason": reason, "message": f"failed indexes: {failed}"}
        path = f"{JOBS.format(namespace=cluster.namespace)}/{job['metadata']['name']}/status"
        ended = {} if failed else {"completionTime": now()}  # which only a Job that succeeded has
        counts = {"startTime": job["metadata"]["creationTimestamp"], "succeeded": len(done), "failed": len(failed)}
        cluster.merge(path, {"status": {"conditions": [condition], **counts, **ended}})


def _ignored(spec: Object, pod: Object) -> bool:
    """Return whether podFailurePolicy ignores this pod's end. Our Indexed Jobs have only rules of this kind."""
    patterns_of = [rule["onPodConditions"] for rule in spec["podFailurePolicy"]["rules"] if rule["action"] == "Ignore"]
    conditions = {(c["type"], c["status"]) for c in pod["status"].get("conditions", [])}
    return any((c["type"], c["status"]) in conditions for patterns in patterns_of for c in patterns)


def _create_pod(cluster: Cluster, job: Object, spec: Object, index: int, number: int) -> None:
    template = json.loads(json.dumps(spec["template"]))
    metadata = template.setdefault("metadata", {})
    owner = {key: job["metadata"][key] for key in ("name", "uid")}
    owner |= {"apiVersion": "batch/v1", "kind": "Job", "controller": False, "blockOwnerDeletion": True}
    metadata |= {
        "name": f"{job['metadata']['name']}-{index}-{number}{job['metadata']['uid'][:4]}",  # not of an earlier Job of this name
        "labels": {**metadata.get("labels", {}), OWNER: job["metadata"]["uid"]},
        "annotations": {**metadata.get("annotations", {}), INDEX: str(index)},
        "ownerReferences": [owner],
    }
    field = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    for container in template["spec"]["containers"]:
        container["env"] = [*container.get("env", []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": field}]
    try:
        cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", **template})
    except ApiError as error:
        if error.status != 409:  # it exists already: the list was older
            raise


def _handler(upstream: Cluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Log no requests on stderr."""

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command == "POST" and self.path.endswith("/jobs"):
                body = _kept(body)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in {*HOP_BY_HOP, "host", "accept-encoding"}}
            verify = upstream.ca_file or True
            url = upstream.server + self.path
            try:
                answer = upstream.session.request(self.command, url, data=body, headers=headers, verify=verify, timeout=30)
            except requests.RequestException:
                self.close_connection = True  # as the server itself answers for a missing object
                return
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass_on  # noqa: N815 (names that the base class calls)

    return Handler


def _kept(body: bytes) -> bytes:
    """Return a new Job in a form that the old server accepts; a Job that is not Indexed stays as it is."""
    job = json.loads(body)
    if job["spec"].get("completionMode") != "Indexed":
        return body
    job["metadata"].setdefault("annotations", {})[KEPT] = json.dumps(job["spec"])
    job["spec"]["parallelism"] = 0
    return json.dumps(job).encode()
