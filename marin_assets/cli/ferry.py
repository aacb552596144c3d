"""The commands `marin ferry` and `marin canary`: a campaign's day in this process, its tables, and where to look next."""

import dataclasses
import datetime
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import dagster as dg
import typer
from rich.console import Console
from rich.table import Table

from datakit.sources.roster import registry_reachable
from evals.reports.report import StageRow, stage_rows, unigram_entropy
from evals.scoring.report_page import score_cells
from jobs.campaigns import FERRY, FERRY_JOB
from jobs.upkeep import PASS_RATES
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import AS_JSON, exit_by
from marin_assets.cli.stage_lines import CampaignLines, quiet
from marin_assets.cli.upkeep import QUIET
from marin_assets.definitions import declared_defs
from marin_assets.event_log import STAGE_METADATA
from marin_assets.operations import pass_rate_key
from marin_assets.outcomes import classify
from partitions.axes import DAY_FORMAT, FIRST_DAY
from recipes import ferry as recipe
from recipes.canary import canary_run
from recipes.daily import daily_ferry
from recipes.lab import declarations
from resources.dagster_private import keep_engines
from resources.lab import Lab, lab_from_environment

DAY = typer.Option(help="Day to materialize, YYYY-MM-DD; today in UTC by default.")


def ferry(
    day: Annotated[str | None, DAY] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Build the same nodes without Dagster (to measure its overhead).")
    ] = False,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Materialize a day's smoke ferry and show what it did."""
    day = day_of(day)
    resource = lab_from_environment()
    lab = resource.lab()
    before = {artifact.spec.address for artifact in lab.ferry_store.artifacts()}
    started = time.perf_counter()
    passed = (
        ferry_direct(lab, day)
        if direct
        else run_campaign(declared_defs(resource), FERRY_JOB, FERRY, day, log_file(lab, FERRY, day), as_json=as_json)
    )
    seconds = time.perf_counter() - started
    if as_json:
        report = resolve(lab.ferry_store, recipe.report(recipe.rostered_run(daily_ferry(), lab.ferry_store, day)))
        print_json({"day": day, "passed": passed, "seconds": round(seconds, 1), "report": report.uri})
    else:
        print_ferry(lab.ferry_store, day, before, seconds, Console())
    exit_by(passed)


