"""The launcher of clusters: one identity is one job, made once, adopted by whoever asks again, watched to its end.

State is kept on the job's object, in annotations, not in this process: the step that watches may die at any moment, and the
next one goes on where it was, the account of failures included. What a job made is never asked here; it is in the store.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from lineage.jobs import Attempt, Launch, Launched
from recipes.hardware import Hardware, alternatives
from resources.cluster import CONFIG_MAPS, JOBS, JOBSETS, ApiError, Cluster, Object
from resources.failures import Decision, Failed, RetryPolicy, Verdict, classify, decide
from resources.manifests import (
    ATTEMPT,
    HISTORY,
    VERDICT,
    ClusterSettings,
    Manifest,
    indexed_job_manifest,
    job_file,
    job_manifest,
    jobset_manifest,
    object_name,
    wanted,
)
from resources.pod_watch import PodWatch

log = logging.getLogger(__name__)

KEPT_FAILURES = 20
"""In the annotation, the newest ones; Kubernetes allows 256 KiB of annotations."""


class LaunchRefusedError(RuntimeError):
    """A job of the same name runs for something else."""


class JobFailedError(RuntimeError):
    """A job failed for good: every attempt is named."""


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
        if launch.indices and shape.pods > 1:
            raise ValueError(f"{launch.name}: {shape.name} is {shape.pods} hosts; each of several indices runs on one")
        kind = INDEXED if launch.indices else JOB if shape.pods == 1 else JOBSET
        try:
            return self._run(launch, shape, kind)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._interrupted(launch, kind)
            raise

    def submit(self, launch: Launch, shape: Hardware, kind: Kind) -> Object:
        """Create the job, or adopt the one that is there: the object. A finished one makes room for a new one."""
        name, attempt = object_name(launch), 1
        while True:
            body = kind.render(launch, shape, self.settings, attempt, _to_json(()))
            try:
                made = self.cluster.create(kind.collection, body)
                log.info("%s: %s %s created on %s, attempt %d", launch.name, kind.name, name, shape.name, attempt)
                break
            except ApiError as error:
                if error.status != 409:
                    raise
            found = self.cluster.get(kind.collection, name)
            if found is None or "deletionTimestamp" in found["metadata"]:
                if found is not None:  # whoever deleted it may have died before it made the next
                    attempt = int(_annotations(found)[ATTEMPT]) + 1
                time.sleep(min(self.poll_seconds, 0.5))
                continue
            state = state_of(kind, found)
            if state == "active":
                _refuse_other(launch, self.settings, kind, found)
            if state == "active" or (state == "failed" and VERDICT not in _annotations(found)):
                log.info("%s: %s %s is there (%s): adopted", launch.name, kind.name, name, state)
                made = found
                break
            log.info("%s: %s %s of an earlier launch is %s: replaced", launch.name, kind.name, name, state)
            attempt = int(_annotations(found)[ATTEMPT]) + 1  # its pods may linger, and are told apart by this
            self.cluster.delete(kind.collection, name, found["metadata"]["uid"], policy=kind.deletion)
        self._give_job_file(launch, made)
        return made

    def _run(self, launch: Launch, shape: Hardware, kind: Kind) -> Launched:
        submitted = self.submit(launch, shape, kind)
        while True:
            number = int(_annotations(submitted)[ATTEMPT])
            history = _from_json(_annotations(submitted)[HISTORY])
            watch = PodWatch(self.cluster, launch, number)
            started = time.monotonic()
            verdict = self._follow(launch, kind, submitted, watch)
            if verdict is None:
                attempts = (*_attempts(history, number), *watch.attempts())
                return Launched(f"{kind.name} {self.cluster.namespace}/{object_name(launch)}", shape.name, attempts)
            failed = Failed(verdict, max(watch.seconds(), time.monotonic() - started))
            history = (*history, failed)[-KEPT_FAILURES:]
            decision = decide(history, self.policy)
            log.warning("%s: attempt %d failed after %.0f s: %s", launch.name, number, failed.seconds, decision.why)
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

    def _again(
        self, launch: Launch, shape: Hardware, kind: Kind, old: Object, number: int, history: Sequence[Failed]
    ) -> Object:
        """The next attempt's object in place of the failed one; another watcher's, if that was quicker."""
        name = object_name(launch)
        self.cluster.delete(kind.collection, name, old["metadata"]["uid"], policy=kind.deletion)
        body = kind.render(launch, shape, self.settings, number, _to_json(history))
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
        """The job file of this object; one of an older object that still waits for its deletion is replaced."""
        body = job_file(launch, owner)
        name = body["metadata"]["name"]
        while True:
            try:
                self.cluster.create(CONFIG_MAPS, body)
                return
            except ApiError as error:
                if error.status != 409:
                    raise
            found = self.cluster.get(CONFIG_MAPS, name)
            if found is None:
                continue
            if any(ref["uid"] == owner["metadata"]["uid"] for ref in found["metadata"].get("ownerReferences", [])):
                return
            self.cluster.delete(CONFIG_MAPS, name, found["metadata"]["uid"])

    def _give_up(
        self, launch: Launch, kind: Kind, submitted: Object, number: int, history: Sequence[Failed], decision: Decision
    ) -> NoReturn:
        """Say so on the object, which stays to be looked at; one whose pods still wait to start goes."""
        name = object_name(launch)
        self.cluster.annotate(kind.collection, name, {VERDICT: decision.why[:2000], HISTORY: _to_json(history)})
        found = self.cluster.get(kind.collection, name)
        if found is not None and state_of(kind, found) == "active":
            self.cluster.delete(kind.collection, name, submitted["metadata"]["uid"], policy=kind.deletion)
        tried = "\n".join(f"  {a.number}. after {a.seconds:.0f} s: {a.ended}" for a in _attempts(history, number + 1))
        raise JobFailedError(f"{launch.name}: {kind.name} {name} failed: {decision.why}\n{tried}\nIts log: {launch.log_path}")

    def _interrupted(self, launch: Launch, kind: Kind) -> None:
        if self.is_cancelled():
            log.warning("%s: cancelled by a user: %s %s is deleted", launch.name, kind.name, object_name(launch))
            self.cluster.delete(kind.collection, object_name(launch), policy=kind.deletion)
        else:
            told = "%s: this step ends, %s %s goes on; the next launch adopts it"
            log.warning(told, launch.name, kind.name, object_name(launch))


def state_of(kind: Kind, found: Object) -> str:
    """`active`, `done` or `failed`."""
    conditions = found.get("status", {}).get("conditions") or []
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return "done" if kind.done in true else "failed" if "Failed" in true else "active"


def _refuse_other(launch: Launch, settings: ClusterSettings, kind: Kind, found: Object) -> None:
    """Raises: LaunchRefusedError naming what differs between a running job and what is to be launched."""
    has = _annotations(found)
    differs = [
        f"{name.rpartition('/')[2]} is {has.get(name, 'not given')}, this launch has {value}"
        for name, value in wanted(launch, settings).items()
        if has.get(name) != value
    ]
    if differs:
        name, namespace = object_name(launch), found["metadata"]["namespace"]
        raise LaunchRefusedError(
            f"{launch.name}: {kind.name} {name} runs already, for something else: {'; '.join(differs)}. "
            f"Wait for it, or stop it: kubectl -n {namespace} delete {kind.name.lower()} {name}"
        )


def _annotations(found: Object) -> dict[str, str]:
    return found["metadata"].get("annotations") or {}


def _attempts(history: Sequence[Failed], number: int) -> list[Attempt]:
    """The failed attempts before the one of a number."""
    first = number - len(history)
    return [Attempt(first + i, "", round(failed.seconds, 1), str(failed.verdict)) for i, failed in enumerate(history)]


def _to_json(history: Sequence[Failed]) -> str:
    return json.dumps([{"seconds": round(failed.seconds, 1), **asdict(failed.verdict)} for failed in history])


def _from_json(text: str) -> tuple[Failed, ...]:
    records: list[dict[str, Any]] = json.loads(text)
    return tuple(Failed(Verdict(r["kind"], r["cause"], r["because"]), r["seconds"]) for r in records)
