"""A sweep as two assets, `sweeps/<name>/trial` and `sweeps/<name>/result`, with one partition for each trial.

Trials of a swarm have a third, the mixture of each. One operation makes all of them, many trials in one Dagster run. Each
trial is reported when it ends, so an interrupted run shows what it finished, and the next one continues with the rest. A trial
that diverged is a result. One process trains all of them, and then another one scores them: a child of this one, or a pod.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import dagster as dg

from lineage.build.nodes import MissingArtifactError, Node, ancestors_first, exists, find_all
from lineage.build.plan import Built
from lineage.build.together import build_together
from lineage.jobs.given_jobs import started_job
from lineage.jobs.kept_process import keeping_process, runs_here
from lineage.messages import ProgressMessage
from marin_assets.areas import owners
from marin_assets.data import mix_assets, text_assets
from marin_assets.data_stages import FILES
from marin_assets.describe import describe, materialization
from marin_assets.event_log import STAGE_METADATA
from marin_assets.factory import AssetTemplate, dependencies
from partitions.axes import trials
from recipes.hardware import alternatives
from recipes.records.placement import SwarmTrialOf
from recipes.records.sweep import Sweep
from recipes.runs import mixture
from recipes.sweeps import result, trial
from resources.lab import Lab
from resources.progress import observing

TRIALS_PER_RUN = 50
SHOWN_FAILURES = 5


def sweep_data(sweep: Sweep) -> Iterator[AssetTemplate]:
    """Yield the data that the trials read; trials over one mix share it. `sweep_asset` makes the mixtures of a swarm."""
    if isinstance(sweep.place, SwarmTrialOf):
        yield from text_assets(sweep.trials[0])
        return
    seen = set()
    for run in sweep.trials:
        read = run.data, run.batches, run.heldout_corpus.name
        if read not in seen:
            seen.add(read)
            yield from mix_assets(run)


def sweep_templates(sweep: Sweep) -> tuple[AssetTemplate, ...]:
    """Return trials and results, and the trials' mixtures if each has its own. `sweep_asset` makes all of them."""
    by_name = {run.name: run for run in sweep.trials}
    names = trials(list(by_name))

    def template(make, description: str, kinds: set[str]) -> AssetTemplate:
        return AssetTemplate(
            example=make(sweep.trials[0]),
            node_at=lambda lab, name: make(by_name[str(name)]),
            node=lambda name: make(by_name[str(name)]),
            store_of=lambda lab: lab.store,
            group="sweeps",
            description=description,
            kinds=frozenset(kinds),
            partitions_def=names,
            invariants=(FILES,),
        )

    own_mixtures = (template(mixture, "The mixture of each trial.", {"json"}),) if isinstance(sweep.place, SwarmTrialOf) else ()
    return (
        *own_mixtures,
        template(trial, "One trained model for each trial, or the record of its divergence.", {"jax", "safetensors"}),
        template(result, "Held-out bits per byte of each trial by domain, or that it diverged.", {"json"}),
    )


def sweep_asset(sweep: Sweep) -> dg.AssetsDefinition:
    """Return the operation that trains and scores the requested trials of a sweep."""
    return trials_asset(f"sweep {sweep.name}", sweep_templates(sweep))


