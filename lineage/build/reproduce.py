"""Make an artifact again from its manifest alone, in an empty store, and compare every ancestor's bytes on the way.

No recipe is read: stage name, version, config and inputs come from manifests, the code from a registry of stages. Inputs are
made first, so a difference began at the first artifact whose data version differs. Nothing that is made from it is built,
because it would differ for that reason alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from lineage.artifact.manifest import Manifest, content_version
from lineage.artifact.spec import ArtifactSpec, InputRef
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, NodeInput
from lineage.build.plan import build
from lineage.config import from_jsonable, to_jsonable
from lineage.jobs.job import Launcher
from lineage.shards.execution import ONE_WORKER, Execution
from lineage.stage import Stage
from lineage.storage.digests import canonical_json

log = logging.getLogger(__name__)

type Outcome = Literal["equal", "differs", "other_version", "unknown_stage"]
type Registry = Mapping[str, Stage]
"""Stage name -> the stage of this checkout."""
LISTED_FILES = 5


@dataclass(frozen=True)
class Comparison:
    """One artifact made again: the outcome, both data versions, seconds then and now, and what explains a difference."""

    name: str
    address: str
    stage: str
    outcome: Outcome
    recorded: str
    rebuilt: str
    recorded_seconds: float
    seconds: float
    detail: str = ""

    @property
    def is_equal(self) -> bool:
        return self.outcome == "equal"


@dataclass(frozen=True)
class Reproduction:
    """Comparisons in the order of making; the last one is the first difference when there is one."""

    comparisons: tuple[Comparison, ...]
    num_artifacts: int
    """Number of artifacts with all ancestors; fewer comparisons mean that a difference ended the run."""

    @property
    def is_equal(self) -> bool:
        return len(self.comparisons) == self.num_artifacts and all(c.is_equal for c in self.comparisons)

    @property
    def first_difference(self) -> Comparison | None:
        return next((c for c in self.comparisons if not c.is_equal), None)


def reproduce(
    artifact: Artifact,
    into: Store,
    registry: Registry,
    *,
    execution: Execution = ONE_WORKER,
    launcher: Launcher | None = None,
    report: Callable[[Comparison], None] = lambda comparison: None,
) -> Reproduction:
    """Rebuild an artifact and its ancestors in an empty store; `report` receives each comparison when it is done.

    Raises: ValueError for a store that is not empty (its artifacts would be reused, not made), for an ancestor that is gone,
    and for a config that the stage's type does not read back; what the stages raise.
    """
    existing = next(into.artifacts(), None)
    if existing is not None:
        raise ValueError(f"{into.root} is not empty (it has {existing.name}); reproduce into an empty root")
    ancestors = inputs_first(artifact)
    nodes: dict[str, Node] = {}
    comparisons: list[Comparison] = []
    for ancestor in ancestors:
        comparison = _unknown(ancestor.manifest, registry)
        if comparison is None:
            node = node_of(ancestor.manifest, registry, nodes)
            nodes[ancestor.spec.address] = node
            comparison = compare(ancestor.manifest, build(into, node, execution=execution, launcher=launcher).artifact.manifest)
        comparisons.append(comparison)
        report(comparison)
        if not comparison.is_equal:
            break
    return Reproduction(tuple(comparisons), len(ancestors))


def inputs_first(artifact: Artifact) -> list[Artifact]:
    """Return the artifact and its ancestors, inputs first. Raises: ValueError naming an ancestor that is gone."""
    ordered: dict[str, Artifact] = {}
    pending = [(artifact, False)]
    while pending:
        current, has_inputs = pending.pop()
        if current.spec.address in ordered:
            continue
        if has_inputs:
            ordered[current.spec.address] = current
            continue
        pending.append((current, True))
        pending += [(parent, False) for parent in reversed(current.store.parents(current))]
    return list(ordered.values())


def node_of(manifest: Manifest, registry: Registry, nodes: Mapping[str, Node]) -> Node:
    """Return the node that a manifest describes, given the nodes of its inputs by address."""
    spec, stage = manifest.spec, registry[manifest.spec.stage]
    inputs: Mapping[str, NodeInput] = grouped(spec.inputs, [nodes[ref.address] for ref in spec.inputs])
    return Node(spec.key, spec.partition, stage, read_config(spec, stage), inputs)


def read_config(spec: ArtifactSpec, stage: Stage) -> object:
    """Read the recorded config as the stage's type. Raises: ValueError if the result has another identity."""
    config = from_jsonable(cast(type, stage.config_type), dict(spec.config), spec.name)
    if canonical_json(to_jsonable(config)) != canonical_json(spec.config):
        raise ValueError(
            f"{spec.name}: its config does not survive {stage.config_type.__name__} (a field was added since, or "
            f"left out of the identity); recorded {spec.config}, read back {to_jsonable(config)}: use the checkout that made it"
        )
    return config


