"""A plan: artifacts not yet made, as a graph of nodes that a recipe declares and anyone may build.

A `Node` says what an artifact is made of before its inputs exist; `resolve` finds the artifact that the node means today,
and `build` makes it when there is none. Both are pure functions of the node and the store, so "is this stale?" needs no
database: a node whose current identity is not in the store is missing, whatever else lies under its key.
The Dagster shell builds one node an asset; the benchmarks and the tests build the same nodes with no Dagster at all.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lineage.child_processes import run_subprocess
from lineage.config import to_jsonable
from lineage.evidence import Drift, drift_of
from lineage.fan_out import FanOut
from lineage.fingerprint import stage_code
from lineage.gate import Finding, GateError, admit, today, waived
from lineage.incomplete import Incomplete, incomplete_inputs, read_incomplete
from lineage.jobs import Inputs, Job, Launched, Launcher, Listener, Told, run_job
from lineage.regions import guard_reads
from lineage.spec import ArtifactSpec, InputRef, partition_address
from lineage.stage import Stage
from lineage.stage_run import run_here
from lineage.store import Artifact, Store

log = logging.getLogger(__name__)


type NodeInput = "Node | tuple[Node, ...]"


@dataclass(frozen=True)
class Node:
    """One artifact to be: where it goes, which stage makes it, under which config, from which nodes."""

    key: tuple[str, ...]
    partition: str | None
    stage: Stage
    config: object
    inputs: Mapping[str, NodeInput] = field(default_factory=dict)
    hardware: tuple[str, ...] = ()
    """What its job asks to run on, in order of preference (`recipes/hardware.py`); no part of the identity."""
    arguments: tuple[str, ...] = ()
    """What its job is told of how to run, and `on_hardware` besides, by the hardware's name; no part of it either."""
    on_hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.hardware or self.arguments or self.on_hardware) and self.stage.job is None:
            raise ValueError(
                f"{self.name}: hardware is {', '.join(self.hardware)}, arguments are {self.arguments}, but stage "
                f"{self.stage.name} runs inside the step that orchestrates, which has none; leave both empty, or make it a job"
            )

    @property
    def told(self) -> Told:
        """How its job runs."""
        return Told(self.hardware, self.arguments, self.on_hardware)

    @property
    def name(self) -> str:
        return "/".join(self.key) + (f"[{self.partition}]" if self.partition else "")

    def parents(self) -> Iterator["Node"]:
        for value in self.inputs.values():
            yield from value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True)
class Built:
    """What `build` brought: the artifact, whether it was there already, and how its code has changed since."""

    artifact: Artifact
    reused: bool
    drift: Drift | None = None
    launched: Launched | None = None
    """Where it ran and how often, when a job or runners made it now."""

    @property
    def drifted(self) -> bool:
        """Whether the code has changed since and no evidence has shown that it makes the same bytes."""
        return self.drift is not None and not self.drift.is_cleared


class MissingArtifactError(LookupError):
    """A node has no artifact of its current identity in the store; `incomplete` is what an attempt to make it left."""

    def __init__(self, node: Node, store: Store, incomplete: Incomplete | None = None):
        older = store.latest(node.key, node.partition)
        why = "was never materialized" if older is None else f"is stale (there is one of {older.manifest.created})"
        if incomplete is not None:
            why = f"is incomplete ({incomplete})"
        super().__init__(f"{node.name} {why} in {store.root}: materialize it first")
        self.node, self.incomplete = node, incomplete


@dataclass
class _Memo:
    """What one walk has found already: of every node object (two of one place may differ), and at every address."""

    nodes: dict[int, tuple[Node, Artifact]] = field(default_factory=dict)
    """By `id`, with the node, so that no other gets its id."""
    addresses: dict[str, Artifact | None] = field(default_factory=dict)

    def find(self, store: Store, spec: ArtifactSpec) -> Artifact | None:
        if spec.address not in self.addresses:
            self.addresses[spec.address] = store.find(spec)
        return self.addresses[spec.address]


def spec_of(store: Store, node: Node) -> ArtifactSpec:
    """The identity a node has today. Raises MissingArtifactError naming the first input that does not exist."""
    return _spec(node, _resolved_inputs(store, node, _Memo()))


