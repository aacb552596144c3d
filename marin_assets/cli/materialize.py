"""The command `marin materialize`: an asset and everything that it lacks."""

import dataclasses
import difflib
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import dagster as dg
import typer
from rich.console import Console
from rich.markup import escape

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node, ancestors_first, resolve
from lineage.jobs.kept_process import keeping_process
from lineage.shards.worker_pool import WorkerPool
from marin_assets.cli.console import print_json
from marin_assets.cli.dagster_runs import INTERACTIVE, by_depth, make
from marin_assets.cli.options import AS_JSON
from marin_assets.cli.upkeep import materialize_upkeep, print_materialized
from marin_assets.definitions import declared_templates
from marin_assets.factory import AssetTemplate
from recipes.lab import declarations
from recipes.reward_runs import last_checkpoint
from recipes.runs import checkpoint
from recipes.searches import NotProposedError
from resources.dagster_private import keep_engines
from resources.lab import Lab, lab_from_environment

log = logging.getLogger(__name__)
SHOWN_PARTITIONS = 20


def materialize(
    asset: Annotated[str, typer.Argument(help=escape("Key, e.g. runs/tiny/training, or name: corpus/default[wiki]."))],
    partition: Annotated[str | None, typer.Option(help="Partition, for an asset that has partitions.")] = None,
    of_all: Annotated[bool, typer.Option("--all", help="All partitions, such as all trials of a sweep.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Materialize one canonical asset and everything that it lacks, one Dagster run each; or a report, scout or probe."""
    asset, partition = named(asset, partition)
    if of_all:
        if partition is not None:
            raise ValueError(f"--all and --partition {partition}; give one of them")
        artifacts = materialize_all(asset)
        if as_json:
            print_json([{"name": each.name, "uri": each.uri, "data_version": each.data_version} for each in artifacts])
        else:
            for each in artifacts:
                Console().print(f"{each.name} is at {each.uri}", soft_wrap=True, markup=False)
        return
    if not is_artifact(asset) and (upkeep := materialize_upkeep(asset, partition)) is not None:
        if as_json:
            print_json(dataclasses.asdict(upkeep))
        else:
            print_materialized(upkeep, Console())
        return
    artifact = materialize_with_ancestors(asset, partition)
    if as_json:
        print_json({"name": artifact.name, "uri": artifact.uri, "data_version": artifact.data_version})
    else:
        Console().print(f"{artifact.name} is at {artifact.uri}", soft_wrap=True, markup=False)


def named(asset: str, partition: str | None) -> tuple[str, str | None]:
    """Split a name as the lab prints it, `key[partition]`, into both. Raises: ValueError for two partitions."""
    key, bracket, inside = asset.removesuffix("]").partition("[")
    if not (bracket and asset.endswith("]")):
        return asset, partition
    if partition not in (None, inside):
        raise ValueError(f"{asset} and --partition {partition} name two partitions; give one of them")
    return key, inside


def is_artifact(key: str) -> bool:
    """Whether the key is that of an artifact or of a declared run, working or broken."""
    declared = declarations()
    known = {"/".join(template.example.key) for template in declared_templates()}
    runs = (f"runs/{run.name}/training" for run in (*declared.runs, *declared.rewards, *declared.broken))
    return key in known or key in runs


def materialize_with_ancestors(key: str, partition: str | None) -> Artifact:
    """Materialize one canonical asset and what is missing above it, one Dagster run each.

    Raises: ValueError for a key that the graph lacks, and errors of the engines.
    """
    with _at_work() as (lab, instance):
        node, target = node_after_rounds(lab, instance, key, partition)
        make(lab, instance, by_depth(ancestors_first([node])), trainings() | {node.key: target}, remade=[node])
    return resolve(lab.store, node)


def materialize_all(key: str) -> list[Artifact]:
    """Materialize all partitions of an asset that are missing, with what is missing above them.

    Raises: ValueError for a key that the graph lacks, or whose partitions are not fixed; errors of the engines.
    """
    family = {"/".join(template.example.key): template for template in declared_templates()}.get(key)
    with _at_work() as (lab, instance):
        if family is None or not isinstance(family.partitions_def, dg.StaticPartitionsDefinition):
            raise ValueError(f"{key} has no fixed partitions, so --all is not for it; give its key alone, or one --partition")
        nodes = [_node(lab, key, name)[0] for name in family.partitions_def.get_partition_keys()]
        make(lab, instance, by_depth(ancestors_first(nodes)), trainings())
    return [resolve(lab.store, node) for node in nodes]


@contextmanager
def _at_work() -> Iterator[tuple[Lab, dg.DagsterInstance]]:
    """Yield the lab of a person who waits, and Dagster's instance. One process runs all trials."""
    with dg.DagsterInstance.get() as instance, WorkerPool() as pool:
        keep_engines(instance)
        lab = lab_from_environment().lab(priority=INTERACTIVE, pool=pool)
        with keeping_process(lab.launcher) as trials:
            yield dataclasses.replace(lab, trials=trials), instance


def node_after_rounds(lab: Lab, instance: dg.DagsterInstance, key: str, partition: str | None) -> tuple[Node, list[str]]:
    """The node of an asset and the asset's key. What a round of a search trains is in its proposal, so the proposals of the
    rounds before it are made first, with what is missing above them."""
    while True:
        try:
            return _node(lab, key, partition)
        except NotProposedError as error:
            log.info("%s is made first: it says what the trials of its round are", error.node.name)
            make(lab, instance, by_depth(ancestors_first([error.node])), trainings())


def trainings() -> dict[tuple[str, ...], list[str]]:
    """Return key of a checkpoint -> key of the training that makes it, of every declared run."""
    names = [run.name for run in (*declarations().runs, *declarations().rewards)]
    return {("runs", name, "checkpoint"): ["runs", name, "training"] for name in names}


def _node(lab: Lab, key: str, partition: str | None) -> tuple[Node, list[str]]:
    trained = {f"runs/{run.name}/training": run for run in declarations().runs}
    if key in trained:
        run = trained[key]
        if partition is not None:
            raise ValueError(f"{key} has no partitions; leave --partition out")
        return checkpoint(run, run.spec.num_steps), key.split("/")
    rewarded = {f"runs/{run.name}/training": run for run in declarations().rewards}
    if key in rewarded:
        if partition is not None:
            raise ValueError(f"{key} has no partitions; leave --partition out")
        return last_checkpoint(rewarded[key]), key.split("/")
    for broken in declarations().broken:
        if key == f"runs/{broken.name}/training":
            raise ValueError(str(broken))
    families = {"/".join(template.example.key): template for template in declared_templates()}
    if key not in families:
        near = difflib.get_close_matches(key, [*trained, *rewarded, *families], n=3, cutoff=0.5)
        meant = f"did you mean {', '.join(near)}?" if near else "`make ui` shows every key"
        raise ValueError(f"the graph has no asset {key!r}; {meant}")
    writer = f"{key.rpartition('/')[0]}/training"
    if key.endswith("/checkpoint") and (writer in trained or writer in rewarded):
        raise ValueError(f"{key} is written by {writer}; materialize that")
    family = families[key]
    _check_partition(key, family, partition)
    node = family.node_at(lab, partition)
    if isinstance(node, Node):
        return node, list(node.key)
    raise ValueError(f"{key}[{partition}] is left out: {node.reason}")


def _check_partition(key: str, family: AssetTemplate, partition: str | None) -> None:
    """Check a partition. Partitions that are not static may be new, so no name of theirs is unknown.

    Raises: ValueError if it is missing, or unknown, with the known ones; or if the asset has none.
    """
    if family.partitions_def is None:
        if partition is not None:
            raise ValueError(f"{key} has no partitions; leave --partition out")
        return
    there = partitions_of(family)
    if partition is None:
        of_all = " or all with --all" if isinstance(family.partitions_def, dg.StaticPartitionsDefinition) else ""
        raise ValueError(f"{key} has partitions; give one with --partition{of_all}: {_listed(there)}")
    if isinstance(family.partitions_def, dg.StaticPartitionsDefinition) and partition not in there:
        near = difflib.get_close_matches(partition, there, n=3)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(f"{key} has no partition {partition!r}; {meant}it has: {_listed(there)}")


def partitions_of(family: AssetTemplate) -> Sequence[str]:
    """Return the partitions of an asset; for an asset over steps, an example."""
    if isinstance(family.partitions_def, dg.StaticPartitionsDefinition | dg.TimeWindowPartitionsDefinition):
        return family.partitions_def.get_partition_keys()
    return [str(family.example.partition)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_PARTITIONS} more" if len(names) > SHOWN_PARTITIONS else ""
    return ", ".join(names[:SHOWN_PARTITIONS]) + more