def grouped[T](refs: Sequence[InputRef], values: Sequence[T]) -> dict[str, T | tuple[T, ...]]:
    """Group values of inputs by the stage's input names; those of `name.0`, `name.1`, ... become one tuple."""
    inputs: dict[str, T | tuple[T, ...]] = {}
    for ref, value in zip(refs, values, strict=True):
        name, _, index = ref.name.rpartition(".")
        if name and index.isdigit():
            group = inputs.get(name, ())
            assert isinstance(group, tuple)  # a stage's input is one artifact or a tuple, never both
            inputs[name] = (*group, value)
        else:
            inputs[ref.name] = value
    return inputs


def compare(recorded: Manifest, rebuilt: Manifest) -> Comparison:
    """Compare two manifests: whether both hold the same bytes, and if not, which files, code and packages differ."""
    equal = recorded.data_version == content_version(rebuilt.files, {name: rebuilt.extra.get(name) for name in recorded.facts})
    return _comparison(recorded, "equal" if equal else "differs", rebuilt, "" if equal else _difference(recorded, rebuilt))


def _difference(recorded: Manifest, rebuilt: Manifest) -> str:
    before = {entry.path: entry.digest for entry in recorded.files}
    after = {entry.path: entry.digest for entry in rebuilt.files}
    files = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    details = [f"{len(files)} of {len(before)} files: {', '.join(files[:LISTED_FILES])}"] if files else []
    changed = [name for name in recorded.facts if recorded.extra.get(name) != rebuilt.extra.get(name)]
    details += [f"facts that later stages read: {', '.join(changed)}"] if changed else []
    without_circumstances = len(details)
    if recorded.code_fingerprint != rebuilt.code_fingerprint:
        details.append(f"code {recorded.code_fingerprint or 'not recorded'} then, {rebuilt.code_fingerprint} now")
    names = sorted(recorded.packages.keys() | rebuilt.packages.keys())
    versions = [(name, recorded.packages.get(name), rebuilt.packages.get(name)) for name in names]
    details += [f"{name} {before} then, {after} now" for name, before, after in versions if before != after]
    if len(details) == without_circumstances:
        details.append("same code and packages: the stage is not deterministic, or the machine differs")
    return "; ".join(details)


def _unknown(manifest: Manifest, registry: Registry) -> Comparison | None:
    """Return why this checkout cannot make an artifact, or None if it can."""
    spec = manifest.spec
    if spec.stage not in registry:
        return _comparison(manifest, "unknown_stage", None, f"this checkout has no stage {spec.stage}")
    version = registry[spec.stage].version
    if version != spec.stage_version:
        detail = f"made by version {spec.stage_version} of {spec.stage}, this checkout has {version}: use the one that made it"
        return _comparison(manifest, "other_version", None, detail)
    return None


def _comparison(recorded: Manifest, outcome: Outcome, rebuilt: Manifest | None, detail: str) -> Comparison:
    return Comparison(
        name=recorded.spec.name,
        address=recorded.spec.address,
        stage=recorded.spec.stage,
        outcome=outcome,
        recorded=recorded.data_version,
        rebuilt=rebuilt.data_version if rebuilt is not None else "",
        recorded_seconds=recorded.resources.wall_seconds,
        seconds=rebuilt.resources.wall_seconds if rebuilt is not None else 0.0,
        detail=detail,
    )
