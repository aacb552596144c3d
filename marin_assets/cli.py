"""The console script `marin`: a few lines over the graph for every command.

The graph is imported inside the commands: worker processes import this file again as their main module, and Dagster costs
each of them seconds that a shard of text does not (measured 2026-11-21: 6 s of a 7 s stage).
"""

import datetime
import logging
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(add_completion=False, no_args_is_help=True, help="An open language-model lab as one Dagster asset graph.")
storage = typer.Typer(no_args_is_help=True, help="Copies between roots, and rules of buckets (docs/design/storage.md).")
app.add_typer(storage, name="storage")
TOLD = ("datakit", "evals", "lineage", "marin_assets", "trainer")
"""Packages whose progress the terminal shows; of libraries it shows warnings."""
ARTIFACT = "Folder, address or name of an artifact, e.g. 'ferry/runs/smoke/checkpoint[2026-11-21]'."
ROOT = typer.Option(help="Root of one store, a folder or any fsspec URL; both of the lab's stores unless told.")
AS_JSON = typer.Option("--json", help="Print JSON.")
DAY = typer.Option(help="Day to materialize, YYYY-MM-DD; today in UTC unless told.")


@app.callback()
def set_up_logging() -> None:
    """An open language-model lab as one Dagster asset graph."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for package in TOLD:
        logging.getLogger(package).setLevel(logging.INFO)
    warnings.filterwarnings("ignore", message=".*is currently in beta")  # of Dagster, named in docs/dependencies.md


@app.command()
def ferry(
    day: Annotated[str | None, DAY] = None,
    direct: Annotated[bool, typer.Option(help="Build the same nodes without Dagster (to measure its overhead).")] = False,
) -> None:
    """Materialize a day's smoke ferry and show what it did."""
    from marin_assets import summary

    _exit(summary.run_ferry(day or _today(), direct=direct, console=Console()))


@app.command()
def canary(hardware: Annotated[str, typer.Option()] = "cpu", day: Annotated[str | None, DAY] = None) -> None:
    """Materialize a day's canary: its fixed run and the verdict on it."""
    from marin_assets import summary

    _exit(summary.run_canary(hardware, day or _today()))


@app.command()
def materialize(
    asset: Annotated[str, typer.Argument(help="Asset key, e.g. runs/tiny/training or corpus/default.")],
    partition: Annotated[str | None, typer.Option(help="Partition, for an asset that has partitions.")] = None,
) -> None:
    """Materialize one canonical asset and whatever is missing above it, one Dagster run each."""
    from marin_assets import summary

    artifact = summary.materialize_with_ancestors(asset, partition)
    Console().print(f"{artifact.name} is at {artifact.uri}", soft_wrap=True)