def trials_asset(whose: str, templates: Sequence[AssetTemplate]) -> dg.AssetsDefinition:
    """Return the operation that makes some assets of the requested trials, in the order of the templates."""
    specs = [_spec(template) for template in templates]
    keys = [spec.key for spec in specs]
    own = {template.example.key for template in templates}

    @dg.multi_asset(
        name="__".join(templates[-1].example.key[:-1]).replace("-", "_").replace(".", "_"),
        specs=specs,
        partitions_def=templates[-1].partitions_def,
        can_subset=True,
        backfill_policy=dg.BackfillPolicy.multi_run(TRIALS_PER_RUN),
    )
    def run_trials(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> Iterator[dg.MaterializeResult]:
        failed: dict[str, str] = {}
        with keeping_process(lab.trials or lab.launcher) as launcher:
            asked = [number for number, key in enumerate(keys) if key in context.selected_asset_keys]
            for number, template in enumerate(templates[: max(asked) + 1]):  # a result that is asked for needs its trial first
                _make_all(context, replace(lab, launcher=launcher), template, own, failed, asked=number in asked)
        if failed:
            more = f" and {len(failed) - SHOWN_FAILURES} more" if len(failed) > SHOWN_FAILURES else ""
            shown = "; ".join(f"{name} ({why})" for name, why in list(failed.items())[:SHOWN_FAILURES])
            raise dg.Failure(
                f"{len(failed)} of {len(context.partition_keys)} trials of {whose} failed: {shown}{more}. Materialize them "
                "again: finished trials are reused",
                allow_retries=False,
            )
        yield from ()  # each trial was reported by itself, with its own version

    return run_trials


def _make_all(
    context: dg.AssetExecutionContext,
    lab: Lab,
    template: AssetTemplate,
    own: Collection[tuple[str, ...]],
    failed: dict[str, str],
    *,
    asked: bool,
) -> None:
    """Make one asset of every trial that has not failed yet, and say how many are done. If it was not asked for, existing ones
    are not reported again.

    A trial that fails leaves the others their turn; the Dagster run fails at its end.
    """
    count = _Count(context, "/".join(template.example.key), failed)
    nodes: dict[str, Node] = {}
    for name in context.partition_keys:
        if name in failed:
            continue
        with count.failures_of(name):
            node = _node(lab, template, name)
            if asked or not exists(lab.store, node):
                nodes[name] = node
            else:
                count.done += 1
    if len(nodes) > 1 and _share_a_pod(lab, nodes.values()):
        _make_together(context, lab, nodes, count)
    else:
        for name, node in nodes.items():
            count.say(f"{name} runs")
            with count.failures_of(name):
                _make(context, lab, node, own)
                count.done += 1
    count.say("ended")


@dataclass
class _Count:
    """How many trials have an asset, and which failed and why."""

    context: dg.AssetExecutionContext
    asset: str
    failed: dict[str, str]
    done: int = 0

    @contextmanager
    def failures_of(self, name: str) -> Iterator[None]:
        """Keep an error of the block as that of a trial."""
        try:
            yield
        except Exception as error:
            self.fail(name, error)

    def fail(self, name: str, error: Exception) -> None:
        self.context.log.error(f"trial {name} failed: {type(error).__name__}: {error}")
        self.failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"

    def say(self, what: str) -> None:
        total = len(self.context.partition_keys)
        self.context.log.info(f"{self.asset}: {self.done} done, {what}, {len(self.failed)} failed of {total}")


def _share_a_pod(lab: Lab, nodes: Collection[Node]) -> bool:
    """Whether one pod makes all of them. Here a process is kept for them, and jobs of several hosts are launched one by one."""
    if runs_here(lab.launcher) or any(node.stage.job is None for node in nodes):
        return False
    names = {name for node in nodes for name in node.hardware or ("cpu",)}
    return all(shape.pods == 1 for shape in alternatives(tuple(sorted(names))))


def _make_together(context: dg.AssetExecutionContext, lab: Lab, nodes: Mapping[str, Node], count: _Count) -> None:
    """Make the trials in one launch; report each when it ends."""
    name_of = {id(node): name for name, node in nodes.items()}
    count.say(f"{len(nodes)} are made or are there")

    def ended(node: Node, built: Built | Exception) -> None:
        if isinstance(built, Exception):
            count.fail(name_of[id(node)], built)
            return
        context.log_event(_event(built))
        count.done += 1

    def heard(node: Node, note: ProgressMessage) -> None:
        observing(context, dg.AssetKey(list(node.key)), node.partition)(note)
        if started_job(note) is not None:
            count.say(f"{name_of[id(node)]} runs")

    run_id, execution = context.run.run_id, lab.execution
    build_together(lab.store, list(nodes.values()), lab.launcher, ended, heard, execution=execution, run_id=run_id)


def _node(lab: Lab, template: AssetTemplate, name: str) -> Node:
    node = template.node_at(lab, name)
    assert isinstance(node, Node)  # a trial is never left out
    return node


def _make(context: dg.AssetExecutionContext, lab: Lab, node: Node, own: Collection[tuple[str, ...]]) -> None:
    """Make a node and what is missing of the sweep's own assets above it; report each."""
    ancestors = ancestors_first([node])
    given = [each for each in ancestors if each.key not in own]
    for each, artifact in zip(given, find_all(lab.store, given), strict=True):
        if artifact is None:
            raise MissingArtifactError(each, lab.store)
    for each in [each for each in ancestors if each.key in own]:
        key = dg.AssetKey(list(each.key))
        built = lab.build(lab.store, each, listener=observing(context, key, each.partition), run_id=context.run.run_id)
        if each is node or not built.reused:
            context.log_event(_event(built))


def _event(built: Built) -> dg.AssetMaterialization:
    diverged = built.artifact.manifest.extra.get("diverged")
    return materialization(built.artifact, describe(built), f"diverged: {diverged['why']}" if diverged else "")


def _spec(template: AssetTemplate) -> dg.AssetSpec:
    stage = template.example.stage
    return dg.AssetSpec(
        key=dg.AssetKey(list(template.example.key)),
        deps=dependencies(template),
        group_name=template.group,
        description=template.description,
        owners=owners(template.group),
        kinds=set(template.kinds),
        metadata={STAGE_METADATA: stage.name},
        code_version=f"{stage.name}@{stage.version}",
        skippable=True,
    )
