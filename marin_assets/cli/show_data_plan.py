"""What `marin plan-data` prints."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from datakit.costs.contained import ContainmentRates
from datakit.costs.plan import NOT_COUNTED, STAGES, Corpus, DataPlan, Measured, StagePlan, check_of, plan
from datakit.costs.rates import Estimate
from lineage.project import CODE
from marin_assets.cli.console import print_json, print_table
from marin_assets.cli.options import AS_JSON
from marin_assets.cli.run_plan import CLASS_A_DOLLARS, CLASS_B_DOLLARS
from recipes.sources import catalogue

RATES = CODE / "data" / "rates" / "data_engine.json"
CONTAINMENT_RATES = RATES.with_name("containment.json")
"""What `python -m benchmarks.plan_containment` wrote."""
CORE_HOUR_DOLLARS = 0.0485
"""Google's n2-standard on demand, from memory, not read again."""
CATALOGUE_TRILLION, CATALOGUE_SOURCES = 25.6, 292
"""Raw tokens and sources of the reference catalogue (marin#8435)."""
BYTES_PER_TOKEN = 4.0


def plan_data(
    tokens_trillion: Annotated[float, typer.Option(min=0.0, help="Raw tokens to plan, in trillions.")] = CATALOGUE_TRILLION,
    sources: Annotated[int, typer.Option(min=1, help="Sources that they come from.")] = CATALOGUE_SOURCES,
    bytes_per_token: Annotated[float, typer.Option(min=0.1, help="Bytes of text of a token.")] = BYTES_PER_TOKEN,
    core_hour_dollars: Annotated[float, typer.Option(min=0.0, help="Price of a core for an hour.")] = CORE_HOUR_DOLLARS,
    rates: Annotated[
        Path,
        typer.Option(
            help="Measurements that `python -m benchmarks.plan_data` wrote.", show_default="data/rates/data_engine.json"
        ),
    ] = RATES,
    containment: Annotated[
        bool, typer.Option("--containment", help="Plan documents inside longer ones, too, which are off by default.")
    ] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of docs/design/data_costs.md.")] = False,
) -> None:
    """Plan the data engine for a whole catalogue: core hours, shuffled bytes, storage operations and dollars by stage."""
    if tokens_trillion <= 0:
        raise ValueError(f"--tokens-trillion is {tokens_trillion:g}; it must be above 0")
    contained = ContainmentRates.read(CONTAINMENT_RATES) if containment else None
    planned = plan(Measured.read(rates), Corpus(tokens_trillion * 1e12, bytes_per_token, sources), contained)
    if as_json:
        print_json(as_record(planned, core_hour_dollars))
        return
    if as_markdown:
        print(markdown(planned, core_hour_dollars))
        return
    console = Console()
    table = Table(*COLUMNS, title=title(planned), caption=caption(planned))
    for row in rows(planned, core_hour_dollars):
        table.add_row(*row)
    print_table(table, console)


COLUMNS = ("stage", "core hours", "95 % interval", "shuffled", "opens", "class A", "class B", "dollars")


def rows(planned: DataPlan, core_hour_dollars: float) -> list[tuple[str, ...]]:
    """Return the printed cells: a row for each stage, and one for their sum."""
    of_stages = [_row(stage, core_hour_dollars) for stage in planned.stages]
    stages = planned.stages
    hours = Estimate(*(sum(getattr(s.core_hours, name) for s in stages) for name in ("value", "low", "high")))
    names = ("shuffled", "opens", "writes", "reads")
    shuffled, opens, writes, reads = (sum(getattr(stage, name) for stage in stages) for name in names)
    dollars = sum(dollars_of(stage, core_hour_dollars) for stage in stages)
    return [*of_stages, _cells("all", hours, shuffled, opens, writes, reads, dollars)]


def dollars_of(stage: StagePlan, core_hour_dollars: float) -> float:
    """Return the price of a stage's cores and storage operations."""
    operations = stage.writes * CLASS_A_DOLLARS + stage.reads * CLASS_B_DOLLARS
    return stage.core_hours.value * core_hour_dollars + operations


def _row(stage: StagePlan, core_hour_dollars: float) -> tuple[str, ...]:
    dollars = dollars_of(stage, core_hour_dollars)
    return _cells(stage.name, stage.core_hours, stage.shuffled, stage.opens, stage.writes, stage.reads, dollars)


