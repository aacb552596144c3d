"""The launcher of clusters: one identity is one job; it is created once, adopted by later launches, and watched to its end.

State is in annotations of the job's object, not in this process: the watching step may die at any moment, and the next one
continues, with the account of failures. The result of a job is in the store and is not examined here.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from lineage.jobs.job import JobFailedError, LaunchRecord, LaunchRequest
from recipes.hardware import Hardware, alternatives
from resources.cluster import ApiError, Cluster, Object
from resources.cluster_settings import ClusterSettings
from resources.failures import Decision, Failed, RetryPolicy, Verdict, classify, decide
from resources.job_account import (
    KEPT_FAILURES,
    annotations,
    attempts_before,
    differences,
    from_json,
    refuse_other,
    to_json,
)
from resources.job_files import JobFiles
from resources.job_kinds import JOB, JOBSET, Kind, Start, start_of, state_of
from resources.manifests import ATTEMPT, HARDWARE, HISTORY, JUDGED, VERDICT, object_name
from resources.pod_watch import PodWatch
from resources.waiting import Waiting, WaitLimits

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KubernetesLauncher:
    """Run a job on a cluster: a Job on one host, a JobSet on several."""

    cluster: Cluster
    settings: ClusterSettings
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    poll_seconds: float = 2.0
    stuck_seconds: float = 300.0
    """Seconds that a pod may wait for an image, or with a bad configuration, before that is a failure."""

    is_cancelled: Callable[[], bool] = lambda: False
    """Called when this process is interrupted: True if a user cancelled, False if only the step ends."""

    @property
    def _files(self) -> JobFiles:
        return JobFiles(self.cluster, self.settings, self.stuck_seconds, min(self.poll_seconds, 0.5))

    def __call__(self, launch: LaunchRequest) -> LaunchRecord:
        """Run a job to its end. Raises: LaunchRefusedError; JobFailedError; ApiError for a manifest that is not valid."""
        shape = self.settings.choose(alternatives(launch.hardware or ("cpu",)))
        start = start_of(self.cluster, self.settings, launch, shape, min(self.poll_seconds, 0.5))
        try:
            return self._run(launch, start)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._interrupted(launch)
            raise

    def submit(self, launch: LaunchRequest, start: Start) -> tuple[Start, Object]:
        """Create the job or adopt the existing one. Returns how it started, and its object. A finished job is replaced.

        Its job file is there before it: a job that never gets one would hold its nodes for nothing.
        """
        name = object_name(launch)
        while True:
            kind = start.kind
            existing = self.cluster.get(kind.collection, name)
            if existing is None:
                start = self._files.claim(launch, start)
                body = start.kind.render(launch, start.shape, self.settings, start.attempt, start.history)
                try:
                    job = self.cluster.create(start.kind.collection, body)
                except ApiError as error:
                    if error.status != 409:
                        raise
                    self._pause()
                    continue
                fields = (launch.name, start.kind.name, name, start.shape.name, start.attempt)
                log.info("%s: %s %s created on %s, attempt %d", *fields)
                break
            if "deletionTimestamp" in existing["metadata"]:
                # Its watcher may have died between deletion and creation: the account continues.
                recorded = annotations(existing)
                ours = JUDGED in recorded and VERDICT not in recorded and not differences(launch, self.settings, existing)
                history = recorded[HISTORY] if ours else start.history
                start = replace(start, attempt=int(recorded[ATTEMPT]) + 1, history=history)
                self._pause()
                continue
            state = state_of(kind, existing)
            if state == "active":
                refuse_other(launch, self.settings, kind.name, existing)
            unjudged = (
                state == "failed" and VERDICT not in annotations(existing) and not differences(launch, self.settings, existing)
            )
            if state == "active" or unjudged:
                log.info("%s: %s %s is there (%s): adopted", launch.name, kind.name, name, state)
                job = existing
                break
            log.info("%s: %s %s of an earlier launch is %s: replaced", launch.name, kind.name, name, state)
            # Pods of the old job may still exist, and its job file has its number in the name.
            start = replace(start, attempt=int(annotations(existing)[ATTEMPT]) + 1, history=to_json(()))
            self.cluster.delete(kind.collection, name, existing["metadata"]["uid"], policy=kind.deletion)
        self._files.give(launch, start.shape, job)
        return start, job

    def _run(self, launch: LaunchRequest, start: Start) -> LaunchRecord:
        start, submitted = self.submit(launch, start)
        shape, kind = start.shape, start.kind
        while True:
            number = int(annotations(submitted)[ATTEMPT])
            history = from_json(annotations(submitted)[HISTORY])
            if JUDGED not in annotations(submitted):  # else the step that judged it died before it created the next
                watch = PodWatch(self.cluster, launch, number)
                started = time.monotonic()
                verdict = self._follow(launch, kind, submitted, watch)
                if verdict is None:
                    attempts = (*attempts_before(history, number), *watch.attempts())
                    place = f"{kind.name} {self.cluster.namespace}/{object_name(launch)}"
                    return LaunchRecord(place, annotations(submitted)[HARDWARE], attempts)
                failed = Failed(verdict, max(watch.seconds(), time.monotonic() - started))
                history = (*history, failed)[-KEPT_FAILURES:]
                # Before the object is deleted, so that no failure is lost if this step dies.
                self._note(launch, kind, submitted, {HISTORY: to_json(history), JUDGED: "yes"})
            decision = decide(history, self.policy)
            log.warning("%s: attempt %d failed after %.0f s: %s", launch.name, number, history[-1].seconds, decision.why)
            if decision.wait_seconds is None:
                self._give_up(launch, kind, submitted, number, history, decision)
            time.sleep(decision.wait_seconds)
            submitted = self._again(launch, shape, kind, submitted, number + 1, history)

    def _follow(self, launch: LaunchRequest, kind: Kind, submitted: Object, watch: PodWatch) -> Verdict | None:
        """Watch until the job ends. Returns the failure, or None if it is done."""
        limits = WaitLimits(self.stuck_seconds, self.settings.start_seconds, self.settings.machine_seconds)
        waiting = Waiting(self.cluster, launch.name, limits)
        while True:
            watch.look()
            existing = self.cluster.get(kind.collection, object_name(launch))
            if existing is None or existing["metadata"]["uid"] != submitted["metadata"]["uid"]:
                raise JobFailedError(f"{launch.name}: {kind.name} {object_name(launch)} was deleted by someone else")
            state = state_of(kind, existing)
            if state != "active":
                watch.look()  # what happened between the two looks: the last lines, the last pod's end
            if state == "done":
                return None
            if state == "failed":
                return classify(watch.evidence(stuck=False), gang=kind.gang)
            given_up = waiting.look(existing, watch.here())
            if given_up is not None:
                return classify(watch.evidence(stuck=True), gang=kind.gang) if given_up == "pods" else given_up
            evicted = watch.evictions()
            if len(evicted) >= self.policy.max_identical:
                message = evicted[-1]["status"].get("message", "")
                return Verdict("permanent", "evictions", f"its pods were evicted {len(evicted)} times: {message}")
            time.sleep(self.poll_seconds)

    def _note(self, launch: LaunchRequest, kind: Kind, submitted: Object, notes: Mapping[str, str]) -> None:
        """Annotate a failed attempt's object, unless another watcher has created the next one, which has the account."""
        name, uid = object_name(launch), submitted["metadata"]["uid"]
        try:
            self.cluster.annotate(kind.collection, name, uid, notes)
        except ApiError:
            existing = self.cluster.get(kind.collection, name)
            if existing is not None and existing["metadata"]["uid"] == uid:
                raise

    def _again(
        self, launch: LaunchRequest, shape: Hardware, kind: Kind, old: Object, number: int, history: Sequence[Failed]
    ) -> Object:
        """Replace the failed attempt's object by the next one, or return another watcher's if that was first."""
        name = object_name(launch)
        self._files.claim(launch, Start(shape, kind, number))  # before the old object goes: it has the account
        self.cluster.delete(kind.collection, name, old["metadata"]["uid"], policy=kind.deletion)
        body = kind.render(launch, shape, self.settings, number, to_json(history))
        while True:
            try:
                job = self.cluster.create(kind.collection, body)
                break
            except ApiError as error:
                if error.status != 409:
                    raise
                existing = self.cluster.get(kind.collection, name)
                if existing is not None and existing["metadata"]["uid"] != old["metadata"]["uid"]:
                    job = existing
                    break
                self._pause()
        self._files.give(launch, shape, job)
        log.info("%s: attempt %d", launch.name, number)
        return job

    def _pause(self) -> None:
        time.sleep(min(self.poll_seconds, 0.5))

    def _give_up(
        self, launch: LaunchRequest, kind: Kind, submitted: Object, number: int, history: Sequence[Failed], decision: Decision
    ) -> NoReturn:
        """Record the final failure on the object, which is kept for inspection. It is deleted if its pods still wait to
        start."""
        name = object_name(launch)
        self._note(launch, kind, submitted, {VERDICT: decision.why[:2000], HISTORY: to_json(history)})
        existing = self.cluster.get(kind.collection, name)
        if existing is not None and state_of(kind, existing) == "active":
            self.cluster.delete(kind.collection, name, submitted["metadata"]["uid"], policy=kind.deletion)
        attempts = tuple(attempts_before(history, number + 1))
        tried = "\n".join(f"  {a.number}. after {a.seconds:.0f} s: {a.ended}" for a in attempts)
        launched = LaunchRecord(f"{kind.name} {self.cluster.namespace}/{name}", annotations(submitted)[HARDWARE], attempts)
        message = f"{launch.name}: {kind.name} {name} failed: {decision.why}\n{tried}\nIts log: {launch.log_path}"
        raise JobFailedError(message, launched)

    def _interrupted(self, launch: LaunchRequest) -> None:
        """Leave the job, or delete it if a user cancels: whatever kind it became."""
        name = object_name(launch)
        if not self.is_cancelled():
            log.warning("%s: this step ends, the job %s continues; the next launch adopts it", launch.name, name)
            return
        for kind in (JOB, JOBSET):
            existing = self.cluster.get(kind.collection, name)
            if existing is not None and not differences(launch, self.settings, existing):
                log.warning("%s: cancelled by a user: %s %s is deleted", launch.name, kind.name, name)
                self.cluster.delete(kind.collection, name, existing["metadata"]["uid"], policy=kind.deletion)
