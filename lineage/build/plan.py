"""Build the artifacts of nodes: each once, from inputs that exist and are fit to build on.

The Dagster shell builds one node for each asset; benchmarks and tests build the same nodes without Dagster.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lineage.artifact.spec import InputRef, partition_address
from lineage.artifact.store import Artifact, Store
from lineage.build.fan_out import FanOut
from lineage.build.incomplete import incomplete_inputs
from lineage.build.nodes import Memo, MissingArtifactError, Node, ancestors_first, inputs_of, resolve_with, spec_with
from lineage.build.stage_run import run_here
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.claims import check_inputs_stay
from lineage.jobs.job import Inputs, Job, Launcher, LaunchRecord, Listener, run_job
from lineage.jobs.kept_process import runs_here
from lineage.jobs.regions import guard_reads
from lineage.jobs.summary import summarizing
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.trust.evidence import Drift, drift_of
from lineage.trust.fingerprint import stage_code
from lineage.trust.gate import Finding, GateError, apply_waivers, check_launch, utc_today

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """The result of `build`: the artifact, whether it was reused, and how its code has changed since."""

    artifact: Artifact
    reused: bool
    drift: Drift | None = None
    launched: LaunchRecord | None = None
    """Where it ran and every attempt, if a job or runners made it now."""

    @property
    def drifted(self) -> bool:
        """Whether the code has changed since, and no evidence shows that it makes the same bytes."""
        return self.drift is not None and not self.drift.is_cleared


def build(
    store: Store,
    node: Node,
    *,
    execution: Execution = ONE_WORKER,
    launcher: Launcher | None = None,
    fan_out: FanOut | None = None,
    listener: Listener | None = None,
    run_id: str = "",
) -> Built:
    """Make a node's artifact from existing inputs, or reuse the existing artifact.

    The `launcher` runs a stage that is a job. Shards of other stages run under `execution` in this process, or by runners if
    there is a `fan_out`. The `listener` receives progress messages of both.

    An existing artifact is reused whatever was found out about its ancestors since; one that lacks shards is completed.

    Raises: MissingArtifactError naming the first ancestor that does not exist; for a gated stage GateError naming all of
    them. For a new artifact of a gated stage GateError naming every ancestor that is not fit to build on; for any stage
    GateError naming inputs that lack shards;
    IncompleteError; ForeignReadError for reads from another region's bucket above the budget.
    """
    how = How(execution, launcher, fan_out, listener, run_id)
    return _build(store, node, how, Memo())


def build_all(
    store: Store,
    nodes: Iterable[Node],
    *,
    execution: Execution = ONE_WORKER,
    launcher: Launcher | None = None,
    run_id: str = "",
) -> list[Artifact]:
    """Make the artifacts of nodes and of all their ancestors, inputs first, or reuse them; return those of the nodes.

    An artifact is looked up once, however many nodes need it. Raises: as `build`.
    """
    wanted, memo = list(nodes), Memo()
    how = How(execution, launcher, None, None, run_id)
    for node in ancestors_first(wanted):
        memo.keep(node, _build(store, node, how, memo).artifact)
    return [resolve_with(store, node, memo) for node in wanted]


@dataclass(frozen=True)
class How:
    """How artifacts are made: the options of `build`."""

    execution: Execution
    launcher: Launcher | None
    fan_out: FanOut | None
    listener: Listener | None
    run_id: str


def _build(store: Store, node: Node, how: How, memo: Memo) -> Built:
    prepared = prepare(store, node, how, memo)
    if isinstance(prepared, Built):
        return prepared
    job, spec = prepared.job, prepared.job.spec
    log.info("%s: started (%s %s)", node.name, node.stage.name, node.stage.version)
    with summarizing(store, spec, how.run_id, prepared.hardware) as attempt:
        check_inputs_stay(store, spec.name, spec.inputs)
        if node.stage.job is None:
            guard_reads(store, spec.name, _flat(job.inputs))  # a job checks where it runs (`read_job`)
            artifact, attempt.launched = run_here(node.stage, node.config, job, prepared.lacking, how.fan_out, how.listener)
        else:
            if how.execution.pool is not None:
                how.execution.pool.end()  # the job may need the memory of idle workers, and cannot use them
            ran = run_job(node.stage.job, job, how.launcher or run_subprocess, node.options, how.listener)
            artifact, attempt.launched = ran.artifact, ran.launched
    use = artifact.manifest.resources
    log.info("%s: done in %.1f s, peak %.0f MiB", node.name, use.wall_seconds, use.peak_rss_bytes / 2**20)
    return Built(artifact, reused=False, launched=attempt.launched)


@dataclass(frozen=True)
class ToMake:
    """A job whose inputs are fit to build on. `lacking` is an artifact without some of its shards, which it completes."""

    job: Job
    hardware: str
    """What it asks of a launcher of a cluster; empty: the hardware of this machine."""
    lacking: Artifact | None


def prepare(store: Store, node: Node, how: How, memo: Memo) -> Built | ToMake:
    """Return the existing artifact of a node, or what makes it. Raises: as `build`, before any work starts."""
    if node.stage.gate is not None:
        _refuse_unresolved(store, node, memo)
    inputs = inputs_of(store, node, memo)
    spec = spec_with(node, inputs)
    code = stage_code(node.stage.module)
    existing = store.find(spec)
    if existing is not None and not existing.manifest.omitted:
        built = Built(existing, reused=True, drift=drift_of(existing, code))
        log.info("%s: reused, made %s%s", node.name, existing.manifest.created, _describe(built))
        return built
    if node.stage.gate is not None:
        waivers = check_launch(store, spec.name, spec.inputs, node.stage.gate, utc_today())
    else:
        waivers = apply_waivers(store, spec.name, incomplete_inputs(_flat(inputs)), utc_today())
    packages = tuple(code.packages)
    job = Job(store, spec, inputs, code.fingerprint, how.run_id, node.stage.gate, tuple(waivers), packages, how.execution)
    hardware = node.hardware[0] if node.hardware and not runs_here(how.launcher) else ""
    return ToMake(job, hardware, existing)


def _flat(inputs: Inputs) -> Iterator[Artifact]:
    for value in inputs.values():
        yield from value if isinstance(value, tuple) else (value,)


def _describe(built: Built) -> str:
    if built.drift is None:
        return ""
    return f", {'code drifted since' if built.drifted else 'code changed since'}: {built.drift}"


def _refuse_unresolved(store: Store, node: Node, memo: Memo) -> None:
    """Refuse if ancestors are missing or stale.

    Raises: GateError naming each of them. Descendants of a missing ancestor are not checked."""
    unresolved: set[tuple[tuple[str, ...], str | None]] = set()
    findings = []
    for ancestor in ancestors_first([node])[:-1]:
        place = (ancestor.key, ancestor.partition)
        if any((parent.key, parent.partition) in unresolved for parent in ancestor.parents()):
            unresolved.add(place)
            continue
        try:
            resolve_with(store, ancestor, memo)
        except MissingArtifactError as error:
            unresolved.add(place)
            older = store.latest(*place)
            ref = InputRef("", *place, "" if older is None else older.data_version, partition_address(*place))
            problem = "incomplete" if error.incomplete is not None else "missing" if older is None else "stale"
            findings.append(Finding(problem, ref, str(error)))
    if findings:
        raise GateError(node.name, findings)
