"""Plans: graphs of nodes that recipes declare, one node for each artifact to make.

A `Node` describes an artifact before its inputs exist. `resolve` finds the artifact of a node's current identity; `build` makes
it if there is none. Both depend only on the node and the store, so "is this stale?" needs no database: a node is missing if its
current identity is not in the store, whatever else has its key. The Dagster shell builds one node for each asset; benchmarks
and tests build the same nodes without Dagster.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lineage.artifact.spec import ArtifactSpec, InputRef, partition_address
from lineage.artifact.store import Artifact, Store
from lineage.build.fan_out import FanOut
from lineage.build.incomplete import Incomplete, incomplete_inputs, read_incomplete
from lineage.build.stage_run import run_here
from lineage.config import to_jsonable
from lineage.jobs.child_processes import run_subprocess
from lineage.jobs.claims import check_inputs_stay
from lineage.jobs.job import Inputs, Job, JobOptions, Launcher, LaunchRecord, Listener, run_job
from lineage.jobs.regions import guard_reads
from lineage.jobs.summary import summarizing
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.stage import Stage
from lineage.trust.evidence import Drift, drift_of
from lineage.trust.fingerprint import stage_code
from lineage.trust.gate import Finding, GateError, apply_waivers, check_launch, utc_today

log = logging.getLogger(__name__)


type NodeInput = "Node | tuple[Node, ...]"


@dataclass(frozen=True)
class Node:
    """One artifact to make: its key and partition, its stage, its config, and the nodes of its inputs."""

    key: tuple[str, ...]
    partition: str | None
    stage: Stage
    config: object
    inputs: Mapping[str, NodeInput] = field(default_factory=dict)
    hardware: tuple[str, ...] = ()
    """Hardware that its job asks for, in order of preference (`recipes/hardware.py`); not part of the identity."""
    arguments: tuple[str, ...] = ()
    """Command-line arguments of its job, and further ones by hardware name (`on_hardware`); not part of the identity."""
    on_hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.hardware or self.arguments or self.on_hardware) and self.stage.job is None:
            raise ValueError(
                f"{self.name}: hardware is {', '.join(self.hardware)}, arguments are {self.arguments}, but stage "
                f"{self.stage.name} runs inside the step that orchestrates, which has none; leave both empty, or make it a job"
            )

    @property
    def options(self) -> JobOptions:
        """How its job runs: hardware and arguments."""
        return JobOptions(self.hardware, self.arguments, self.on_hardware)

    @property
    def name(self) -> str:
        return "/".join(self.key) + (f"[{self.partition}]" if self.partition else "")

    def parents(self) -> Iterator["Node"]:
        for value in self.inputs.values():
            yield from value if isinstance(value, tuple) else (value,)


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


class MissingArtifactError(LookupError):
    """A node has no artifact of its current identity in the store; `incomplete` is the record of a failed attempt."""

    def __init__(self, node: Node, store: Store, incomplete: Incomplete | None = None):
        older = store.latest(node.key, node.partition)
        why = "was never materialized" if older is None else f"is stale (there is one of {older.manifest.created})"
        if incomplete is not None:
            why = f"is incomplete ({incomplete})"
        super().__init__(f"{node.name} {why} in {store.root}: materialize it first")
        self.node, self.incomplete = node, incomplete


@dataclass
class _Memo:
    """Lookups of one walk or of one `build_all`: by node object (two nodes of one key and partition may differ), by address."""

    nodes: dict[int, tuple[Node, Artifact]] = field(default_factory=dict)
    """By `id`. It keeps the node, so that no other object gets that id."""
    addresses: dict[str, Artifact | None] = field(default_factory=dict)

    def find(self, store: Store, spec: ArtifactSpec) -> Artifact | None:
        if spec.address not in self.addresses:
            self.addresses[spec.address] = store.find(spec)
        return self.addresses[spec.address]

    def keep(self, node: Node, artifact: Artifact) -> None:
        """Take note of an artifact that was made or found."""
        self.addresses[artifact.spec.address] = artifact
        self.nodes[id(node)] = node, artifact


def spec_of(store: Store, node: Node) -> ArtifactSpec:
    """Return the current identity of a node. Raises: MissingArtifactError naming the first input that does not exist."""
    return _spec(node, _resolved_inputs(store, node, _Memo()))


def resolve(store: Store, node: Node) -> Artifact:
    """Return the artifact of a node's current identity. Raises: MissingArtifactError if it or an ancestor does not exist."""
    return _resolve(store, node, _Memo())


def exists(store: Store, node: Node) -> bool:
    """Whether the artifact of a node's current identity and all its ancestors exist."""
    return find_all(store, [node])[0] is not None


