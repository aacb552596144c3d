"""The launcher of clusters: one identity is one job, made once, adopted by whoever asks again, watched to its end.

State is kept on the job's object, in annotations, not in this process: the step that watches may die at any moment, and the
next one goes on where it was, the account of failures included. What a job made is never asked here; it is in the store.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from lineage.jobs import Launch, Launched
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
    """A job failed for good: every attempt is named."""


@dataclass(frozen=True)
class KubernetesLauncher:
    """Runs a job on a cluster: a Job where one host is asked for, a JobSet where several are."""

    cluster: Cluster
    settings: ClusterSettings
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    poll_seconds: float = 2.0
    stuck_seconds: float = 300.0
    """How long a pod may wait for an image or with a bad configuration before that is a failure."""

    is_cancelled: Callable[[], bool] = lambda: False
    """Asked when this process is interrupted: did a user cancel, or does only the step die?"""

    def __call__(self, launch: Launch) -> Launched:
        """Run to the end. Raises: LaunchRefusedError; JobFailedError; ApiError on a manifest that is not valid."""
        shape = self.settings.choose(alternatives(launch.hardware or ("cpu",)))
        start = start_of(self.cluster, self.settings, launch, shape, min(self.poll_seconds, 0.5))
        try:
            return self._run(launch, start)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._interrupted(launch, start.kind)
            raise

    def submit(self, launch: Launch, start: Start) -> Object:
        """Create the job, or adopt the one that is there: the object. A finished one makes room for a new one."""
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
                if found is not None:  # whoever deleted it may have died before it made the next: its account goes on
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
            attempt, history = int(annotations(found)[ATTEMPT]) + 1, to_json(())  # pods of the old one may linger
            self.cluster.delete(kind.collection, name, found["metadata"]["uid"], policy=kind.deletion)
        self._give_job_file(launch, made)
        return made

    def _run(self, launch: Launch, start: Start) -> Launched:
        shape, kind = start.shape, start.kind
        submitted = self.submit(launch, start)
        while True:
            number = int(annotations(submitted)[ATTEMPT])
            history = from_json(annotations(submitted)[HISTORY])
            if JUDGED not in annotations(submitted):  # else the step that judged it died before it made the next
                watch = PodWatch(self.cluster, launch, number)
                started = time.monotonic()
                verdict = self._follow(launch, kind, submitted, watch)
                if verdict is None:
                    attempts = (*attempts_before(history, number), *watch.attempts())
                    place = f"{kind.name} {self.cluster.namespace}/{object_name(launch)}"
                    return Launched(place, annotations(submitted)[HARDWARE], attempts)
                failed = Failed(verdict, max(watch.seconds(), time.monotonic() - started))
                history = (*history, failed)[-KEPT_FAILURES:]
                # Before the object goes: a step that dies then takes no failure with it.
                self._note(launch, kind, submitted, {HISTORY: to_json(history), JUDGED: "yes"})
            decision = decide(history, self.policy)
            log.warning("%s: attempt %d failed after %.0f s: %s", launch.name, number, history[-1].seconds, decision.why)
            if decision.wait_seconds is None:
                self._give_up(launch, kind, submitted, number, history, decision)
            time.sleep(decision.wait_seconds)
            submitted = self._again(launch, shape, kind, submitted, number + 1, history)

    def _follow(self, launch: Launch, kind: Kind, submitted: Object, watch: PodWatch) -> Verdict | None:
        """Watch until the job ends; None when it is done."""
        while True:
            watch.look()
            found = self.cluster.get(kind.collection, object_name(launch))
            if found is None or found["metadata"]["uid"] != submitted["metadata"]["uid"]:
                raise JobFailedError(f"{launch.name}: {kind.name} {object_name(launch)} was deleted by someone else")
            state = state_of(kind, found)
            if state != "active":
                watch.look()  # what came between the two looks: the last lines, the last pod's end
            if state == "done":
                return None
            stuck = watch.stuck_for() >= self.stuck_seconds
            if state == "failed" or stuck:
                return classify(watch.evidence(stuck=stuck), gang=kind.gang)
            time.sleep(self.poll_seconds)

    def _note(self, launch: Launch, kind: Kind, submitted: Object, told: Mapping[str, str]) -> None:
        """Write on a failed attempt's object, unless another watcher has made the next one, which has the account."""
        name, uid = object_name(launch), submitted["metadata"]["uid"]
        try:
            self.cluster.annotate(kind.collection, name, uid, told)
        except ApiError:
            found = self.cluster.get(kind.collection, name)
            if found is not None and found["metadata"]["uid"] == uid:
                raise

    def _again(
        self, launch: Launch, shape: Hardware, kind: Kind, old: Object, number: int, history: Sequence[Failed]
    ) -> Object:
        """The next attempt's object in place of the failed one; another watcher's, if that was quicker."""
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

    def _give_job_file(self, launch: Launch, owner: Object) -> None:
        """The job file of this object, once that of an older one is gone with it. Raises: LaunchRefusedError when it stays."""
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
        self, launch: Launch, kind: Kind, submitted: Object, number: int, history: Sequence[Failed], decision: Decision
    ) -> NoReturn:
        """Say so on the object, which stays to be looked at; one whose pods still wait to start goes."""
        name = object_name(launch)
        self._note(launch, kind, submitted, {VERDICT: decision.why[:2000], HISTORY: to_json(history)})
        found = self.cluster.get(kind.collection, name)
        if found is not None and state_of(kind, found) == "active":
            self.cluster.delete(kind.collection, name, submitted["metadata"]["uid"], policy=kind.deletion)
        tried = "\n".join(f"  {a.number}. after {a.seconds:.0f} s: {a.ended}" for a in attempts_before(history, number + 1))
        raise JobFailedError(f"{launch.name}: {kind.name} {name} failed: {decision.why}\n{tried}\nIts log: {launch.log_path}")

    def _interrupted(self, launch: Launch, kind: Kind) -> None:
        name = object_name(launch)
        if not self.is_cancelled():
            log.warning("%s: this step ends, %s %s goes on; the next launch adopts it", launch.name, kind.name, name)
            return
        found = self.cluster.get(kind.collection, name)
        if found is not None and not differences(launch, self.settings, found):
            log.warning("%s: cancelled by a user: %s %s is deleted", launch.name, kind.name, name)
            self.cluster.delete(kind.collection, name, found["metadata"]["uid"], policy=kind.deletion)
