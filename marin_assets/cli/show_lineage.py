"""The commands `marin lineage` and `marin reproduce`. They read storage only; with `--root` they do not even import Dagster."""

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from lineage.artifact.locate import locate
from lineage.artifact.store import Artifact, Store
from lineage.build import reproduce as again
from lineage.build.reproduce import Comparison
from lineage.graph.below import tables_below
from lineage.graph.check_tables import check_lineage
from lineage.graph.edges import open_all, rebuild_tables
from lineage.graph.scan import rebuild_log
from lineage.graph.walk import Direction, LineageGraph
from lineage.shards.execution import Execution
from marin_assets.cli.lineage_picture import html_page, mermaid
from marin_assets.cli.options import ARTIFACT, AS_JSON, ROOT, exit_by
from resources.stores import check_root, stores_from_environment

SHOWN = ("text", "json", "mermaid", "html")
REPRODUCE_WORKERS = 2


def lineage(
    artifact: Annotated[str | None, typer.Argument(help=ARTIFACT)] = None,
    down: Annotated[bool, typer.Option("--down/--up", help="What was made from it, or what it was made from.")] = False,
    graph: Annotated[str | None, typer.Option(help="Print a picture instead: mermaid or html (one file, no network).")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare manifests, tables and commit log; name what disagrees.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make tables and commit log again from the manifests alone.")
    ] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Show what an artifact was made from, or what was made from it, from manifests alone."""
    if check or rebuild:
        exit_by(check_stores(root, rebuild=rebuild, as_json=as_json, console=Console()))
    elif artifact is None:
        raise typer.BadParameter("name an artifact, or give --check or --rebuild")
    else:
        shown = graph or ("json" if as_json else "text")
        show_walk(artifact, root, direction="down" if down else "up", shown=shown, console=Console())


def reproduce(
    artifact: Annotated[str, typer.Argument(help=ARTIFACT)],
    into: Annotated[
        str | None, typer.Option(help="An empty folder or URL to make it in; a new temporary folder by default.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    root: Annotated[str | None, ROOT] = None,
) -> None:
    """Make an artifact and all its ancestors again from manifests alone, and compare their bytes."""
    exit_by(reproduce_into(artifact, root, into, as_json=as_json, console=Console()))


def stores_of(root: str | None) -> list[Store]:
    """Return the store under a root, or the canonical store and the ferries' store of the lab that the environment names."""
    if root is not None:
        return [Store(check_root(root))]
    return list(stores_from_environment())


def show_walk(text: str, root: str | None, *, direction: Direction, shown: str, console: Console) -> None:
    """Print the walk from an artifact as text, JSON, Mermaid or HTML. Raises: ValueError for another form."""
    if shown not in SHOWN:
        raise ValueError(f"--graph is {shown!r}; allowed: mermaid, html")
    artifact = locate(stores_of(root), text)
    walked = walk(artifact, direction)
    if shown == "json":
        print(json.dumps([record(step) for step in walked], indent=1, ensure_ascii=False))
    elif shown == "mermaid":
        print(mermaid(walked), end="")
    elif shown == "html":
        what = "What was made from" if direction == "down" else "What went into"
        print(html_page(walked, f"{what} {artifact.name}"), end="")
    else:
        _print_text(walked, console)


def walk(artifact: Artifact, direction: Direction) -> list[Artifact]:
    """Return the artifact and its ancestors (manifest by manifest) or descendants (by the commit log), nearest first.

    What was made from an equal artifact is a descendant too; the equal artifact is shown with it.
    """
    if direction == "up":
        return list(artifact.store.walk_up(artifact))
    tables = tables_below(artifact.store, [artifact])
    graph = LineageGraph(tables)
    equal = tables.artifacts.filter(name=artifact.name, data_version=artifact.data_version)["address"].to_list()
    starts = [artifact.spec.address, *(address for address in equal if address != artifact.spec.address)]
    return open_all(artifact.store, list(dict.fromkeys(below for start in starts for below in graph.walk(start, "down"))))


def record(artifact: Artifact) -> dict[str, object]:
    """Return an artifact as JSON shows it."""
    manifest = artifact.manifest
    return {
        "name": artifact.name,
        "address": manifest.spec.address,
        "stage": manifest.spec.stage,
        "stage_version": manifest.spec.stage_version,
        "data_version": manifest.data_version,
        "code_fingerprint": manifest.code_fingerprint,
        "created": manifest.created,
        "run_id": manifest.run_id,
        "wall_seconds": manifest.resources.wall_seconds,
        "num_bytes": sum(entry.bytes for entry in manifest.files),
        "inputs": [
            {"name": ref.name, "address": ref.address, "data_version": ref.data_version} for ref in manifest.spec.inputs
        ],
    }


def check_stores(root: str | None, *, rebuild: bool, as_json: bool, console: Console) -> bool:
    """Rebuild the tables if asked, then compare everything. Returns whether nothing disagrees."""
    findings = []
    for store in stores_of(root):
        if rebuild:
            tables = rebuild_tables(store)
            rebuild_log(store)
            if not as_json:
                console.print(
                    f"{store.root}: {tables.artifacts.height:,} artifacts, {tables.edges.height:,} edges", soft_wrap=True
                )
        findings += [(store.root, finding) for finding in check_lineage(store)]
    if as_json:
        print(json.dumps([{"root": where, **dataclasses.asdict(finding)} for where, finding in findings], indent=1))
    else:
        for where, finding in findings:
            console.print(f"{where}: {finding}", soft_wrap=True, markup=False)
        console.print(
            f"{len(findings)} disagreements of manifests with each other, lineage tables or commit log"
            if findings
            else "nothing disagrees"
        )
    return not findings


def reproduce_into(text: str, root: str | None, into: str | None, *, as_json: bool, console: Console) -> bool:
    """Make an artifact again in an empty root and print every comparison. Returns whether all bytes are equal."""
    from recipes.stages import stages  # imports jax and the data engines: seconds that a walk does not need

    artifact = locate(stores_of(root), text)
    target = Store(into or tempfile.mkdtemp(prefix="marin-reproduce-"))
    quiet = Console(quiet=as_json)
    line = console if not as_json else quiet
    line.print(f"reproducing {artifact.name} ({artifact.spec.version[:12]}) in {target.root}", soft_wrap=True, markup=False)
    result = again.reproduce(
        artifact,
        target,
        stages(),
        execution=Execution(REPRODUCE_WORKERS),
        report=lambda comparison: _print_comparison(comparison, line),
    )
    if as_json:
        comparisons = [dataclasses.asdict(comparison) for comparison in result.comparisons]
        print(json.dumps({"root": target.root, "is_equal": result.is_equal, "comparisons": comparisons}, indent=1))
    equal = sum(comparison.is_equal for comparison in result.comparisons)
    seconds = [sum(getattr(c, name) for c in result.comparisons) for name in ("recorded_seconds", "seconds")]
    line.print(f"{equal} of {result.num_artifacts} artifacts are bit-equal; {seconds[0]:.0f} s then, {seconds[1]:.0f} s now")
    first = result.first_difference
    if first is not None:
        line.print(f"first difference: {first.name} ({first.address}): {first.detail}", soft_wrap=True, markup=False)
    return result.is_equal


def _print_comparison(comparison: Comparison, console: Console) -> None:
    line = f"{comparison.outcome:<13} {comparison.name:<60} {comparison.recorded}"
    console.print(f"{line}  {comparison.seconds:6.1f} s", soft_wrap=True, markup=False, highlight=False)


def _print_text(walked: Sequence[Artifact], console: Console) -> None:
    for artifact in walked:
        spec = artifact.spec
        what = f"{artifact.data_version}  {spec.stage}@{spec.stage_version}"
        line = f"{artifact.name:<60} {what}"
        if console.is_terminal and len(line) > console.width:
            line = f"{artifact.name}\n    {what}"
        console.print(line, soft_wrap=True, markup=False, highlight=False)
        for ref in spec.inputs:
            console.print(f"    <- {ref.address}", style="dim", soft_wrap=True, markup=False, highlight=False)