def _cells(
    name: str, hours: Estimate, shuffled: float, opens: float, writes: float, reads: float, dollars: float
) -> tuple[str, ...]:
    interval = f"{hours.low:,.0f} to {hours.high:,.0f}"
    counts = (f"{count:,.0f}" for count in (opens, writes, reads))
    return (name, f"{hours.value:,.0f}", interval, f"{shuffled / 1e12:,.2f} TB", *counts, f"{dollars:,.0f}")


def title(planned: DataPlan) -> str:
    """Return what is planned, in one line."""
    corpus, scope = planned.corpus, planned.scope
    return (
        f"{corpus.tokens / 1e12:g} T tokens: {corpus.bytes / 1e12:.1f} TB of text, {scope.documents / 1e9:.1f} B documents, "
        f"{scope.parts:,} parts, {corpus.sources} sources"
    )


def caption(planned: DataPlan) -> str:
    """Return where the rates come from, and how well they predicted the largest run."""
    measured = planned.measured
    predicted, spent = check_of(measured)["all"]
    largest = max(run.bytes for run in measured.runs)
    trillions = sum(source.rough_tokens_billion or 0 for source in catalogue().values() if source.trainable) / 1e3
    return (
        f"Measured on {measured.day} ({measured.machine}, commit {measured.commit}) on up to {largest / 1e6:,.0f} MB; this is "
        f"{planned.corpus.bytes / largest:,.0f} times that. {measured.check.bytes / 1e6:,.0f} MB: predicted "
        f"{predicted.value:,.0f} CPU s ({predicted.low:,.0f} to {predicted.high:,.0f}), measured {spent:,.0f}. Sources of this "
        f"catalogue whose size is known have {trillions:.1f} T tokens. {not_counted(planned)}"
    )


def not_counted(planned: DataPlan) -> str:
    """Return what the plan leaves out, in one sentence."""
    off = "" if any(stage.name not in STAGES for stage in planned.stages) else "; documents inside longer ones (--containment)"
    return f"Not counted: {'; '.join(NOT_COUNTED)}{off}."


def as_record(planned: DataPlan, core_hour_dollars: float) -> dict[str, Any]:
    """Return the plan for programs."""
    predicted, spent = check_of(planned.measured)["all"]
    return {
        "corpus": vars(planned.corpus) | {"bytes": planned.corpus.bytes},
        "measured": {
            "command": planned.measured.command,
            "commit": planned.measured.commit,
            "day": planned.measured.day,
            "machine": planned.measured.machine,
            "check": {"bytes": planned.measured.check.bytes, "predicted": vars(predicted), "measured": spent},
        },
        "scope": vars(planned.scope),
        "not_counted": list(NOT_COUNTED),
        "joins": [vars(join) | {"levels": join.levels, "opens": join.opens} for join in planned.joins],
        "stages": {
            stage.name: {
                "core_hours": vars(stage.core_hours),
                "shuffled_bytes": stage.shuffled,
                "opened_files": stage.opens,
                "ranged_requests": stage.ranged,
                "class_a": stage.writes,
                "class_b": stage.reads,
                "dollars": dollars_of(stage, core_hour_dollars),
            }
            for stage in planned.stages
        },
    }


def markdown(planned: DataPlan, core_hour_dollars: float) -> str:
    """Return the tables of docs/design/data_costs.md."""
    lines = [f"{title(planned)}.", "", f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(row)} |" for row in rows(planned, core_hour_dollars)]
    lines += ["", "| join | shuffled | tasks | ranges | levels | rounds | opens |", "|---|---|---|---|---|---|---|"]
    for join in planned.joins:
        counts = (join.tasks, join.ranges, join.levels, join.times, join.opens)
        cells = (f"{join.moved / 1e12:.3f} TB", *(f"{n:,}" for n in counts))
        lines.append(f"| {join.name} | {' | '.join(cells)} |")
    lines += ["", "| stage | predicted, CPU s | 95 % of the mean | measured | off by |", "|---|---|---|---|---|"]
    for name, (predicted, spent) in check_of(planned.measured).items():
        off, interval = predicted.value / spent - 1, f"{predicted.low:.1f} to {predicted.high:.1f}"
        lines.append(f"| {name} | {predicted.value:.1f} | {interval} | {spent:.1f} | {off:+.0%} |")
    return "\n".join(lines)
