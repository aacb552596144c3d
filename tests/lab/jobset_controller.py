"""A JobSet controller for tests: enough of jobset.x-k8s.io/v1alpha2 to run gangs on an API server without Indexed Jobs.

For every replica it creates the pods with JobSet's names, labels, host names and indices, and then a Job with a manual
selector; the Job's real controller adopts and counts the pods. It restarts all pods or none, by podFailurePolicy and
failurePolicy.
It lacks features of the real controller: success policy, start-up order, suspension, restart in place.
"""

import copy
import threading
import time
from dataclasses import replace
from typing import Any

import requests
from rounds import is_of_the_world

from resources.cluster import JOBS, JOBSETS, PODS, ApiError, Cluster, Object

WORD = "jobset.sigs.k8s.io/"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ALL = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
REPLICATED = {**OPEN, "required": ["name", "template"], "properties": {"replicas": {"type": "integer"}}}
SPEC = {**OPEN, "required": ["replicatedJobs"], "properties": {"replicatedJobs": {"type": "array", "items": REPLICATED}}}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io"},
    "spec": {
        "group": "jobset.x-k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "jobsets", "singular": "jobset", "kind": "JobSet", "listKind": "JobSetList"},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": OPEN}}},
            }
        ],
    },
}


class JobSetController:
    """Runs while the context is open; `errors` has the errors that must not end a round (`rounds.py`)."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.stopping = threading.Event()
        self.errors: list[str] = []

    def __enter__(self) -> "JobSetController":
        self.cluster.create(CRDS, CRD)
        while not self._is_served():
            time.sleep(0.1)
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        self.thread.join()

    def _is_served(self) -> bool:
        try:
            self.cluster.find(ALL)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    def _loop(self) -> None:
        while not self.stopping.wait(0.2):
            try:
                for jobset in self.cluster.find(ALL):
                    Gang(replace(self.cluster, namespace=jobset["metadata"]["namespace"]), jobset).sync()
            except (ApiError, requests.RequestException) as error:
                if not is_of_the_world(error):
                    self.errors.append(str(error))


class Gang:
    """One JobSet in one round."""

    def __init__(self, cluster: Cluster, jobset: Object):
        self.cluster, self.jobset = cluster, jobset
        self.name, self.status = jobset["metadata"]["name"], jobset.get("status", {})
        self.attempt = self.status.get("restarts", 0)

    def sync(self) -> None:
        if self.status.get("terminalState") or "deletionTimestamp" in self.jobset["metadata"]:
            return
        selector = f"{WORD}jobset-name={self.name}"
        jobs, pods = self.cluster.find(JOBS, selector), self.cluster.find(PODS, selector)
        if self._clear_old(jobs, pods):
            return
        failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"]
        if failed or any(_has(job, "Failed") for job in jobs):
            self._on_failure(failed)
        elif len(jobs) < sum(each.get("replicas", 1) for each in self.jobset["spec"]["replicatedJobs"]):
            self._create({item["metadata"]["name"] for item in (*jobs, *pods)})
        elif all(_has(job, "Complete") for job in jobs):
            self._finish("Completed", "AllJobsCompleted")

    def _clear_old(self, jobs: list[Object], pods: list[Object]) -> bool:
        """Delete the objects of an earlier attempt, and return whether any existed. A new attempt starts when all are gone."""
        old = [(JOBS, job) for job in jobs if self._is_old(job)] + [(PODS, pod) for pod in pods if self._is_old(pod)]
        for collection, item in old:
            if "deletionTimestamp" not in item["metadata"]:
                self.cluster.delete(collection, item["metadata"]["name"])
        return bool(old)

    def _is_old(self, item: Object) -> bool:
        return item["metadata"]["labels"][f"{WORD}restart-attempt"] != str(self.attempt)

    def _on_failure(self, failed: list[Object]) -> None:
        rules = {each["name"]: _rules(each) for each in self.jobset["spec"]["replicatedJobs"]}
        by_policy = any(
            _matches(rule, pod)
            for pod in failed
            if "deletionTimestamp" not in pod["metadata"]  # peers that the Job stops after a failure explain nothing
            for rule in rules[pod["metadata"]["labels"][f"{WORD}replicatedjob-name"]]
        )
        why = "PodFailurePolicy" if by_policy else "BackoffLimitExceeded"
        policy = self.jobset["spec"].get("failurePolicy", {})
        actions = [rule["action"] for rule in policy.get("rules", []) if why in rule.get("onJobFailureReasons", [why])]
        free = actions[:1] == ["RestartJobSetAndIgnoreMaxRestarts"]
        counted = self.status.get("restartsCountTowardsMax", 0)
        if not free and counted >= policy.get("maxRestarts", 0):
            self._finish("Failed", "ReachedMaxRestarts")
        else:
            self._patch({"restarts": self.attempt + 1, "restartsCountTowardsMax": counted + (not free)})

    def _finish(self, state: str, reason: str) -> None:
        condition = {"type": state, "status": "True", "reason": reason, "message": reason}
        self._patch({"terminalState": state, "conditions": [condition]})

    def _patch(self, status: dict[str, Any]) -> None:
        path = JOBSETS.format(namespace=self.cluster.namespace)
        self.cluster.merge(f"{path}/{self.name}/status", {"status": {**self.status, **status}})

    def _create(self, there: set[str]) -> None:
        reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True, "blockOwnerDeletion": True}
        owner = reference | {key: self.jobset["metadata"][key] for key in ("name", "uid")}
        for each in self.jobset["spec"]["replicatedJobs"]:
            for index in range(each.get("replicas", 1)):
                name = f"{self.name}-{each['name']}-{index}"
                if name not in there:
                    self._create_job(name, each, index, owner, there)

    def _create_job(self, name: str, each: Object, index: int, owner: Object, there: set[str]) -> None:
        labels = {
            f"{WORD}jobset-name": self.name, f"{WORD}replicatedjob-name": each["name"], f"{WORD}job-index": str(index),
            f"{WORD}restart-attempt": str(self.attempt), "job-name": name,
        }  # fmt: skip
        spec = each["template"]["spec"]
        template = copy.deepcopy(spec["template"])
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
        for rank in range(spec["parallelism"]):
            pod_name = f"{name}-{rank}-{self.attempt}"
            if pod_name not in there:
                pod = copy.deepcopy(template)
                pod["spec"] |= {"hostname": f"{name}-{rank}", "subdomain": self.name}
                completion = {"batch.kubernetes.io/job-completion-index": str(rank)}
                pod["metadata"] |= {"name": pod_name, "annotations": {**metadata.get("annotations", {}), **completion}}
                self.cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
        hosts = {key: spec[key] for key in ("parallelism", "completions", "backoffLimit")}
        selector = {"matchLabels": {"job-name": name, f"{WORD}restart-attempt": str(self.attempt)}}
        body = {**hosts, "manualSelector": True, "selector": selector, "template": _of_nobody(template, labels)}
        job_metadata = {"name": name, "labels": labels, "ownerReferences": [owner]}
        self.cluster.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": job_metadata, "spec": body})


def _of_nobody(template: Object, labels: dict[str, str]) -> Object:
    """Return the template of pods that the Job controller makes before it sees ours: never scheduled, and deleted first."""
    nowhere = {**template["spec"], "nodeSelector": {f"{WORD}nowhere": "true"}}
    return {"metadata": {"labels": labels}, "spec": nowhere}


def _has(item: Object, condition: str) -> bool:
    conditions = item.get("status", {}).get("conditions", [])
    return any(condition_now["type"] == condition and condition_now["status"] == "True" for condition_now in conditions)


def _rules(each: Object) -> list[Object]:
    """Return the rules of a replicated job's podFailurePolicy that fail the job."""
    rules = each["template"]["spec"].get("podFailurePolicy", {}).get("rules", [])
    return [rule for rule in rules if rule["action"] == "FailJob"]


def _matches(rule: Object, pod: Object) -> bool:
    status = pod["status"]
    if "onExitCodes" in rule:
        wanted = rule["onExitCodes"]
        ended = [container.get("state", {}).get("terminated") for container in status.get("containerStatuses", [])]
        return any(
            end["exitCode"] and (end["exitCode"] in wanted["values"]) == (wanted["operator"] == "In") for end in ended if end
        )
    return any(
        condition["type"] == pattern["type"] and condition["status"] == pattern.get("status", "True")
        for condition in status.get("conditions", [])
        for pattern in rule.get("onPodConditions", [])
    )