def resolve(store: Store, node: Node) -> Artifact:
    """The artifact a node means today. Raises MissingArtifactError when it, or any ancestor, does not exist."""
    return _resolve(store, node, _Memo())


def exists(store: Store, node: Node) -> bool:
    """Whether the artifact that a node means today is there, and every ancestor."""
    return find_all(store, [node])[0] is not None


def find_all(store: Store, nodes: Iterable[Node]) -> list[Artifact | None]:
    """What each node means today, None where it or an ancestor is missing. Ancestors that they share are looked up once."""
    memo = _Memo()
    found: list[Artifact | None] = []
    for node in nodes:
        try:
            found.append(_resolve(store, node, memo))
        except MissingArtifactError:
            found.append(None)
    return found


def build(
    store: Store,
    node: Node,
    *,
    launcher: Launcher | None = None,
    fan_out: FanOut | None = None,
    listener: Listener | None = None,
    run_id: str = "",
) -> Built:
    """Make a node's artifact from inputs that exist, or find it made already.

    A stage that is a job runs by the `launcher`; shards of any other leave this process where there is a `fan_out`.
    The `listener` hears how far either is.

    Raises: MissingArtifactError naming the first input that does not exist; GateError, of a gated stage, naming every ancestor
    that is not fit to build on, and of any stage, naming inputs made without some of their shards; IncompleteError;
    ForeignReadError of inputs in another region's bucket, above the budget.
    """
    if node.stage.gate is not None:
        _refuse_unresolved(store, node)
    inputs = _resolved_inputs(store, node, _Memo())
    spec = _spec(node, inputs)
    code = stage_code(node.stage.module)
    found = store.find(spec)
    if found is not None and not found.manifest.omitted:
        built = Built(found, reused=True, drift=drift_of(found, code))
        log.info("%s: reused, made %s%s", node.name, found.manifest.created, _told(built))
        return built
    if node.stage.gate is not None:
        waivers = admit(store, spec.name, spec.inputs, node.stage.gate, today())
    else:
        waivers = waived(store, spec.name, incomplete_inputs(_flat(inputs)), today())
    log.info("%s: started (%s %s)", node.name, node.stage.name, node.stage.version)
    job = Job(store, spec, inputs, code.fingerprint, run_id, node.stage.gate, tuple(waivers), tuple(code.packages))
    if node.stage.job is None:
        guard_reads(store, spec.name, _flat(inputs))  # a job asks where it runs (`read_job`)
        made, launched = run_here(node.stage, node.config, job, found, fan_out, listener)
    else:
        if store.crew is not None:
            store.crew.end()  # a job may want the memory that idle workers hold, and has no use for them
        ran = run_job(node.stage.job, job, launcher or run_subprocess, node.told, listener)
        made, launched = ran.artifact, ran.launched
    use = made.manifest.resources
    log.info("%s: done in %.1f s, peak %.0f MiB", node.name, use.wall_seconds, use.peak_rss_bytes / 2**20)
    return Built(made, reused=False, launched=launched)


def _flat(inputs: Inputs) -> Iterator[Artifact]:
    for value in inputs.values():
        yield from value if isinstance(value, tuple) else (value,)


def _told(built: Built) -> str:
    if built.drift is None:
        return ""
    return f", {'code drifted since' if built.drifted else 'code changed since'}: {built.drift}"


def ancestors_first(nodes: Sequence[Node]) -> list[Node]:
    """Every node the given ones need, themselves included, each once, inputs before what they feed."""
    ordered: dict[tuple[tuple[str, ...], str | None], Node] = {}

    def visit(node: Node) -> None:
        if (node.key, node.partition) not in ordered:
            for parent in node.parents():
                visit(parent)
            ordered[node.key, node.partition] = node

    for node in nodes:
        visit(node)
    return list(ordered.values())


def _refuse_unresolved(store: Store, node: Node) -> None:
    """Raises: GateError naming every ancestor that is missing or stale; what lies behind one of them is not judged."""
    memo = _Memo()
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
        found = memo.find(store, spec)
        if found is None:
            raise MissingArtifactError(node, store, read_incomplete(store, spec.address))
        memo.nodes[id(node)] = node, found
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