def canary(
    hardware: Annotated[str, typer.Option(help="What it trains on: cpu, or what a study declares.")] = "cpu",
    day: Annotated[str | None, DAY] = None,
    against: Annotated[str, typer.Option(help="Interpreter of another environment: train in both and compare.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Compare over fewer steps than the canary's 300.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Materialize a day's canary: its fixed run and the verdict on it; or compare two environments by it."""
    if against:
        return compare_lock_files(against, day_of(day), steps, as_json=as_json)
    if steps is not None:
        raise ValueError(f"--steps is {steps}; it goes with --against: the daily canary has a band for all its steps")
    known = {each.hardware: each for each in declarations().canaries}
    if hardware not in known:
        raise ValueError(
            f"there is no canary on {hardware!r}; there is one on {', '.join(known)}. A study declares others: "
            'Study(..., canaries=("h100x8",))'
        )
    day = day_of(day)
    campaign, resource = known[hardware].campaign, lab_from_environment()
    told_in = log_file(resource.lab(), campaign, day)
    passed = run_campaign(declared_defs(resource), campaign, campaign, day, told_in, as_json=as_json)
    if as_json:
        print_json({"day": day, "hardware": hardware, "passed": passed})
    else:
        print(f"the canary of {day} passed; `./marin status` shows the latest")
    exit_by(passed)


def compare_lock_files(python: str, day: str, steps: int | None, *, as_json: bool) -> None:
    """Train the canary here and in another environment, print what differs, and exit by whether all losses are equal."""
    from marin_assets.dependency_canary import compare_environments, record

    lab = lab_from_environment().lab()
    run = canary_run("cpu", day)
    if steps is not None:
        run = dataclasses.replace(run, spec=dataclasses.replace(run.spec, num_steps=steps, save_every_steps=None))
    difference = compare_environments(lab, python, run)
    where = record(lab.store, difference, day)
    if as_json:
        print_json({**dataclasses.asdict(difference), "text": difference.text, "record": where})
    else:
        for name, (here, there) in difference.packages.items():
            print(f"{name}: {here or 'missing'} here, {there or 'missing'} there")
        print(f"{difference.text}; {where}")
    exit_by(difference.first_step is None)


def day_of(text: str | None) -> str:
    """Parse a day as typed; today in UTC by default. Raises: ValueError for a text that is not a day with a partition."""
    today = datetime.datetime.now(datetime.UTC).date()
    try:
        day = today if text is None else datetime.datetime.strptime(text, DAY_FORMAT).date()
    except ValueError as error:
        raise ValueError(f"--day is {text!r}; give a day as YYYY-MM-DD, like {today}") from error
    first = datetime.date.fromisoformat(FIRST_DAY)
    if not first <= day <= today:
        raise ValueError(f"--day is {day}; give one from {first} to {today} (UTC)")
    return day.isoformat()


def ferry_direct(lab: Lab, day: str) -> bool:
    """Build the same nodes by the same functions without Dagster: the other side of the overhead benchmark."""
    ferry = daily_ferry()
    reachable = registry_reachable(recipe.pins(ferry), lab.ferry_store.downloads)
    lab.build(lab.ferry_store, recipe.roster(ferry, day, reachable=reachable))
    for node in recipe.nodes(recipe.rostered_run(ferry, lab.ferry_store, day)):
        lab.build(lab.ferry_store, node)
    return True


def log_file(lab: Lab, campaign: str, day: str) -> Path:
    """Return the file of what a campaign's day prints beside the lines of its stages."""
    return lab.ferry_store.scratch / "logs" / f"{campaign}-{day}.log"


def run_campaign(definitions: dg.Definitions, job: str, campaign: str, day: str, told_in: Path, *, as_json: bool) -> bool:
    """Run the job of a campaign in this process, recorded in the instance that the UI reads, and refresh its pass rate.

    Prints a line for each stage (to standard error with `as_json`); details go to the log file `told_in`.
    Raises: RuntimeError with the cause of a failure.
    """
    with dg.DagsterInstance.get() as instance, quiet(told_in, errors=as_json) as terminal:
        keep_engines(instance)
        run_id = str(uuid.uuid4())
        instance.add_event_listener(run_id, CampaignLines(terminal, stages_of(definitions, job)))
        result = definitions.resolve_job_def(job).execute_in_process(
            run_id=run_id,
            partition_key=day,
            instance=instance,
            raise_on_error=False,
            tags={"marin/launched_by": "command line"},
            run_config=QUIET,
        )
        cause = "" if result.success else classify(instance, result.dagster_run)[1]
        refresh_pass_rate(definitions, instance, campaign)
    if not result.success:
        raise RuntimeError(
            f"{job} of {day} failed: {cause}; run it again to resume, `make ui` shows the run, {told_in} has the details"
        )
    return result.success


def stages_of(definitions: dg.Definitions, job: str) -> dict[dg.AssetKey, str]:
    """Return the assets of a job with their stages; an asset that is no artifact has its key as its stage."""
    keys = definitions.resolve_job_def(job).asset_layer.selected_asset_keys
    specs = [spec for spec in definitions.resolve_all_asset_specs() if spec.key in keys]
    return {spec.key: str(spec.metadata.get(STAGE_METADATA, spec.key.to_user_string())) for spec in specs}


def refresh_pass_rate(definitions: dg.Definitions, instance: dg.DagsterInstance, campaign: str) -> None:
    """Materialize the pass rate of a campaign. Its sensor does so only while a daemon runs."""
    definitions.resolve_job_def(PASS_RATES).execute_in_process(
        instance=instance, asset_selection=[pass_rate_key(campaign)], run_config=QUIET
    )


def print_ferry(store: Store, day: str, before: set[str], seconds: float, console: Console) -> None:
    """Print stages, loss, scores, verdict, and where everything is."""
    roster = resolve(store, recipe.existing_roster(daily_ferry(), store, day)).manifest.extra["roster"]
    run = recipe.rostered_run(daily_ferry(), store, day)
    report = resolve(store, recipe.report(run))
    artifacts = [resolve(store, node) for node in recipe.nodes(run)]
    reused = sum(artifact.spec.address in before for artifact in artifacts)
    by_stage = {artifact.spec.stage: artifact for artifact in artifacts}
    scores = by_stage["evals.result"].manifest.extra["scores"]
    rows = stage_rows(artifacts)
    print_table(stage_table(rows, title=f"smoke ferry {day}: in > out"), console)
    print_table(drops_table(rows), console)
    print_table(scores_table(scores), console)
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
    parts = f"training loss {facts['loss_nats']:.3f} nats a token at step {facts['step']:,}"
    return parts + (f"; unigram entropy of the held-out text {entropy:.3f}" if entropy is not None else "")


def _audit_counts(audit: Artifact) -> str:
    counts = audit.manifest.extra["audit"].get("counts", {})
    parts = [f"{count:,} {what.replace('_', ' ')}" for what, count in sorted(counts.items())]
    return f"({', '.join(parts)})" if parts else ""


def stage_table(rows: list[StageRow], title: str) -> Table:
    """Return a row for each stage: rows, bytes and tokens in and out, seconds, peak memory."""
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
    """Return both numbers if both were counted and differ, else the one that was counted."""
    if before and after and before != after:
        return f"{shown(before)} > {shown(after)}"
    return shown(before or after) if before or after else ""


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}"


def drops_table(rows: list[StageRow]) -> Table:
    """Return every reason for which a stage dropped rows."""
    table = Table(title="drops", title_style="bold", header_style="bold", pad_edge=False)
    for name in ("stage", "reason"):
        table.add_column(name, no_wrap=True)
    table.add_column("rows", justify="right")
    for row in rows:
        for reason, count in row.drops.items():
            table.add_row(row.stage.partition(".")[2], reason, f"{count:,}")
    return table


def scores_table(scores: list[dict]) -> Table:
    """Return every score with its interval."""
    table = Table(title="scores", title_style="bold", header_style="bold", pad_edge=False)
    for name in ("task", "metric"):
        table.add_column(name)
    for name in ("value", "95 % interval", "items"):
        table.add_column(name, justify="right")
    for score in scores:
        table.add_row(*score_cells(score))
    return table
