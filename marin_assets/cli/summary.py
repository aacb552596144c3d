"""What the command line runs and shows: ferries and canaries in process, tables, and where to look next."""

import json
import logging
import time
from collections.abc import Callable

import dagster as dg
from rich.console import Console
from rich.table import Table

from datakit.sources.roster import registry_reachable
from evals.reports.report import StageRow, stage_rows, unigram_entropy
from evals.scoring.report_page import score_cells
from lineage.artifact.store import Artifact, Store
from lineage.build.plan import Node, ancestors_first, exists, resolve
from marin_assets.definitions import declared_defs, declared_templates
from marin_assets.operations import Outcome, outcomes
from recipes import ferry as recipe
from recipes.canary import bands
from recipes.lab import declarations
from recipes.runs import checkpoint
from recipes.smoke import smoke_ferry
from resources.dagster_private import keep_engines
from resources.lab import PRIORITY_TAG, Lab, LabResource, lab_from_environment

log = logging.getLogger(__name__)
CAMPAIGNS = ("ferry", *(band.campaign for band in bands()))
QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
"""Dagster's events go to the instance, where the UI shows them; the terminal is for progress and results."""


def run_ferry(day: str, *, direct: bool, console: Console) -> bool:
    """Materialize a day's ferry in this process and print its tables; whether it passed."""
    resource = lab_from_environment()
    lab = resource.lab()
    before = {artifact.spec.address for artifact in lab.ferry_store.artifacts()}
    started = time.perf_counter()
    passed = ferry_direct(lab, day) if direct else run_job(resource, "smoke_ferry", day)
    seconds = time.perf_counter() - started
    if passed:
        print_ferry(lab.ferry_store, day, before, seconds, console)
    else:
        console.print(f"[bold red]the ferry of {day} failed[/]; `make ui` shows the run, `./marin status` its cause")
    return passed


def ferry_direct(lab: Lab, day: str) -> bool:
    """The same nodes by the same functions, with no Dagster: the other side of the overhead benchmark."""
    ferry = smoke_ferry()
    reachable = registry_reachable(recipe.pins(ferry), lab.ferry_store.downloads)
    lab.build(lab.ferry_store, recipe.roster(ferry, day, reachable=reachable))
    for node in recipe.nodes(recipe.rostered_run(ferry, lab.ferry_store, day)):
        lab.build(lab.ferry_store, node)
    return True


def run_job(resource: LabResource, job: str, partition: str) -> bool:
    """Run a job in this process, recorded in the instance that the UI reads; whether it succeeded."""
    definition = declared_defs(resource).resolve_job_def(job)
    with dg.DagsterInstance.get() as instance:
        keep_engines(instance)
        result = definition.execute_in_process(
            partition_key=partition,
            instance=instance,
            raise_on_error=False,
            tags={"marin/launched_by": "command line"},
            run_config=QUIET,
        )
    return result.success


def run_canary(hardware: str, day: str) -> bool:
    """Materialize a day's canary in this process; whether it passed."""
    return run_job(lab_from_environment(), f"canary_{hardware}", day)


def materialize_with_ancestors(key: str, partition: str | None) -> Artifact:
    """Materialize one canonical asset and what is missing above it, one Dagster run each.

    Raises: ValueError naming a key that the graph has not; what the engines raise.
    """
    resource = lab_from_environment()
    lab = resource.lab()
    node, target = _node(lab, key, partition)
    definitions = declared_defs(resource)
    with dg.DagsterInstance.get() as instance:
        keep_engines(instance)
        for ancestor in ancestors_first([node]):
            at_target = ancestor is node
            if not at_target and exists(lab.store, ancestor):
                continue
            asset = definitions.resolve_assets_def(dg.AssetKey(target if at_target else list(ancestor.key)))
            asset_partition = ancestor.partition if asset.partitions_def is not None else None
            result = dg.materialize(
                [asset],
                partition_key=asset_partition,
                instance=instance,
                raise_on_error=True,
                selection=[asset.key],
                tags={PRIORITY_TAG: "interactive"},
                run_config=QUIET,
            )
            log.info("%s: %s", asset.key.to_user_string(), "materialized" if result.success else "failed")
    return resolve(lab.store, node)


def _node(lab: Lab, key: str, partition: str | None) -> tuple[Node, list[str]]:
    parts = key.split("/")
    if len(parts) == 3 and parts[0] == "runs" and parts[2] == "training":
        run = declarations().run(parts[1])
        return checkpoint(run, run.spec.num_steps), parts
    for family in declared_templates():
        if "/".join(family.example.key) == key:
            found = family.node_at(lab, partition)
            if isinstance(found, Node):
                return found, list(found.key)
            raise ValueError(f"{key}[{partition}] is left out: {found.reason}")
    raise ValueError(f"the graph has no asset {key!r}; `dg list defs` shows them all")