@app.command()
def lineage(
    artifact: Annotated[str | None, typer.Argument(help=ARTIFACT)] = None,
    down: Annotated[bool, typer.Option("--down/--up", help="What was made from it, or what it was made from.")] = False,
    graph: Annotated[str | None, typer.Option(help="Print a picture instead: mermaid or html (one file, no network).")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    check: Annotated[bool, typer.Option(help="Compare manifests and lineage tables, and name what disagrees.")] = False,
    rebuild: Annotated[bool, typer.Option(help="Make the lineage tables again from the manifests alone.")] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show what an artifact was made from, or what was made from it, from manifests alone."""
    from marin_assets import lineage_cli

    if check or rebuild:
        _exit(lineage_cli.check(root, rebuild=rebuild, as_json=as_json, console=Console()))
    elif artifact is None:
        raise typer.BadParameter("name an artifact, or give --check or --rebuild")
    else:
        shown = graph or ("json" if as_json else "text")
        lineage_cli.show(artifact, root, direction="down" if down else "up", shown=shown, console=Console())


@app.command()
def consistency(as_json: Annotated[bool, AS_JSON] = False) -> None:
    """Compare manifests, lineage tables and Dagster's event log, and name what disagrees."""
    from marin_assets import consistency_cli

    _exit(consistency_cli.print_consistency(as_json=as_json, console=Console()))


@app.command()
def rebuild_event_log(
    fill_gaps: Annotated[
        bool, typer.Option("--fill-gaps", help="Report what is missing in a log with events of its own.")
    ] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make Dagster's event log again from manifests alone."""
    from marin_assets import consistency_cli

    _exit(consistency_cli.rebuild(root, fill_gaps=fill_gaps, console=Console()))


@app.command()
def affected(
    stage: Annotated[str | None, typer.Option(help="Stage, e.g. datakit.token_cache.")] = None,
    version: Annotated[str | None, typer.Option(help="Its version; any version unless told.")] = None,
    artifact: Annotated[str | None, typer.Option(help=ARTIFACT)] = None,
    document: Annotated[list[str] | None, typer.Option(help="Document id (32 hex digits), for a takedown.")] = None,
    source: Annotated[str | None, typer.Option(help="Name of a source, for a takedown.")] = None,
    licence: Annotated[str | None, typer.Option(help="Text of a licence, for a takedown.")] = None,
    field: Annotated[str | None, typer.Option(help="NAME=VALUE of documents' metadata (an author), for a takedown.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show what a bad artifact, stage version, document, source, licence or author has reached, and what mending costs."""
    from marin_assets import affected_cli

    given = [name for name in (stage, artifact, document, source, licence, field) if name]
    if len(given) != 1 or (version is not None and stage is None):
        raise typer.BadParameter("give one of --stage (with --version), --artifact, --document, --source, --licence, --field")
    if field is not None and "=" not in field:
        raise typer.BadParameter(f"--field is {field!r}; give NAME=VALUE, e.g. author=Someone")
    if stage or artifact:
        affected_cli.print_affected(root, stage, version, artifact, as_json=as_json, console=Console())
    else:
        affected_cli.print_takedown(root, document or [], source, licence, field, as_json=as_json, console=Console())


@app.command()
def audit(
    checkpoint: Annotated[str, typer.Argument(help=ARTIFACT)],
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show the contamination audit of a checkpoint: which items, which documents, at which steps, and what it changed."""
    from marin_assets import audit_cli

    _exit(audit_cli.print_audit(checkpoint, root, as_json=as_json, console=Console()))


@app.command()
def policies(
    comparison: Annotated[str, typer.Argument(help=ARTIFACT)] = "contamination_comparison/default",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show contamination policies side by side: what each marks, what it finds of planted items, and who agrees with whom."""
    from marin_assets import policies_cli

    policies_cli.print_policies(comparison, root, as_json=as_json, console=Console())


@app.command()
def holders(
    item: Annotated[str, typer.Argument(help="Benchmark item: task/item_id, or suite/task/item_id.")],
    key: Annotated[
        str, typer.Option(help="Marks to ask: contamination, contamination/POLICY, ferry/contamination.")
    ] = "contamination",
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show which documents of all scanned sources hold a benchmark item: source, part, tier and span of each."""
    from marin_assets import holders_cli

    holders_cli.print_holders(item, key, root, as_json=as_json, console=Console())


@app.command()
def histories(
    name: Annotated[str | None, typer.Argument(help="One of them, with every share: marin_8b, marin_32b_bison, ...")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show the declared runs of the retrospectives: phases, steps, tokens that add up, mixes."""
    from marin_assets import histories_cli

    histories_cli.print_histories(name, as_json=as_json, console=Console())


@app.command()
def spec(run: Annotated[str, typer.Argument(help="A declared run: tiny, tiny_packed, ...")]) -> None:
    """Print a declared run as the file that `python -m trainer` reads (docs/recipes/add_a_run.md)."""
    from marin_assets import lineage_cli, spec_cli

    spec_cli.print_spec(run, lineage_cli.stores_of(None)[0])


@app.command()
def heldout(
    run: Annotated[str, typer.Argument(help="A declared run: its corpora and its tokenizer.")],
    kib_per_domain: Annotated[int, typer.Option(help="Text of each domain, at most.", min=1)] = 64,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Print held-out text by tag as the file that `MARIN_EVAL` names (docs/recipes/add_a_run.md)."""
    from marin_assets import lineage_cli, spec_cli

    spec_cli.print_heldout(run, lineage_cli.stores_of(root)[0], kib_per_domain)


@app.command()
def exposure(
    checkpoint: Annotated[str, typer.Argument(help=ARTIFACT)],
    document: Annotated[list[str] | None, typer.Option(help="Document id (32 hex digits); give it again for more.")] = None,
    item: Annotated[str | None, typer.Option(help="Benchmark item: task/item_id, or suite/task/item_id.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show at which training steps a checkpoint saw documents, or the documents that hold a benchmark item."""
    from marin_assets import exposure_cli

    if (not document) == (item is None):
        raise typer.BadParameter("give --document (once or more) or --item")
    exposure_cli.print_exposure(checkpoint, root, document or [], item, as_json=as_json, console=Console())


@app.command()
def gate(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Say whether an artifact is fit to build on: what is wrong with it or an ancestor, and what mends it."""
    from marin_assets import gate_cli
    from trainer.stage import CHECKPOINT

    assert CHECKPOINT.gate is not None
    _exit(gate_cli.print_gate(artifact, root, CHECKPOINT.gate, Console()))


@app.command()
def waive(
    problem: Annotated[str, typer.Argument(help="failed, quarantined, unaudited or incomplete.")],
    artifact: Annotated[str, typer.Option(help="Pattern of names that are not as they should be: 'corpus/default[kjv]'.")],
    who: Annotated[str, typer.Option(help="Who decides.")],
    why: Annotated[str, typer.Option(help="Why it may be used still.")],
    expires: Annotated[str, typer.Option(help="Last day it holds, YYYY-MM-DD (UTC).")],
    target: Annotated[str, typer.Option(help="Pattern of names that may be built on it.")] = "*",
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Let work build on what a check or a person holds back, until a day; what it lets through records it."""
    from marin_assets import gate_cli

    gate_cli.record_waiver(root, gate_cli.waiver_of(problem, artifact, who, why, expires, target), Console())


@app.command()
def quarantine(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    why: Annotated[str, typer.Option(help="Why it must not be used, or may be used again.")],
    lift: Annotated[bool, typer.Option("--lift", help="Put it back in use.")] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Take an artifact out of use: training, evaluation and serving refuse it and what was made from it."""
    from marin_assets import gate_cli

    gate_cli.set_quarantine(artifact, root, why, lift=lift, console=Console())


@app.command()
def reproduce(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    into: Annotated[
        str | None, typer.Option(help="An empty folder or URL to make it in; a new temporary folder unless told.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make an artifact and all its ancestors again from manifests alone, and compare their bytes."""
    from marin_assets import lineage_cli

    _exit(lineage_cli.reproduce_into(artifact, root, into, as_json=as_json, console=Console()))


@app.command()
def verify(
    artifact: Annotated[str | None, typer.Argument(help=ARTIFACT)] = None,
    all_drifted: Annotated[bool, typer.Option(help="The newest artifact of every name that has drifted.")] = False,
    shards: Annotated[int, typer.Option(min=1, help="Shards to make again, of an artifact that lists more.")] = 3,
    jobs: Annotated[bool, typer.Option(help="Make artifacts of training and evaluation jobs again too.")] = False,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make drifted artifacts again with today's code in scratch space, compare their bytes, and record what came out."""
    from marin_assets import verify_cli

    if (artifact is not None) == all_drifted:
        raise typer.BadParameter("name an artifact, or give --all-drifted")
    _exit(verify_cli.print_verified(artifact, root, num_shards=shards, jobs=jobs, as_json=as_json, console=Console()))


@app.command()
def leaderboard(
    policy: Annotated[str | None, typer.Option(help="One evaluation policy, e.g. 2026-11-22; all of them unless told.")] = None,
    task: Annotated[str | None, typer.Option(help="One task.")] = None,
    sql: Annotated[str | None, typer.Option(help="A DuckDB query over the views results, leaderboard and items.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page instead.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show every evaluation result, a board a policy, ranked by the bound of the interval that speaks against a model."""
    from marin_assets import leaderboard_cli

    leaderboard_cli.print_leaderboard(root, policy=policy, task=task, sql=sql, html=html, json=as_json, console=Console())


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="Result, e.g. 'runs/tiny/eval_result[step-00000050|piqa]'.")],
    second: Annotated[str, typer.Argument(help="Another result under the same policy.")],
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Compare two results item by item: McNemar's or the sign test, and a paired bootstrap."""
    from marin_assets import leaderboard_cli

    leaderboard_cli.print_comparison(first, second, root, Console())


@app.command()
def gap(
    first: Annotated[str, typer.Argument(help="Checkpoint, e.g. 'runs/tiny/checkpoint[step-00000050]'.")],
    second: Annotated[str, typer.Argument(help="Another checkpoint; its tokenizer may be another one.")],
    worst: Annotated[int, typer.Option(min=0, help="Documents to show, the largest gap first.")] = 10,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show where a second checkpoint finds held-out text harder than a first, byte by byte (the first one's corpora)."""
    from marin_assets import leaderboard_cli

    leaderboard_cli.print_gap(first, second, root, worst=worst, console=Console())


@app.command()
def sources() -> None:
    """Print the source catalogue as a Markdown table: pins, licences, and what of them is unverified."""
    from recipes.catalogue_table import markdown
    from recipes.sources import catalogue

    typer.echo(markdown(catalogue()), nl=False)


@app.command()
def plan_run(
    name: Annotated[str | None, typer.Argument(help="A paper run: 1e23 or june; all of them unless told.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Other hardware than its own, e.g. v5p-512.")] = None,
    remat: Annotated[str | None, typer.Option(help="Another choice of what backward makes again: none, named, full.")] = None,
    manifest: Annotated[bool, typer.Option("--manifest", help="Print the Kubernetes manifest of its training.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of docs/design/scale.md.")] = False,
) -> None:
    """Plan a large run on paper: memory of a device, time, checkpoints, storage operations and dollars a day."""
    from marin_assets import run_plan_cli

    run_plan_cli.print_plans(
        name, hardware=hardware, remat=remat, as_manifest=manifest, as_markdown=markdown, console=Console()
    )


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of a checkpoint, as the UI shows it.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 8000,
) -> None:
    """Serve a checkpoint over OpenAI's API on loopback (`python -m evals.serve --help` has every option)."""
    from evals.serve.__main__ import Listening
    from evals.serve.__main__ import serve as run_server
    from evals.serve.engine import EngineSettings

    run_server(folder, Listening(port), None, None, EngineSettings())


@app.command()
def status() -> None:
    """Show the latest ferries and canaries, and how many passed."""
    from marin_assets import summary

    summary.print_status(Console())


@storage.command()
def mirror(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    into: Annotated[str, typer.Option(help="Root to copy to: a folder or gs:// URL.")],
    root: Annotated[str | None, ROOT] = None,
    alone: Annotated[
        bool, typer.Option(help="Without its ancestors: what is built on the copy is refused without them.")
    ] = False,
) -> None:
    """Copy an artifact and its ancestors to another root: same identity, same bytes, and where it came from."""
    from marin_assets import storage_cli

    storage_cli.print_mirror(artifact, root, into, ancestors=not alone, console=Console())


@storage.command()
def lifecycle(
    root: Annotated[str, typer.Option(help="The lab's gs:// root.", envvar="MARIN_ROOT")],
    apply: Annotated[bool, typer.Option(help="Write them to the bucket, beside the rules of others.")] = False,
) -> None:
    """Print the bucket rules that delete what has a time to live, or write them."""
    from marin_assets import storage_cli

    storage_cli.print_lifecycle(root, apply=apply)


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")


def _exit(passed: bool) -> None:
    if not passed:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
