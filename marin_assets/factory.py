"""One factory for every asset that is an artifact: find the node, build it, check it, describe it.

The asset's key is the node's key. Its dependencies are the keys of the node's inputs, and those that its template adds with
`after`. Its code version is the stage's version and a digest of the config. Its data version is the content digest of the
manifest. So the picture in the UI and the manifests agree about what was made from what, unless someone edits one of them,
which the lineage check looks for.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import dagster as dg

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, ancestors_first
from lineage.build.plan import Built
from lineage.config import to_jsonable
from lineage.shards.failures import IncompleteError
from lineage.storage.digests import identity_digest
from lineage.trust.verdicts import record_check
from marin_assets.areas import owners
from marin_assets.describe import describe, identity_tags, materialization
from marin_assets.event_log import LEFT_OUT, STAGE_METADATA
from marin_assets.missing_inputs import naming_the_command
from marin_assets.quarantine import SHARDS_CHECK, failed_check, quarantine_metadata
from marin_assets.references import stage_references
from partitions.axes import is_dynamic
from resources.lab import Lab
from resources.progress import observing
from standards.openlineage import run_event, send

type Yielded = dg.MaterializeResult | dg.AssetCheckResult


@dataclass(frozen=True)
class Skipped:
    """The reason why a partition intentionally has no artifact (a source that the day's roster does not name)."""

    reason: str


@dataclass(frozen=True)
class Invariant:
    """A blocking check: a name, what it promises, and the engine's function that lists violations."""

    name: str
    promise: str
    violations: Callable[[Artifact], Sequence[str]]


@dataclass(frozen=True)
class WarningCheck:
    """An advisory check: a name, what it promises, and the function that returns a severity and a reason.

    It is about what the artifact describes (a checkpoint that read benchmark items), so it leaves no verdict on the artifact.
    """

    name: str
    promise: str
    judge: Callable[[Artifact], tuple[Literal["passed", "warn", "error"], str]]


@dataclass(frozen=True)
class AssetTemplate:
    """An asset: every partition of it is one node."""

    example: Node
    """The node of some partition (or the only one): it gives the key, the stage and the dependencies."""

    node_at: Callable[[Lab, str | None], Node | Skipped]
    store_of: Callable[[Lab], Store]
    group: str
    description: str
    kinds: frozenset[str]
    partitions_def: dg.PartitionsDefinition | None = None
    invariants: tuple[Invariant, ...] = ()
    advisories: tuple[WarningCheck, ...] = ()
    mappings: Mapping[tuple[str, ...], dg.PartitionMapping] = field(default_factory=dict)
    """Partition mappings that do not follow from the example (a step-by-task asset on its step)."""

    builds_inputs: tuple[str, ...] = ()
    """Inputs that the same run makes too, with what is missing above them; each is reported as materialized. Examples: a
    canary's fixed data, and the items and policy of an evaluation that a sensor requests. A checkpoint is never among them,
    because a request must not train.
    """

    node: Callable[[str | None], Node] | None = None
    """The node of a partition if no store decides it. `marin_assets/table.py` compares the ancestors of runs with it."""

    is_external: bool = False
    """Whether another asset's job makes it and a sensor reports it, as with the checkpoints of a run."""

    freshness: dg.FreshnessPolicy | None = None
    """Deadline by which it should have been made again; None: no deadline."""

    after: tuple[tuple[str, ...], ...] = ()
    """Keys that must exist first although they are not inputs of the example (the roster, the offline items)."""

    def partitions(self) -> list[str]:
        """Return its partition keys; none for an asset without partitions, or with those that a search adds."""
        if self.partitions_def is None or is_dynamic(self.partitions_def):
            return []
        return list(self.partitions_def.get_partition_keys())


def single(node: Node, at: Callable[[Lab], Node], group: str, description: str, kind: str) -> AssetTemplate:
    """Return an asset without partitions whose node a lab decides; `node` is the one of a lab that has everything."""
    return AssetTemplate(
        example=node,
        node_at=lambda lab, partition: at(lab),
        node=lambda partition: node,
        store_of=lambda lab: lab.store,
        group=group,
        description=description,
        kinds=frozenset({kind}),
    )


def of_partitions(
    example: Node,
    node: Callable[[str], Node],
    partitions_def: dg.PartitionsDefinition,
    group: str,
    description: str,
    kinds: Collection[str],
    *invariants: Invariant,
) -> AssetTemplate:
    """Return the template of an asset of the canonical store whose partitions are nodes of one declaration."""
    return AssetTemplate(
        example=example,
        node_at=lambda lab, partition: node(str(partition)),
        node=lambda partition: node(str(partition)),
        store_of=lambda lab: lab.store,
        group=group,
        description=description,
        kinds=frozenset(kinds),
        partitions_def=partitions_def,
        invariants=invariants,
    )


def asset_of(family: AssetTemplate) -> dg.AssetsDefinition | dg.AssetSpec:
    """Return the Dagster asset of a template, or the spec of one that is only reported."""
    return _external(family) if family.is_external else family_asset(family)


def _external(family: AssetTemplate) -> dg.AssetSpec:
    stage = family.example.stage
    return dg.AssetSpec(
        key=dg.AssetKey(list(family.example.key)),
        deps=[dg.AssetDep(dg.AssetKey(list(key))) for key in family.after],
        group_name=family.group,
        description=family.description,
        owners=owners(family.group),
        kinds=set(family.kinds),
        metadata={STAGE_METADATA: stage.name, **stage_references(stage)},
        code_version=f"{stage.name}@{stage.version}",
        partitions_def=family.partitions_def,
    )


def family_asset(family: AssetTemplate) -> dg.AssetsDefinition:
    """Return the Dagster asset of a template."""
    example, stage = family.example, family.example.stage
    key = dg.AssetKey(list(example.key))

    @dg.asset(
        key=key,
        deps=dependencies(family),
        partitions_def=family.partitions_def,
        group_name=family.group,
        description=family.description,
        owners=owners(family.group),
        kinds=set(family.kinds),
        metadata={STAGE_METADATA: stage.name, **stage_references(stage)},
        code_version=f"{stage.name}@{stage.version}:{identity_digest(to_jsonable(family.example.config))[:8]}",
        freshness_policy=family.freshness,
        check_specs=_check_specs(family, key),
        required_resource_keys={"lab"},
    )
    def materialize(context: dg.AssetExecutionContext) -> Iterator[Yielded]:
        lab: Lab = context.resources.lab
        partition = context.partition_key if family.partitions_def is not None else None
        with naming_the_command(example.key, partition):
            node = family.node_at(lab, partition)
        if isinstance(node, Skipped):
            context.log.info(f"{key.to_user_string()}[{partition}] is left out: {node.reason}")
            yield _left_out(family, node)
            return
        store = family.store_of(lab)
        try:
            with naming_the_command(example.key, partition):
                _build_inputs(context, store, node, lab, family.builds_inputs)
                listener = observing(context, key, partition)
                built = lab.build(store, node, listener=listener, run_id=context.run.run_id)
        except IncompleteError as error:
            if any(invariant.name == SHARDS_CHECK for invariant in family.invariants):
                yield failed_check(error, key)
            raise dg.Failure(str(error), metadata=quarantine_metadata(error), allow_retries=False) from error
        context.log.info(_summary(built))
        if not built.reused:
            send(run_event(built.artifact.manifest))
        yield dg.MaterializeResult(
            data_version=dg.DataVersion(built.artifact.data_version),
            metadata=describe(built),
            tags=identity_tags(built.artifact),
            check_results=[
                *(checked(invariant, built.artifact, context.run.run_id) for invariant in family.invariants),
                *(run_check(advisory, built.artifact) for advisory in family.advisories),
            ],
        )

    return materialize


def _check_specs(family: AssetTemplate, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks of a template: invariants block what reads the asset, advisories only warn."""
    blocking = [
        dg.AssetCheckSpec(invariant.name, asset=key, description=invariant.promise, blocking=True)
        for invariant in family.invariants
    ]
    return blocking + [dg.AssetCheckSpec(each.name, asset=key, description=each.promise) for each in family.advisories]


def dependencies(family: AssetTemplate) -> list[dg.AssetDep]:
    """Return one dependency for every key among the example's inputs, with the mapping that its partitions need."""
    example = family.example
    partitions_of: dict[tuple[str, ...], set[str | None]] = {}
    for parent in example.parents():
        partitions_of.setdefault(parent.key, set()).add(parent.partition)
    deps = []
    for key, partitions in partitions_of.items():
        if key in family.mappings:
            mapping = family.mappings[key]
        elif partitions == {None}:
            mapping = None
        elif partitions == {example.partition}:
            mapping = dg.IdentityPartitionMapping()
        else:
            mapping = dg.SpecificPartitionsPartitionMapping(sorted(p for p in partitions if p is not None))
        deps.append(dg.AssetDep(dg.AssetKey(list(key)), partition_mapping=mapping))
    return deps + [dg.AssetDep(dg.AssetKey(list(key))) for key in family.after if key not in partitions_of]


def _build_inputs(context: dg.AssetExecutionContext, store: Store, node: Node, lab: Lab, inputs: tuple[str, ...]) -> None:
    wanted = [node.inputs[name] for name in inputs if name in node.inputs]
    flat = [each for value in wanted for each in (value if isinstance(value, tuple) else (value,))]
    for ancestor in ancestors_first(flat):
        built = lab.build(store, ancestor, run_id=context.run.run_id)
        if not built.reused:
            context.log.info(_summary(built))
            context.log_event(materialization(built.artifact, describe(built)))


def _summary(built: Built) -> str:
    manifest = built.artifact.manifest
    if not built.reused:
        return f"{built.artifact.name}: made in {manifest.resources.wall_seconds:.1f} s at {built.artifact.uri}"
    drift = f" ({'drift: ' if built.drifted else ''}{built.drift})" if built.drift is not None else ""
    return f"{built.artifact.name}: reused, made {manifest.created}{drift}"


def checked(invariant: Invariant, artifact: Artifact, run_id: str) -> dg.AssetCheckResult:
    """Check a promise and record the verdict, because a blocking check stops only its own run."""
    violations = list(invariant.violations(artifact))
    record_check(artifact, invariant.name, violations, f"Dagster run {run_id}")
    return dg.AssetCheckResult(
        check_name=invariant.name,
        passed=not violations,
        description=f"{artifact.name}: " + ("; ".join(violations[:5]) if violations else invariant.promise),
        metadata={"violations": len(violations)},
    )


def run_check(advisory: WarningCheck, artifact: Artifact) -> dg.AssetCheckResult:
    """Judge an artifact by a check that only warns, and return the result."""
    outcome, why = advisory.judge(artifact)
    return dg.AssetCheckResult(
        check_name=advisory.name,
        passed=outcome == "passed",
        severity=dg.AssetCheckSeverity.ERROR if outcome == "error" else dg.AssetCheckSeverity.WARN,
        description=f"{artifact.name}: {why}",
    )


def _left_out(family: AssetTemplate, left_out: Skipped) -> dg.MaterializeResult:
    return dg.MaterializeResult(
        data_version=dg.DataVersion(LEFT_OUT),
        metadata={"left_out": left_out.reason, "dagster/row_count": 0},
        check_results=[
            dg.AssetCheckResult(check_name=invariant.name, passed=True, description=f"left out: {left_out.reason}")
            for invariant in (*family.invariants, *family.advisories)
        ],
    )
