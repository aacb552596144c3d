"""Nodes: what recipes declare of an artifact before it exists, and how a node finds its artifact in a store.

A node describes an artifact before its inputs exist. `resolve` finds the artifact of its current identity. It depends only on
the node and the store, so "is this stale?" needs no database: a node is missing if its current identity is not in the store,
even if other artifacts have its key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Artifact, Store
from lineage.build.incomplete import Incomplete, read_incomplete
from lineage.config import to_jsonable
from lineage.jobs.job import Inputs, JobOptions
from lineage.stage import Stage

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


class MissingArtifactError(LookupError):
    """A node has no artifact of its current identity in the store; `incomplete` is the record of a failed attempt."""

    def __init__(self, node: Node, store: Store, incomplete: Incomplete | None = None):
        older = store.latest(node.key, node.partition)
        why = "was never materialized" if older is None else f"is stale (there is one of {older.manifest.created})"
        if incomplete is not None:
            why = f"is incomplete ({incomplete})"
        super().__init__(f"{node.name} {why} in {store.root}: materialize it first")
        self.node, self.incomplete = node, incomplete


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


@dataclass
class Memo:
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
    return spec_with(node, inputs_of(store, node, Memo()))


def resolve(store: Store, node: Node) -> Artifact:
    """Return the artifact of a node's current identity. Raises: MissingArtifactError if it or an ancestor does not exist."""
    return resolve_with(store, node, Memo())


def exists(store: Store, node: Node) -> bool:
    """Whether the artifact of a node's current identity and all its ancestors exist."""
    return find_all(store, [node])[0] is not None


def find_all(store: Store, nodes: Iterable[Node]) -> list[Artifact | None]:
    """Return the artifact of each node, or None if it or an ancestor is missing. Shared ancestors are looked up once."""
    memo = Memo()
    artifacts: list[Artifact | None] = []
    for node in nodes:
        try:
            artifacts.append(resolve_with(store, node, memo))
        except MissingArtifactError:
            artifacts.append(None)
    return artifacts


def resolve_with(store: Store, node: Node, memo: Memo) -> Artifact:
    """As `resolve`, with the lookups of a memo."""
    if id(node) not in memo.nodes:
        spec = spec_with(node, inputs_of(store, node, memo))
        existing = memo.find(store, spec)
        if existing is None:
            raise MissingArtifactError(node, store, read_incomplete(store, spec.address))
        memo.nodes[id(node)] = node, existing
    return memo.nodes[id(node)][1]


def inputs_of(store: Store, node: Node, memo: Memo) -> Inputs:
    """Return the artifacts of a node's inputs. Raises: MissingArtifactError naming the first that does not exist."""
    return {
        name: tuple(resolve_with(store, n, memo) for n in value)
        if isinstance(value, tuple)
        else resolve_with(store, value, memo)
        for name, value in node.inputs.items()
    }


def spec_with(node: Node, inputs: Inputs) -> ArtifactSpec:
    """Return the identity of a node that is made from these inputs."""
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