def find_all(store: Store, nodes: Iterable[Node]) -> list[Artifact | None]:
    """Return the artifact of each node, or None if it or an ancestor is missing. Shared ancestors are looked up once."""
    memo = _Memo()
    artifacts: list[Artifact | None] = []
    for node in nodes:
        try:
            artifacts.append(_resolve(store, node, memo))
        except MissingArtifactError:
            artifacts.append(None)
    return artifacts


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
    how = _How(execution, launcher, fan_out, listener, run_id)
    return _build(store, node, how, _Memo())


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
    wanted, memo = list(nodes), _Memo()
    how = _How(execution, launcher, None, None, run_id)
    for node in ancestors_first(wanted):
        memo.keep(node, _build(store, node, how, memo).artifact)
    return [_resolve(store, node, memo) for node in wanted]


@dataclass(frozen=True)
class _How:
    """How artifacts are made: the options of `build`."""

    execution: Execution
    launcher: Launcher | None
    fan_out: FanOut | None
    listener: Listener | None
    run_id: str


def _build(store: Store, node: Node, how: _How, memo: _Memo) -> Built:
    if node.stage.gate is not None:
        _refuse_unresolved(store, node, memo)
    inputs = _resolved_inputs(store, node, memo)
    spec = _spec(node, inputs)
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
    log.info("%s: started (%s %s)", node.name, node.stage.name, node.stage.version)
    packages = tuple(code.packages)
    job = Job(store, spec, inputs, code.fingerprint, how.run_id, node.stage.gate, tuple(waivers), packages, how.execution)
    requested = node.hardware[0] if node.hardware and how.launcher not in (None, run_subprocess) else ""
    with summarizing(store, spec, how.run_id, requested) as attempt:
        check_inputs_stay(store, spec.name, spec.inputs)
        if node.stage.job is None:
            guard_reads(store, spec.name, _flat(inputs))  # a job checks where it runs (`read_job`)
            artifact, attempt.launched = run_here(node.stage, node.config, job, existing, how.fan_out, how.listener)
        else:
            if how.execution.pool is not None:
                how.execution.pool.end()  # the job may need the memory of idle workers, and cannot use them
            ran = run_job(node.stage.job, job, how.launcher or run_subprocess, node.options, how.listener)
            artifact, attempt.launched = ran.artifact, ran.launched
    use = artifact.manifest.resources
    log.info("%s: done in %.1f s, peak %.0f MiB", node.name, use.wall_seconds, use.peak_rss_bytes / 2**20)
    return Built(artifact, reused=False, launched=attempt.launched)


def _flat(inputs: Inputs) -> Iterator[Artifact]:
    for value in inputs.values():
        yield from value if isinstance(value, tuple) else (value,)


def _describe(built: Built) -> str:
    if built.drift is None:
        return ""
    return f", {'code drifted since' if built.drifted else 'code changed since'}: {built.drift}"


def ancestors_first(nodes: Sequence[Node]) -> list[Node]:
    """Return the given nodes and all their ancestors, each once, inputs first."""
    ordered: dict[tuple[tuple[str, ...], str | None], Node] = {}

    def visit(node: Node) -> None:
        if (node.key, node.partition) not in ordered:
            for parent in node.parents():
                visit(parent)
            ordered[node.key, node.partition] = node

    for node in nodes:
        visit(node)
    return list(ordered.values())


def _refuse_unresolved(store: Store, node: Node, memo: _Memo) -> None:
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
            _resolve(store, ancestor, memo)
        except MissingArtifactError as error:
            unresolved.add(place)
            older = store.latest(*place)
            ref = InputRef("", *place, "" if older is None else older.data_version, partition_address(*place))
            problem = "incomplete" if error.incomplete is not None else "missing" if older is None else "stale"
            findings.append(Finding(problem, ref, str(error)))
    if findings:
        raise GateError(node.name, findings)


def _resolve(store: Store, node: Node, memo: _Memo) -> Artifact:
    if id(node) not in memo.nodes:
        spec = _spec(node, _resolved_inputs(store, node, memo))
        existing = memo.find(store, spec)
        if existing is None:
            raise MissingArtifactError(node, store, read_incomplete(store, spec.address))
        memo.nodes[id(node)] = node, existing
    return memo.nodes[id(node)][1]


def _resolved_inputs(store: Store, node: Node, memo: _Memo) -> Inputs:
    return {
        name: tuple(_resolve(store, n, memo) for n in value) if isinstance(value, tuple) else _resolve(store, value, memo)
        for name, value in node.inputs.items()
    }


def _spec(node: Node, inputs: Inputs) -> ArtifactSpec:
    refs = []
    for name, value in inputs.items():
        if isinstance(value, tuple):
            refs += [artifact.ref(f"{name}.{i}") for i, artifact in enumerate(value)]
        else:
            refs.append(value.ref(name))
    return ArtifactSpec(
        key=node.key,
        partition=node.partition,
        stage=node.stage.name,
        stage_version=node.stage.version,
        config=to_jsonable(node.config),
        inputs=tuple(refs),
    )
