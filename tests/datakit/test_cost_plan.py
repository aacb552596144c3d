"""The plan of the data engine: its requests against counted ones, its numbers against a run, and the command."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from gcs_server import GcsServer
from inputs import Texts, corpus, documents, duplicates, edited, minhash, quality, random_texts
from typer.testing import CliRunner

from datakit.costs.contained import ContainmentRates
from datakit.costs.joins import Scope, joins
from datakit.costs.plan import (
    LISTS_A_COMMIT,
    NOT_COUNTED,
    READS_A_COMMIT,
    READS_AN_INPUT,
    STAGES,
    WRITES_A_COMMIT,
    Corpus,
    Measured,
    StageRun,
    check_of,
    plan,
)
from datakit.dedup.paragraphs import PARAGRAPHS, ParagraphsConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node, ancestors_first
from lineage.build.plan import build
from marin_assets.cli.app import app
from marin_assets.cli.show_data_plan import CATALOGUE_TRILLION, CONTAINMENT_RATES, RATES, markdown, rows
from marin_assets.cli.show_data_plan import CORE_HOUR_DOLLARS as PRICE

PAGE = Path(__file__).parents[2] / "docs" / "design" / "data_costs.md"
SCOPE = Scope(10_000, 4, 14, 130_000, 1_000, 9_000, 2_000, 3_000, 750_000, 1_500, 4_000, 50_000, 5_000)


def run_of(megabytes, seconds):
    """A run whose stages all cost the same."""
    factor = megabytes / 100
    return StageRun(
        bytes=int(megabytes * 1e6),
        cpu_seconds=seconds * len(STAGES),
        seconds=dict.fromkeys(STAGES, seconds),
        files=dict.fromkeys(STAGES, 1),
        sizes=dict.fromkeys(STAGES, int(megabytes * 4e5)),
        scope=SCOPE.times(factor),
        corpus_bytes=int(megabytes * 8e5),
        tokens=int(megabytes * 2e5),
        peak_mib=500.0,
        load=0.0,
    )


def measured_runs():
    runs = tuple(run_of(size, 1 + size / 10) for size in (100, 200, 400) * 2)
    return Measured("python -m benchmarks.plan_data", "abc", "2026-11-26", "test", runs, run_of(1_000, 101.0))


def nodes_of(part_bytes):
    """Two sources of 40 documents, some of which are near-duplicates, so that every stage reads its documents; and every stage
    over them whose inputs are small, with what it reads of `duplicates`.
    """
    texts = random_texts(75, 60, seed=3)
    texts += [edited(text, seed=1, edits=1) for text in texts[:5]]
    first, second = (
        Texts(f"{name}{part_bytes}", tuple(some), part_bytes=part_bytes)
        for name, some in (("a", texts[:40]), ("b", texts[40:]))
    )
    both = {"normalized": (documents(first), documents(second))}
    clusters = duplicates((first, second))
    repeats = Node(("p",), None, PARAGRAPHS, ParagraphsConfig(), both | {"duplicates": clusters})
    whole = [(node, "") for node in (minhash(first), clusters, quality(first))]
    return *whole, (repeats, "clusters/"), (corpus(first, (first, second)), f"clusters/{first.source}/")


def requests(server, store, node, below):
    """(requests, files that it reads of its inputs, own files) of an artifact whose inputs are not on this machine yet."""
    inputs = [build(store, each).artifact for each in ancestors_first([node]) if each is not node]
    names = {(*parent.key, parent.partition) for parent in node.parents()}
    parents = [each for each in inputs if (*each.spec.key, each.spec.partition) in names]
    given = sum(path.startswith(below) or each.spec.key[0] != "duplicates" for each in parents for path in each.manifest.paths)
    shutil.rmtree(store.scratch / "fetched", ignore_errors=True)
    server.counts.clear()
    made = build(store, node).artifact
    return dict(server.counts), given, len(made.manifest.files)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_planned_requests_are_the_counted_ones_whatever_the_number_of_parts(gcs: GcsServer, tmp_path, monkeypatch):
    """Uploads are the files and five more; what is read beside the inputs' files does not grow with them."""
    fixed, files = {}, {}
    for part_bytes in (1 << 28, 4_000):
        store = Store(gcs.bucket(f"plan-{part_bytes}"), scratch_folder=str(tmp_path / str(part_bytes)))
        for node, below in nodes_of(part_bytes):
            counts, given, own = requests(gcs, store, node, below)
            assert counts["upload"] == own + WRITES_A_COMMIT, node.key
            assert counts["list"] <= LISTS_A_COMMIT, node.key
            read = counts["read"] + counts.get("stat", 0) - given  # how often the region is asked for depends on threads
            most = READS_A_COMMIT + READS_AN_INPUT * len(list(node.parents()))
            assert read + counts["bucket"] <= most and fixed.setdefault(node.key, read) == read, node.key
            files.setdefault(node.key, []).append(given)
    assert all(few < many for few, many in files.values())