def print_ferry(store: Store, day: str, before: set[str], seconds: float, console: Console) -> None:
    """Stages, loss, scores, verdict, and where everything lies."""
    roster = resolve(store, recipe.existing_roster(smoke_ferry(), store, day)).manifest.extra["roster"]
    run = recipe.rostered_run(smoke_ferry(), store, day)
    report = resolve(store, recipe.report(run))
    artifacts = [resolve(store, node) for node in recipe.nodes(run)]
    reused = sum(artifact.spec.address in before for artifact in artifacts)
    by_stage = {artifact.spec.stage: artifact for artifact in artifacts}
    scores = by_stage["evals.result"].manifest.extra["scores"]
    rows = stage_rows(artifacts)
    console.print(stage_table(rows, title=f"smoke ferry {day}: in > out"))
    console.print(drops_table(rows))
    console.print(scores_table(scores))
    console.print(_loss_line(by_stage["trainer.checkpoint"], unigram_entropy(scores)))
    console.print(f"audit: [bold]{report.manifest.extra['verdict']}[/] " + _audit_counts(by_stage["evals.audit"]))
    if roster["reason"]:
        console.print(f"[yellow]{roster['reason']}: ran on the offline sources, without {', '.join(roster['left_out'])}[/]")
    console.print(f"reused {reused} of {len(artifacts)} artifacts; took {seconds:.0f} s")
    console.print(f"loss curve  {report.files('loss.png')[0]}", soft_wrap=True)
    console.print(f"report      {report.files('report.html')[0]}", soft_wrap=True)
    console.print(f"artifacts   {store.storage.uri('ferry')}", soft_wrap=True)
    console.print("UI          make ui, then http://127.0.0.1:3000/asset-groups")


def _loss_line(checkpoint_artifact: Artifact, entropy: float | None) -> str:
    facts = checkpoint_artifact.manifest.extra["checkpoint"]
    told = f"training loss {facts['loss_nats']:.3f} nats a token at step {facts['step']:,}"
    return told + (f"; unigram entropy of the held-out text {entropy:.3f}" if entropy is not None else "")


def _audit_counts(audit: Artifact) -> str:
    return json.dumps(audit.manifest.extra["audit"].get("counts", {}), sort_keys=True)


def stage_table(rows: list[StageRow], title: str) -> Table:
    """Per stage: rows, bytes and tokens in and out, seconds, peak memory."""
    table = Table(title=title, title_style="bold", header_style="bold", pad_edge=False)
    table.add_column("stage", no_wrap=True)
    for name in ("rows", "MB", "tokens", "s", "MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        name = row.stage.partition(".")[2]
        table.add_row(
            f"{name} x{row.num_artifacts}" if row.num_artifacts > 1 else name,
            _in_and_out(row.rows_in, row.rows_out, "{:,}".format),
            _in_and_out(row.bytes_in, row.bytes_out, _megabytes),
            _in_and_out(row.tokens_in, row.tokens_out, "{:,}".format),
            f"{row.seconds:.1f}",
            f"{row.peak_mib:.0f}",
        )
    return table


def _in_and_out(before: int, after: int, shown: Callable[[int], str]) -> str:
    """Both numbers where both were counted and differ, the one there is otherwise."""
    if before and after and before != after:
        return f"{shown(before)} > {shown(after)}"
    return shown(before or after) if before or after else ""


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def drops_table(rows: list[StageRow]) -> Table:
    """Every reason for which a stage dropped rows."""
    table = Table(title="drops", title_style="bold", header_style="bold", pad_edge=False)
    for name in ("stage", "reason"):
        table.add_column(name, no_wrap=True)
    table.add_column("rows", justify="right")
    for row in rows:
        for reason, count in row.drops.items():
            table.add_row(row.stage.partition(".")[2], reason, f"{count:,}")
    return table


def scores_table(scores: list[dict]) -> Table:
    """Every score with its interval."""
    table = Table(title="scores", title_style="bold", header_style="bold", pad_edge=False)
    for name in ("task", "metric"):
        table.add_column(name)
    for name in ("value", "95 % interval", "items"):
        table.add_column(name, justify="right")
    for score in scores:
        table.add_row(*score_cells(score))
    return table


def status_table(history: list[Outcome], campaign: str) -> Table:
    """The latest runs of a campaign."""
    table = Table(title=campaign, title_style="bold", header_style="bold", pad_edge=False)
    for name in ("day", "ended", "status", "s", "cause", "run"):
        table.add_column(name)
    for o in history:
        table.add_row(o.day, o.ended, o.status, f"{o.seconds:.0f}", o.cause, o.run_id[:8])
    return table


def print_status(console: Console) -> None:
    """The latest ferries and canaries, and how many passed."""
    with dg.DagsterInstance.get() as instance:
        for campaign in CAMPAIGNS:
            history = outcomes(instance, campaign)
            finished = [o for o in history if o.status != "running"]
            passed = sum(o.status == "passed" for o in finished)
            console.print(status_table(history, f"{campaign}: {passed} of {len(finished)} finished runs passed"))
