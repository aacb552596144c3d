"""Make many artifacts in one launch, by a job list in place of a job for each.

For launchers whose start costs more than a job does, as that of a pod. Gates, claims, bytes and manifests are those of `build`;
each attempt has a summary of its own, with an equal share of what the launch cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from lineage.artifact.manifest import ResourceUse
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Memo, Node
from lineage.build.plan import Built, How, ToMake, prepare
from lineage.jobs.claims import check_inputs_stay
from lineage.jobs.given_jobs import started_job
from lineage.jobs.job import Job, JobFailedError, JobOptions, Launcher, LaunchRecord
from lineage.jobs.job_list import launch_list, name_in_list
from lineage.jobs.summary import StepSummary, begin, end
from lineage.messages import ProgressMessage
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.shards.measure import measuring

type Ended = Callable[[Node, Built | Exception], None]
type Heard = Callable[[Node, ProgressMessage], None]


def build_together(
    store: Store,
    nodes: Sequence[Node],
    launcher: Launcher,
    ended: Ended,
    heard: Heard,
    *,
    execution: Execution = ONE_WORKER,
    run_id: str = "",
) -> None:
    """Make the artifacts of nodes whose jobs run in one process, and give each to `ended`, or the error for which it is not
    there.

    `ended` is called once for each node, when the process starts a later job, or else at the end. `heard` receives the messages
    of the job that runs. A job that fails leaves the others their turn. Nodes that differ in module, hardware or arguments are
    launched apart, one kind after another. Raises: what interrupts a launch.
    """
    kinds: list[list[Node]] = []
    for node in nodes:
        kind = next((kind for kind in kinds if _kind_of(kind[0]) == _kind_of(node)), None)
        if kind is None:
            kinds.append(kind := [])
        kind.append(node)
    for kind in kinds:
        asked, started = _prepare(store, kind, How(execution, launcher, None, None, run_id), ended)
        if started:
            if execution.pool is not None:
                execution.pool.end()  # as in `build`
            running = started[0] if len(started) == 1 else None  # a process with one job does not name it
            _launch(_Started(store, started, ended, heard, running), asked, launcher)


def _kind_of(node: Node) -> tuple[str | None, JobOptions]:
    return node.stage.job, node.options


@dataclass
class _Making:
    node: Node
    job: Job
    summary: StepSummary
    is_reported: bool = False


def _prepare(store: Store, nodes: Sequence[Node], how: How, ended: Ended) -> tuple[list[str], list[_Making]]:
    """Return the identities of all nodes that can be made or are there, and what is to be made. The rest goes to `ended`."""
    asked, started, memo = [], [], Memo()
    for node in nodes:
        try:
            prepared = prepare(store, node, how, memo)
            if isinstance(prepared, ToMake):
                started.append(_start(store, node, prepared, how.run_id))
        except Exception as error:  # any: it is given to the caller under the node's name, and the others have their turn
            ended(node, error)
            continue
        asked.append(prepared.artifact.spec.version if isinstance(prepared, Built) else prepared.job.spec.version)
        if isinstance(prepared, Built):
            ended(node, prepared)
    return asked, started


def _start(store: Store, node: Node, prepared: ToMake, run_id: str) -> _Making:
    """Claim the inputs. Raises: BeingPurgedError."""
    spec = prepared.job.spec
    summary = begin(store, spec, run_id, prepared.hardware)
    try:
        check_inputs_stay(store, spec.name, spec.inputs)
    except BaseException as error:
        end(store, summary, ResourceUse(0.0, 0.0, 0), None, error)
        raise
    return _Making(node, prepared.job, summary)


@dataclass
class _Started:
    """The jobs of a launch, and the listener of its messages."""

    store: Store
    jobs: Sequence[_Making]
    ended: Ended
    heard: Heard
    running: _Making | None
    """The job whose start the process said last. A job list that was adopted may have jobs that are none of these."""

    def __call__(self, note: ProgressMessage) -> None:
        """Report what was made before the job that starts, and pass the message on."""
        name = started_job(note)
        if name is not None:
            self.running = next((making for making in self.jobs if name_in_list(making.job) == name), None)
            for making in takewhile(lambda making: making is not self.running, self.jobs):  # the process goes by this order
                if not making.is_reported:
                    self.report(making, self.store.find(making.job.spec), None)
        if self.running is not None:
            self.heard(self.running.node, note)

    def report(self, making: _Making, artifact: Artifact | None, launched: LaunchRecord | None) -> None:
        """Give an artifact to `ended`, once. If `ended` fails at a message, the launcher logs that, and it is called again."""
        if artifact is not None and not making.is_reported:
            self.ended(making.node, Built(artifact, reused=False, launched=launched))
            making.is_reported = True


def _launch(started: _Started, asked: Sequence[str], launcher: Launcher) -> None:
    first, jobs = started.jobs[0].node, [making.job for making in started.jobs]
    assert first.stage.job is not None  # `build_together` is for jobs
    failure: BaseException = RuntimeError(f"`python -m {first.stage.job}` exited 0 but committed nothing for it")
    launched: LaunchRecord | None = None
    with measuring() as meter:
        try:
            launched = launch_list(first.stage.job, jobs, asked, launcher, first.options, started)
        except BaseException as error:
            failure = error
            launched = error.launched if isinstance(error, JobFailedError) else None
    use = meter.use()
    use = replace(use, wall_seconds=use.wall_seconds / len(jobs), cpu_seconds=use.cpu_seconds / len(jobs))
    launched = None if launched is None else _share_of(launched, len(jobs))
    for making in started.jobs:
        artifact = started.store.find(making.job.spec)
        end(started.store, making.summary, use, launched, failure if artifact is None else None)
        started.report(making, artifact, launched)
        if artifact is None and isinstance(failure, Exception):
            started.ended(making.node, failure)
    if not isinstance(failure, Exception):
        raise failure


def _share_of(launched: LaunchRecord, count: int) -> LaunchRecord:
    attempts = tuple(replace(each, seconds=round(each.seconds / count, 3)) for each in launched.attempts)
    return replace(launched, attempts=attempts)
