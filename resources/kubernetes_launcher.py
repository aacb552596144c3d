"""The launcher of clusters: one identity is one job; it is created once, adopted by later launches, and watched to its end.

State is in annotations of the job's object, not in this process: the watching step may die at any moment, and the next one
continues, with the account of failures. The result of a job is in the store and is not examined here.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from lineage.jobs.job import LaunchRecord, LaunchRequest
from recipes.hardware import Hardware, alternatives
from resources.cluster import CONFIG_MAPS, ApiError, Cluster, Object
from resources.cluster_settings import ClusterSettings
from resources.failures import Decision, Failed, RetryPolicy, Verdict, classify, decide
from resources.job_account import (
    KEPT_FAILURES,
    LaunchRefusedError,
    annotations,
    attempts_before,
    differences,
    from_json,
    refuse_other,
    to_json,
)
from resources.job_kinds import Kind, Start, start_of, state_of
from resources.manifests import ATTEMPT, HARDWARE, HISTORY, JUDGED, VERDICT, job_file, object_name
from resources.pod_watch import PodWatch

log = logging.getLogger(__name__)


class JobFailedError(RuntimeError):
    """A job failed finally; the message lists every attempt."""


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

    def __call__(self, launch: LaunchRequest) -> LaunchRecord:
        """Run a job to its end. Raises: LaunchRefusedError; JobFailedError; ApiError for a manifest that is not valid."""
        shape = self.settings.choose(alternatives(launch.hardware or ("cpu",)))
        start = start_of(self.cluster, self.settings, launch, shape, min(self.poll_seconds, 0.5))
        try:
            return self._run(launch, start)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._interrupted(launch, start.kind)
            raise

    def submit(self, launch: LaunchRequest, start: Start) -> Object:
        """Create the job or adopt the existing one, and return its object. A finished job is replaced."""
        name, shape, kind, attempt, history = object_name(launch), start.shape, start.kind, start.attempt, start.history
        while True:
            body = kind.render(launch, shape, self.settings, attempt, history)
            try:
                made = self.cluster.create(kind.collection, body)
                log.info("%s: %s %s created on %s, attempt %d", launch.name, kind.name, name, shape.name, attempt)
                break
            except ApiError as error:
                if error.status != 409:
                    raise
            found = self.cluster.get(kind.collection, name)
            if found is None or "deletionTimestamp" in found["metadata"]:
                if found is not None:  # its watcher may have died between deletion and creation: the account continues
                    told = annotations(found)
                    attempt = int(told[ATTEMPT]) + 1
                    if JUDGED in told and VERDICT not in told and not differences(launch, self.settings, found):
                        history = told[HISTORY]
                time.sleep(min(self.poll_seconds, 0.5))
                continue
            state = state_of(kind, found)
            if state == "active":
                refuse_other(launch, self.settings, kind.name, found)
            unjudged = state == "failed" and VERDICT not in annotations(found) and not differences(launch, self.settings, found)
            if state == "active" or unjudged:
                log.info("%s: %s %s is there (%s): adopted", launch.name, kind.name, name, state)
                made = found
                break
            log.info("%s: %s %s of an earlier launch is %s: replaced", launch.name, kind.name, name, state)
            attempt, history = int(annotations(found)[ATTEMPT]) + 1, to_json(())  # pods of the old job may still exist
            self.cluster.delete(kind.collection, name, found["metadata"]["uid"], policy=kind.deletion)
        self._give_job_file(launch, made)
        return made

    def _run(self, launch: LaunchRequest, start: Start) -> LaunchRecord:
        shape, kind = start.shape, start.kind
        submitted = self.submit(launch, start)
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
        while True:
            watch.look()
            found = self.cluster.get(kind.collection, object_name(launch))
            if found is None or found["metadata"]["uid"] != submitted["metadata"]["uid"]:
                raise JobFailedError(f"{launch.name}: {kind.name} {object_name(launch)} was deleted by someone else")
            state = state_of(kind, found)
            if state != "active":
                watch.look()  # what happened between the two looks: the last lines, the last pod's end
            if state == "done":
                return None
            stuck = watch.stuck_for() >= self.stuck_seconds
            if state == "failed" or stuck:
                return classify(watch.evidence(stuck=stuck), gang=kind.gang)
            time.sleep(self.poll_seconds)

    def _note(self, launch: LaunchRequest, kind: Kind, submitted: Object, told: Mapping[str, str]) -> None:
        """Annotate a failed attempt's object, unless another watcher has created the next one, which has the account."""
        name, uid = object_name(launch), submitted["metadata"]["uid"]
        try:
            self.cluster.annotate(kind.collection, name, uid, told)
        except ApiError:
            found = self.cluster.get(kind.collection, name)
            if found is not None and found["metadata"]["uid"] == uid:
                raise

    def _again(
        self, launch: LaunchRequest, shape: Hardware, kind: Kind, old: Object, number: int, history: Sequence[Failed]
    ) -> Object:
        """Replace the failed attempt's object by the next one, or return another watcher's if that was first."""
        name = object_name(launch)
        self.cluster.delete(kind.collection, name, old["metadata"]["uid"], policy=kind.deletion)
        body = kind.render(launch, shape, self.settings, number, to_json(history))
        while True:
            try:
                made = self.cluster.create(kind.collection, body)
                break
            except ApiError as error:
                if error.status != 409:
                    raise
                found = self.cluster.get(kind.collection, name)
                if found is not None and found["metadata"]["uid"] != old["metadata"]["uid"]:
                    made = found
                    break
                time.sleep(min(self.poll_seconds, 0.5))
        self._give_job_file(launch, made)
        log.info("%s: attempt %d", launch.name, number)
        return made

    def _give_job_file(self, launch: LaunchRequest, owner: Object) -> None:
        """Create the job file of this object after an older object's file is gone. Raises: LaunchRefusedError if it does not
        go."""
        body = job_file(launch, owner)
        name = body["metadata"]["name"]
        end = time.monotonic() + self.stuck_seconds
        while True:
            try:
                self.cluster.create(CONFIG_MAPS, body)
                return
            except ApiError as error:
                if error.status != 409:
                    raise
            found = self.cluster.get(CONFIG_MAPS, name)
            owners = [] if found is None else [ref["uid"] for ref in found["metadata"].get("ownerReferences", [])]
            if owner["metadata"]["uid"] in owners:
                return
            if time.monotonic() > end:
                raise LaunchRefusedError(
                    f"{launch.name}: the ConfigMap {name} is of another object ({', '.join(owners) or 'nobody'}) and was not "
                    f"collected within {self.stuck_seconds:.0f} s; kubectl -n {self.cluster.namespace} delete configmap {name}"
                )
            time.sleep(min(self.poll_seconds, 0.5))

    def _give_up(
        self, launch: LaunchRequest, kind: Kind, submitted: Object, number: int, history: Sequence[Failed], decision: Decision
    ) -> NoReturn:
        """Record the final failure on the object, which is kept for inspection. It is deleted if its pods still wait to
        start."""
        name = object_name(launch)
        self._note(launch, kind, submitted, {VERDICT: decision.why[:2000], HISTORY: to_json(history)})
        found = self.cluster.get(kind.collection, name)
        if found is not None and state_of(kind, found) == "active":
            self.cluster.delete(kind.collection, name, submitted["metadata"]["uid"], policy=kind.deletion)
        tried = "\n".join(f"  {a.number}. after {a.seconds:.0f} s: {a.ended}" for a in attempts_before(history, number + 1))
        raise JobFailedError(f"{launch.name}: {kind.name} {name} failed: {decision.why}\n{tried}\nIts log: {launch.log_path}")

    def _interrupted(self, launch: LaunchRequest, kind: Kind) -> None:
        name = object_name(launch)
        if not self.is_cancelled():
            log.warning("%s: this step ends, %s %s continues; the next launch adopts it", launch.name, kind.name, name)
            return
        found = self.cluster.get(kind.collection, name)
        if found is not None and not differences(launch, self.settings, found):
            log.warning("%s: cancelled by a user: %s %s is deleted", launch.name, kind.name, name)
            self.cluster.delete(kind.collection, name, found["metadata"]["uid"], policy=kind.deletion)
