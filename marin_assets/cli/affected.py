"""The command `marin affected`: the reach of a bad artifact or stage version, and takedowns with their plans."""

import dataclasses
import json
import logging
from collections.abc import Iterable
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evals.audit.takedown import Copy, Selection, TakedownScope, find_holders
from evals.audit.takedown_fields import documents_with
from evals.audit.takedown_plan import PlanStep, TakedownPlan, missing_features, plan_takedown, training_flops
from lineage.artifact.locate import locate
from lineage.artifact.store import Store
from lineage.graph.affected import Affected, affected_by, artifacts_of_stage
from lineage.graph.below import made_by, tables_below
from lineage.graph.edges import LineageTables, lineage_tables
from marin_assets.cli.console import print_table
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT
from marin_assets.cli.show_lineage import stores_of

log = logging.getLogger(__name__)

LISTED_STEPS = 12
CHECKPOINT_STAGE = "trainer.checkpoint"


def affected(
    stage: Annotated[str | None, typer.Option(help="Stage, e.g. datakit.token_cache.")] = None,
    version: Annotated[str | None, typer.Option(help="Its version; any version by default.")] = None,
    artifact: Annotated[str | None, typer.Option(help=ARTIFACT)] = None,
    document: Annotated[list[str] | None, typer.Option(help="Document id (32 hex digits), for a takedown.")] = None,
    source: Annotated[str | None, typer.Option(help="Name of a source, for a takedown.")] = None,
    licence: Annotated[str | None, typer.Option(help="SPDX expression of a licence, for a takedown: MIT.")] = None,
    field: Annotated[str | None, typer.Option(help="NAME=VALUE of documents' metadata (an author), for a takedown.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show what a bad artifact, stage version, document, source, licence or author has reached, and what mending costs."""
    given = [name for name in (stage, artifact, document, source, licence, field) if name]
    if len(given) != 1 or (version is not None and stage is None):
        raise typer.BadParameter("give one of --stage (with --version), --artifact, --document, --source, --licence, --field")
    if field is not None and "=" not in field:
        raise typer.BadParameter(f"--field is {field!r}; give NAME=VALUE, e.g. author=Someone")
    if stage or artifact:
        print_affected(root, stage, version, artifact, as_json=as_json, console=Console())
    else:
        print_takedown(root, document or [], source, licence, field, as_json=as_json, console=Console())


def print_affected(
    root: str | None, stage: str | None, version: str | None, artifact: str | None, *, as_json: bool, console: Console
) -> None:
    """Print every descendant of an artifact, or of what a stage made, oldest first, with the cost to make them again."""
    results = [(store, reached, _flops(store, reached)) for store, reached in _reached(root, stage, version, artifact)]
    if as_json:
        print(json.dumps([_affected_record(*result) for result in results], indent=1, ensure_ascii=False))
        return
    for store, below, flops in results:
        print_table(_affected_table(store.root, below), console)
        cost = below.cost
        console.print(
            f"{cost.num_artifacts} artifacts; to make them again: {cost.wall_seconds:,.1f} s ({cost.cpu_seconds:,.1f} CPU s), "
            f"{cost.num_bytes / 1e6:,.1f} MB, {flops:.3g} training FLOPs",
            soft_wrap=True,
        )


def _reached(root: str | None, stage: str | None, version: str | None, artifact: str | None) -> list[tuple[Store, Affected]]:
    """Return the affected artifacts of each store. Raises: ValueError if no store holds the artifact or stage; it names what
    they hold.
    """
    stores = stores_of(root)
    if artifact is not None:
        changed = locate(stores, artifact)
        return [(changed.store, affected_by(tables_below(changed.store, [changed]), [changed.spec.address]))]
    assert stage is not None  # the command line gives one of the two
    if by_store := [(store, origins) for store in stores if (origins := made_by(store, stage, version))]:
        return [
            (store, affected_by(tables_below(store, origins), [each.spec.address for each in origins]))
            for store, origins in by_store
        ]
    log.warning("no commit log knows an artifact of %s; every manifest is asked", stage)
    tables = [(store, lineage_tables(store)) for store in stores]
    holding = [(store, held) for store, held in tables if _holds(held, stage, version)]
    if not holding:  # the store with the most artifacts lists them in its error
        artifacts_of_stage(max((held for _, held in tables), key=lambda held: held.artifacts.height), stage, version)
    return [(store, affected_by(held, artifacts_of_stage(held, stage, version))) for store, held in holding]


def _holds(tables: LineageTables, stage: str, version: str | None) -> bool:
    pairs = tables.artifacts.select("stage", "stage_version").unique().rows()
    return any(name == stage and version in (None, stage_version) for name, stage_version in pairs)


def _flops(store: Store, below: Affected) -> float:
    """Return the FLOPs to train the affected checkpoints again. Those of one job count once (its last)."""
    rows = below.rows.filter(below.rows["stage"] == CHECKPOINT_STAGE)
    last: dict[str, float] = {}
    for address, process in rows.select("address", "process").iter_rows():
        artifact = store.open(address)
        if artifact is None:
            raise ValueError(f"{address} is gone since the lineage tables of {store.root} were read; ask again")
        last[process] = max(last.get(process, 0.0), training_flops(artifact.manifest))
    return sum(last.values())


def _affected_record(store: Store, below: Affected, flops: float) -> dict[str, object]:
    rows = below.rows.drop("stamp", "process").to_dicts()
    return {"root": store.root, "cost": dataclasses.asdict(below.cost) | {"training_flops": flops}, "artifacts": rows}


def _affected_table(root: str, below: Affected) -> Table:
    table = Table(title=f"affected in {root}, oldest first", title_style="bold", header_style="bold", pad_edge=False)
    for name in ("made", "artifact", "stage"):
        table.add_column(name, no_wrap=True)
    for name in ("s", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bad", no_wrap=True)
    for row in below.rows.iter_rows(named=True):
        numbers = (f"{row['wall_seconds']:.1f}", f"{row['num_bytes'] / 1e6:.1f}")
        created = row["created"][:19].replace("T", " ")
        step = f" step {row['step']}" if row["step"] >= 0 else ""
        origin = "itself" if row["is_origin"] else ""
        table.add_row(created, f"{escape(row['name'])}{step}", f"{row['stage']}@{row['stage_version']}", *numbers, origin)
    return table


def print_takedown(
    root: str | None,
    documents: list[str],
    source: str | None,
    licence: str | None,
    field: str | None,
    *,
    as_json: bool,
    console: Console,
) -> None:
    """Print who holds or has read it, the steps that did, and the cheapest plan that makes each clean."""
    stores = [(store, lineage_tables(store)) for store in stores_of(root)]
    selection = Selection(tuple(documents) if field is None else _with_field(stores, field), source, licence)
    results = []
    for store, tables in stores:
        takedown = find_holders(store, tables, selection)
        starts = [holder.artifact.spec.address for holder in takedown.holders]
        results.append((store, takedown, plan_takedown(takedown), affected_by(tables, starts) if starts else None))
    if as_json:
        print(json.dumps([_takedown_record(*result) for result in results], indent=1, ensure_ascii=False))
        return
    for store, takedown, plan, below in results:
        _print_takedown(store, takedown, plan, below, console)


def _with_field(stores: list[tuple[Store, LineageTables]], field: str) -> tuple[str, ...]:
    """Return the ids of the documents with a field, in all stores. Raises: ValueError if no store has any."""
    name, _, value = field.partition("=")
    ids: set[str] = set()
    missed: list[tuple[int, ValueError]] = []
    for store, tables in stores:
        try:
            ids |= set(documents_with(store, tables, name, value))
        except ValueError as error:
            missed.append((tables.artifacts.height, error))
    if not ids:
        raise max(missed, key=lambda pair: pair[0])[1]
    return tuple(sorted(ids))


def _print_takedown(
    store: Store, takedown: TakedownScope, plan: TakedownPlan, below: Affected | None, console: Console
) -> None:
    if takedown.holders:
        print_table(_holders_table(store.root, takedown.holders, plan), console)
        print_table(_plan_table(plan.whole.steps, takedown.holders), console)
        whole = plan.whole
        console.print(
            f"all of it: {whole.wall_seconds:,.1f} s, {whole.num_bytes / 1e6:,.1f} MB, {whole.flops:.3g} training FLOPs",
            soft_wrap=True,
        )
        assert below is not None
        cost = below.cost
        console.print(
            f"everything below the holders, made again, would be {cost.num_artifacts} artifacts, {cost.wall_seconds:,.1f} s, "
            f"{cost.num_bytes / 1e6:,.1f} MB, {_flops(store, below):.3g} training FLOPs",
            soft_wrap=True,
        )
        console.print(f"made from them and not searched for excerpts: {_others(takedown, below)}", soft_wrap=True)
        for what in missing_features(whole):
            console.print(f"[yellow]{what}[/]", soft_wrap=True)
    else:
        console.print(f"{store.root}: nothing holds it", soft_wrap=True, markup=False)
    for address, why in takedown.unknown:
        console.print(f"[yellow]unknown: {escape(address)}: {escape(why)}[/]", soft_wrap=True)


def _others(takedown: TakedownScope, below: Affected) -> str:
    """Return the stages of what was made from the holders without being one (an audit may quote a document, a tokenizer counted
    it).
    """
    holders = pl.Series([holder.artifact.spec.address for holder in takedown.holders]).implode()
    counts = below.rows.filter(~pl.col("address").is_in(holders)).group_by("stage").len().sort("stage")
    return ", ".join(f"{stage} x{count}" for stage, count in counts.iter_rows()) or "nothing"


def _holders_table(root: str, holders: Iterable[Copy], plan: TakedownPlan) -> Table:
    table = Table(title=f"holders in {root}", title_style="bold", header_style="bold", pad_edge=False)
    table.add_column("artifact")
    for name in ("documents", "steps that read it"):
        table.add_column(name)
    for name in ("s", "MB", "FLOPs"):
        table.add_column(name, justify="right", no_wrap=True)
    for holder in holders:
        own = plan.each[holder.artifact.spec.address]
        counts = f"{holder.num_selected:,} of {holder.num_documents:,}"
        table.add_row(
            _name(holder),
            counts if holder.num_selected else "in some file",
            _steps_text(holder),
            f"{own.wall_seconds:,.1f}",
            f"{own.num_bytes / 1e6:,.1f}",
            f"{own.flops:.3g}" if own.flops else "",
        )
    return table


def _name(holder: Copy) -> str:
    step = holder.artifact.spec.config.get("step")
    return escape(holder.artifact.name) + (f" step {step}" if step is not None else "")


def _steps_text(holder: Copy) -> str:
    if holder.role != "checkpoint":
        return ", ".join(holder.components)
    if not holder.steps:
        return "none"
    listed = ", ".join(f"{step:,}" for step in holder.steps[:LISTED_STEPS])
    more = len(holder.steps) - LISTED_STEPS
    return f"{len(holder.steps):,}: {listed}" + (f", ... to {holder.steps[-1]:,}" if more > 0 else "")


def _plan_table(steps: Iterable[PlanStep], holders: Iterable[Copy]) -> Table:
    table = Table(title="cheapest plan for all of them", title_style="bold", header_style="bold", pad_edge=False)
    table.add_column("do", no_wrap=True)
    table.add_column("artifact")
    table.add_column("from")
    for name in ("s", "MB", "FLOPs"):
        table.add_column(name, justify="right", no_wrap=True)
    names = {holder.artifact.spec.address: _name(holder) for holder in holders}
    for step in steps:
        flops = f"{step.flops:.3g}" if step.flops else ""
        numbers = (f"{step.wall_seconds:,.1f}", f"{step.num_bytes / 1e6:,.1f}", flops)
        table.add_row(step.action, names[step.address], escape(step.start), *numbers)
    return table


def _takedown_record(store: Store, takedown: TakedownScope, plan: TakedownPlan, below: Affected | None) -> dict[str, object]:
    def step_records(steps: Iterable[PlanStep]) -> list[dict[str, Any]]:
        return [dataclasses.asdict(step) for step in steps]

    return {
        "root": store.root,
        "selection": dataclasses.asdict(takedown.selection),
        "holders": [
            {
                "name": holder.artifact.name,
                "address": holder.artifact.spec.address,
                "role": holder.role,
                "num_selected": holder.num_selected,
                "num_documents": holder.num_documents,
                "components": holder.components,
                "steps": holder.steps,
                "plan": step_records(plan.each[holder.artifact.spec.address].steps),
            }
            for holder in takedown.holders
        ],
        "whole_plan": step_records(plan.whole.steps),
        "whole_cost": {
            "wall_seconds": plan.whole.wall_seconds,
            "num_bytes": plan.whole.num_bytes,
            "training_flops": plan.whole.flops,
        },
        "missing_features": missing_features(plan.whole),
        "below": None if below is None else below.addresses,
        "unknown": [{"address": address, "why": why} for address, why in takedown.unknown],
    }