def test_a_plan_of_the_largest_run_has_its_joins_and_its_cost():
    measured = measured_runs()
    planned = plan(measured, Corpus(1e8, 4.0, 1))
    assert planned.corpus.bytes == 4e8
    scope = replace(SCOPE.times(4), parts=planned.scope.parts)
    assert planned.scope == scope and planned.joins == tuple(joins(scope))
    for stage in planned.stages:
        assert stage.core_hours.value == pytest.approx((1 + 40) / 3_600, rel=1e-3)
    by_name = {stage.name: stage for stage in planned.stages}
    assert by_name["duplicates"].shuffled + by_name["paragraphs"].shuffled == sum(join.shuffled for join in joins(scope))
    assert by_name["tokens"].files_written == 3 * round(3.2e8 / (4 << 20))
    assert by_name["minhash"].files_read == by_name["minhash"].files_written == planned.scope.parts == 1


def test_the_check_is_predicted_from_the_smaller_runs_alone():
    found = check_of(measured_runs())
    predicted, spent = found["all"]
    assert predicted.value == pytest.approx(spent, rel=1e-3) and set(found) == {*STAGES, "all"}


def test_measurements_survive_their_file(tmp_path):
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(asdict(measured_runs())))
    assert Measured.read(path) == measured_runs()
    with pytest.raises(ValueError, match=r"no measurements in .*nothing.json; `python -m benchmarks.plan_data"):
        Measured.read(tmp_path / "nothing.json")


def test_the_kept_measurements_predict_their_check_within_a_fifth():
    predicted, spent = check_of(Measured.read(RATES))["all"]
    assert abs(predicted.value / spent - 1) <= 0.2


def test_the_page_holds_the_tables_that_the_command_prints():
    """`./marin plan-data --markdown`"""
    planned = plan(Measured.read(RATES), Corpus(CATALOGUE_TRILLION * 1e12, 4.0, 292))
    assert markdown(planned, PRICE) in PAGE.read_text()


def test_the_command_prints_every_stage_and_the_same_numbers_as_json():
    text = CliRunner().invoke(app, ["plan-data", "--tokens-trillion", "1"], env={"COLUMNS": "200"})
    found = CliRunner().invoke(app, ["plan-data", "--tokens-trillion", "1", "--json"])
    assert text.exit_code == found.exit_code == 0, text.output
    record = json.loads(found.output)
    assert record["corpus"]["bytes"] == 4e12 and set(record["stages"]) == set(STAGES)
    for name, stage in record["stages"].items():
        assert name in text.output and f"{stage['core_hours']['value']:,.0f}" in text.output
        assert stage["core_hours"]["low"] <= stage["core_hours"]["value"]


def test_the_page_and_the_command_say_what_is_not_counted():
    page, text = (
        " ".join(text.replace("│", " ").split()).lower()
        for text in (PAGE.read_text(), CliRunner().invoke(app, ["plan-data"], env={"COLUMNS": "200"}).output)
    )
    assert all(step.lower() in page and step.lower() in text for step in NOT_COUNTED)
    assert "--containment" in page and "--containment" in text


def test_containment_is_counted_when_it_is_asked_for():
    corpus = Corpus(CATALOGUE_TRILLION * 1e12, 4.0, 292)
    planned = plan(Measured.read(RATES), corpus, ContainmentRates.read(CONTAINMENT_RATES))
    *before, row, _ = rows(planned, PRICE)
    assert before == rows(plan(Measured.read(RATES), corpus), PRICE)[:-1]
    assert f"| {' | '.join(row)} |" in PAGE.read_text()
    found = CliRunner().invoke(app, ["plan-data", "--containment", "--json"])
    record = json.loads(found.output)
    assert set(record["stages"]) == {*STAGES, "containment"} and record["not_counted"] == list(NOT_COUNTED)
    assert record["stages"]["containment"]["opened_files"] == planned.stages[-1].opens
