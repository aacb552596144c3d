"""Questions about a small real ferry: lineage, affected artifacts, takedown, reproduction of the checkpoint."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small import FinishedFerry, repository
from small_runs import DAY
from typer.testing import CliRunner

from datakit.tokens.cache import TOKEN_CACHE
from evals.audit.takedown import Selection, find_holders
from evals.audit.takedown_plan import plan_takedown
from lineage.artifact import packages
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import resolve
from lineage.build.plan import build
from lineage.build.reproduce import node_of, reproduce
from lineage.graph.check_tables import check_lineage
from lineage.graph.edges import lineage_tables, read_tables, rebuild_tables
from lineage.graph.walk import LineageGraph
from lineage.order.order import DataOrder
from lineage.writing.write import writing
from marin_assets.cli.app import app
from recipes import ferry as recipe
from recipes.stages import stages


def final_checkpoint(finished_ferry: FinishedFerry) -> Artifact:
    store = Store(finished_ferry.lab.ferry_store.root)
    return resolve(store, recipe.final_checkpoint(recipe.rostered_run(finished_ferry.ferry, store, DAY)))


def ask(finished_ferry: FinishedFerry, *arguments: str) -> str:
    """The output of a command over the ferry's store alone, Dagster not asked."""
    result = CliRunner().invoke(app, [*arguments, "--root", finished_ferry.lab.ferry_store.root], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_no_stage_of_the_lab_is_forgotten_in_the_registry() -> None:
    """Every `Stage("name", ...)` in the engines' sources is in recipes/stages.py under its name."""
    declared = {
        call.args[0].value
        for package in ("lineage", "datakit", "trainer", "evals", "science", "post_training", "marin_assets")
        for path in (repository() / package).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Stage"
        if isinstance(call.args[0], ast.Constant)
    }
    assert declared == set(stages())


def test_every_manifest_of_a_ferry_reads_back_as_the_node_that_made_it(finished_ferry: FinishedFerry) -> None:
    store = Store(finished_ferry.lab.ferry_store.root)
    nodes = {}
    for address in oldest_first(store):
        artifact = store.open(address)
        assert artifact is not None
        nodes[address] = node_of(artifact.manifest, stages(), nodes)
        assert resolve(store, nodes[address]).spec.address == address


def oldest_first(store: Store) -> list[str]:
    graph = LineageGraph(lineage_tables(store))
    return graph.oldest_first(graph.addresses)


def test_tables_of_a_ferry_agree_with_its_manifests(finished_ferry: FinishedFerry) -> None:
    store = Store(finished_ferry.lab.ferry_store.root)
    tables = lineage_tables(store)
    assert tables.artifacts.height == sum(1 for _ in store.artifacts())
    assert check_lineage(store) == []
    kept = read_tables(store)
    assert kept is not None
    assert rebuild_tables(store).edges.equals(kept.edges)


def test_the_lineage_of_the_checkpoint_by_name_folder_and_address(finished_ferry: FinishedFerry) -> None:
    checkpoint = final_checkpoint(finished_ferry)
    wanted = [artifact.spec.address for artifact in checkpoint.store.walk_up(checkpoint)]
    for text in (checkpoint.name, checkpoint.uri, checkpoint.spec.address):
        records = json.loads(ask(finished_ferry, "lineage", text, "--json"))
        assert [record["address"] for record in records] == wanted
    raw = next(artifact for artifact in checkpoint.store.walk_up(checkpoint) if artifact.spec.stage == "datakit.raw")
    below = {record["address"] for record in json.loads(ask(finished_ferry, "lineage", raw.spec.address, "--down", "--json"))}
    assert below == {artifact.spec.address for artifact in checkpoint.store.walk_down(raw)}


def test_pictures_show_every_artifact_and_need_no_network(finished_ferry: FinishedFerry) -> None:
    checkpoint = final_checkpoint(finished_ferry)
    ancestors = list(checkpoint.store.walk_up(checkpoint))
    edges = {(a.spec.address, ref.address) for a in ancestors for ref in a.spec.inputs}
    chart = ask(finished_ferry, "lineage", checkpoint.name, "--graph", "mermaid")
    assert chart.count(" --> ") == len(edges)
    assert all(f'"{artifact.name}<br/>' in chart for artifact in ancestors)
    page = ask(finished_ferry, "lineage", checkpoint.name, "--graph", "html")
    assert page.count('class="node"') == len(ancestors)
    assert page.count("<path ") == len(edges)
    assert all(artifact.data_version in page for artifact in ancestors)
    assert "http" not in page


def test_a_code_version_reaches_what_was_made_below_it(finished_ferry: FinishedFerry) -> None:
    store = Store(finished_ferry.lab.ferry_store.root)
    (affected,) = json.loads(
        ask(finished_ferry, "affected", "--stage", TOKEN_CACHE.name, "--version", TOKEN_CACHE.version, "--json")
    )
    caches = [artifact for artifact in store.artifacts() if artifact.spec.stage == "datakit.token_cache"]
    wanted = {below.spec.address for cache in caches for below in store.walk_down(cache)}
    assert {row["address"] for row in affected["artifacts"]} == wanted
    assert affected["cost"]["training_flops"] > 0
    text = ask(finished_ferry, "affected", "--artifact", caches[0].spec.address)
    assert final_checkpoint(finished_ferry).name in text


def test_a_document_is_followed_to_the_steps_that_read_it(finished_ferry: FinishedFerry) -> None:
    """Against every batch of the run, read forward; documents chosen at each end and in the middle."""
    checkpoint = final_checkpoint(finished_ferry)
    store, config = checkpoint.store, checkpoint.spec.config
    order = DataOrder.open(checkpoint.input("mixture"), config["run"]["seq_len"])
    tables = lineage_tables(store)
    ids = order.caches[0].document_ids()
    for document in (ids[0], ids[len(ids) // 2], ids[-1]):
        takedown = find_holders(store, tables, Selection((document,)))
        steps = {h.artifact.spec.config["step"]: list(h.steps) for h in takedown.holders if h.role == "checkpoint"}
        assert steps[config["step"]] == forward_steps(order, document, config["run"]["batch_size"], config["step"])
        roles = {h.role for h in takedown.holders}
        assert roles == {"raw", "normalized", "corpus", "cache", "mixture", "checkpoint"}
        plan = plan_takedown(takedown).whole
        assert (
            plan.flops
            <= json.loads(ask(finished_ferry, "affected", "--document", document, "--json"))[0]["whole_cost"]["training_flops"]
        )
    assert "nothing holds it" in ask(finished_ferry, "affected", "--document", "0" * 32)


def forward_steps(order: DataOrder, document: str, batch_size: int, num_steps: int) -> list[int]:
    span = order.caches[0].document_span(document)
    assert span is not None
    steps = []
    for step in range(num_steps):
        components, sequences = order.locate(np.arange(step * batch_size, (step + 1) * batch_size))
        starts = sequences * order.seq_len
        reads = (components == 0) & (starts < span[1]) & (starts + order.seq_len > span[0])
        if reads.any():
            steps.append(step)
    return steps


@pytest.mark.slow
def test_the_checkpoint_is_made_again_from_its_manifest_bit_for_bit(finished_ferry: FinishedFerry, tmp_path: Path) -> None:
    checkpoint = final_checkpoint(finished_ferry)
    result = reproduce(checkpoint, Store(str(tmp_path / "again")), stages())
    assert result.first_difference is None
    assert result.is_equal
    assert len(result.comparisons) == sum(1 for _ in checkpoint.store.walk_up(checkpoint))


def test_a_difference_in_an_old_artifact_is_named(finished_ferry: FinishedFerry, tmp_path: Path) -> None:
    """The raw files of a source were other bytes on the day: the copy of the store says so, and reproduce names the source."""
    checkpoint = final_checkpoint(finished_ferry)
    raw = next(artifact for artifact in checkpoint.store.walk_up(checkpoint) if artifact.spec.stage == "datakit.raw")
    copy = Store(str(tmp_path / "copy"))
    with writing(copy, raw.spec, raw.manifest.code_fingerprint) as out:
        for path in raw.files():
            target = out.folder / path.relative_to(raw.folder())
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes() + b"\n")
    result = reproduce(out.artifact, Store(str(tmp_path / "again")), stages())
    first = result.first_difference
    assert first is not None
    assert (first.name, first.outcome) == (raw.name, "differs")
    assert f"{len(raw.files())} of {len(raw.files())} files" in first.detail


def test_another_version_of_a_package_is_drift_where_it_is_imported_until_evidence_clears_it(
    finished_ferry: FinishedFerry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(finished_ferry.lab.ferry_store.root)
    run = recipe.rostered_run(finished_ferry.ferry, store, DAY)
    installed = packages._version
    monkeypatch.setattr(packages, "_version", lambda name: "99" if name == "tokenizers" else installed(name))
    built = {node.name: build(store, node) for node in recipe.nodes(run) if node.stage.job is None}
    drifted = {drift.artifact.spec.stage: name for name, drift in built.items() if drift.drifted}
    assert drifted.keys() == {"datakit.tokenizer", "datakit.token_cache"}
    cache = drifted["datakit.token_cache"]
    (answer,) = json.loads(ask(finished_ferry, "verify", cache, "--json"))
    assert answer["changes"] == [f"tokenizers was {installed('tokenizers')} and is 99"]
    assert answer["evidence"]["outcome"] == "equal"
    again = build(store, next(node for node in recipe.nodes(run) if node.name == cache))
    assert not again.drifted and "verified equivalent on" in str(again.drift)
    assert "--jobs makes those again too" in ask(finished_ferry, "verify", recipe.final_eval(run).name)
    assert "has not drifted" in ask(finished_ferry, "verify", f"ferry/mixture/small[{DAY}]")


def test_a_bucket_alone_is_asked_without_dagster(finished_ferry: FinishedFerry) -> None:
    root, name = finished_ferry.lab.ferry_store.root, final_checkpoint(finished_ferry).name
    program = (
        "import sys\nfrom marin_assets.cli.app import app\n"
        "for question in (['lineage', sys.argv[2]], ['affected', '--source', 'vendored_prose']):\n"
        "    app([*question, '--root', sys.argv[1]], standalone_mode=False)\n"
        "assert not any(name.split('.')[0] == 'dagster' for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, root, name], cwd=repository(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_question_without_a_subject_is_refused() -> None:
    for arguments in (
        ["lineage"],
        ["affected"],
        ["affected", "--source", "a", "--licence", "b"],
        ["affected", "--version", "1"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1 and result.stderr.count("\n") == 1, result.output


@pytest.mark.parametrize("option", ["--check", "--rebuild"])
def test_check_and_rebuild_say_that_all_is_well(finished_ferry: FinishedFerry, option: str) -> None:
    assert "nothing disagrees" in ask(finished_ferry, "lineage", option)
