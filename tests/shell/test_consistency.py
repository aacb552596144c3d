"""Manifests, lineage tables and Dagster's log compared over real runs: honest ones agree, each lie is named."""

import datetime
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from small import FinishedFerry
from small_assets import SmallAssets

from lineage.artifact.manifest import MANIFEST_NAME, to_json
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.graph.consistency import Comparison
from lineage.graph.edges import LineageTables, lineage_tables, rebuild_tables, save_tables
from marin_assets.consistency import expired_on
from marin_assets.describe import describe, identity_tags, materialization
from marin_assets.event_log import STAGE_METADATA, parents_asof, read_log, witnessed
from marin_assets.operations import comparison_metadata, comparison_result


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallAssets]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield SmallAssets(tmp_path, instance)


def kinds(comparison: Comparison) -> set[tuple[str, str]]:
    return {(one.kind, one.artifact) for one in comparison.disagreements}


def reporting(small: SmallAssets, node: Node, deps: list[str], tags: dict[str, str]) -> dg.AssetsDefinition:
    """An asset in the factory's place that builds the node and adds tags of its own."""

    @dg.asset(key=list(node.key), deps=deps, metadata={STAGE_METADATA: node.stage.name})
    def own(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        built = build(small.lab.store, node, run_id=context.run.run_id)
        version = dg.DataVersion(built.artifact.data_version)
        return dg.MaterializeResult(
            data_version=version, metadata=describe(built), tags={**identity_tags(built.artifact), **tags}
        )

    return own


def test_an_honest_log_agrees_through_a_refresh_and_knows_every_input(small: SmallAssets) -> None:
    """The first run's artifacts stay what they were after a source was refreshed and everything made again."""
    small.make_all()
    small.declared["a"] = 2
    for key, source in (("raw", "a"), ("clean", "a"), ("mix", None), ("run", None)):
        small.make(key, source)
    comparison = small.compared()
    assert comparison.disagreements == ()
    assert comparison.unknown == ()
    inputs = comparison.counts["inputs in manifests"]
    assert inputs == 9
    assert comparison.counts["inputs that the as-of walk confirms"] == comparison.counts["inputs that events confirm"] == inputs
    assert comparison_result("agree", comparison).passed


def test_the_walk_names_the_partition_that_was_read_not_the_newest_event(small: SmallAssets) -> None:
    small.make("raw", "a")
    small.make("raw", "b")
    wanted = small.built(small.raw("a")).data_version
    small.make("clean", "a")
    log, graph = read_log(small.instance), small.graph()
    event = log.newest(dg.AssetKey("clean"), "a")
    newest = log.newest(dg.AssetKey("raw"), "b")
    assert event is not None
    assert event.provenance is not None
    assert newest is not None
    assert event.provenance.input_storage_ids[dg.AssetKey("raw")] == newest.number, "Dagster points at the other partition"
    (parent,) = parents_asof(small.instance, graph, log, event)
    assert parent.walked == (("a", wanted),)
    assert parent.recorded == parent.expected


@pytest.mark.parametrize("key", ["mix", "run"])
def test_a_forged_tag_is_found(small: SmallAssets, key: str) -> None:
    """A user's tag overwrites `dagster/input_data_version`: with partitions (a fold) and without."""
    node, above = {"mix": (small.mix(), "clean"), "run": (small.run(), "mix")}[key]
    small.instead = [reporting(small, node, [above], {f"dagster/input_data_version/{above}": "forged"})]
    small.make_all()
    comparison = small.compared()
    assert kinds(comparison) == {("forged_tag", key)}
    assert "forged" in dict(comparison.disagreements[0].said)["event"]
    small.instead = []
    small.make(key)
    assert small.compared().disagreements == (), "reporting it again mends"


def test_forged_inputs_and_a_forged_version_are_found(small: SmallAssets) -> None:
    small.make_all()
    run, other = small.built(small.run()), small.built(small.clean("a"))
    lie = {"inputs": dg.MetadataValue.json([other.ref("mix").identity() | {"address": other.spec.address}])}
    event = materialization(run, lie)
    small.instance.report_runless_asset_event(event._replace(tags={**event.tags, "dagster/data_version": "0" * 32}))
    assert kinds(small.compared()) == {("other_inputs", "run"), ("other_bytes", "run")}


FORGED = {
    "another version": {"dagster/input_data_version/mix": "0" * 32},
    "no number": {"dagster/input_event_pointer/mix": "the last one"},
    "a later event": {"dagster/input_event_pointer/mix": "999999"},
    "another version, no code version": {"dagster/input_data_version/mix": "0" * 32, "dagster/code_version": None},
    "no event": {"dagster/input_event_pointer/mix": "0"},
}


@pytest.mark.parametrize("how", FORGED)
def test_tags_of_inputs_on_an_event_without_a_run_are_judged(small: SmallAssets, how: str) -> None:
    """Dagster gives such an event no tags about inputs, so somebody else wrote them."""
    small.make_all()
    true = read_log(small.instance).newest(dg.AssetKey("run"), None)
    assert true is not None and true.provenance is not None
    mix = dg.AssetKey("mix")
    pointer, version = true.provenance.input_storage_ids[mix], true.provenance.input_data_versions[mix].value
    honest = {"dagster/input_event_pointer/mix": str(pointer), "dagster/input_data_version/mix": version}
    event = materialization(small.built(small.run()), {})
    for forged in ({}, FORGED[how]):
        tags = {**event.tags, "dagster/code_version": "1", **honest, **forged}
        small.instance.report_runless_asset_event(event._replace(tags={k: v for k, v in tags.items() if v is not None}))
        comparison = small.compared()
        if how == "no event" and forged:
            assert [(one.input, one.why) for one in comparison.unknown] == [
                ("mix", "the events that the pointer means are gone")
            ]
        else:
            assert kinds(comparison) == ({("forged_tag", "run")} if forged else set())


def test_a_lie_that_was_reported_over_is_still_named(small: SmallAssets) -> None:
    """The first report of an artifact was false; reporting it again mends that, and the log still has both."""
    small.make_all()
    event = materialization(small.built(small.run()), {})
    for version in ("0" * 32, event.tags["dagster/data_version"]):
        small.instance.report_runless_asset_event(event._replace(tags={**event.tags, "dagster/data_version": version}))
    comparison = small.compared()
    assert comparison.disagreements == ()
    assert [(one.kind, one.artifact) for one in comparison.corrected] == [("other_bytes", "run")]
    assert comparison_metadata(comparison)["corrected by a newer event"] == dg.MetadataValue.int(1)


@pytest.mark.slow
def test_a_hundred_partitions_are_unknown_to_the_log_and_proven_by_manifests(small: SmallAssets) -> None:
    small.sources = ("a", *(f"s{i:03d}" for i in range(99)))
    small.make("raw", "a")
    raws = tuple(small.raw(source) for source in small.sources)
    for raw in raws:
        small.built(raw)
    small.instead = [reporting(small, Node(("mix",), None, small.mix().stage, {}, {"parts": raws}), ["raw"], {})]
    small.make("mix")
    comparison = small.compared()
    assert comparison.disagreements == ()
    assert [(u.artifact, u.input) for u in comparison.unknown if "100 partitions" in u.why] == [("mix", "raw")]
    assert comparison.counts["inputs that events confirm"] == comparison.counts["inputs in manifests"] == 100


def test_a_retry_across_a_refresh_names_both_versions(small: SmallAssets) -> None:
    """The first attempt froze the mix V1; it dies, V2 lands, and the retry ends on V1: the log says V2, the manifest V1."""
    small.make_all()
    frozen = small.mix()
    first = small.built(frozen)
    small.declared["a"] = 2
    node = Node(("run",), None, small.run().stage, {"long": "training"}, {"mix": frozen})

    @dg.asset(key="run", deps=["mix"], retry_policy=dg.RetryPolicy(max_retries=1), metadata={STAGE_METADATA: node.stage.name})
    def run(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        if context.retry_number == 0:
            small.instead = []
            for key, source in (("raw", "a"), ("clean", "a"), ("mix", None)):
                small.make(key, source)
            raise RuntimeError("preempted")
        built = build(small.lab.store, node, run_id=context.run.run_id)
        version = dg.DataVersion(built.artifact.data_version)
        return dg.MaterializeResult(data_version=version, metadata=describe(built), tags=identity_tags(built.artifact))

    small.instead = [run]
    assert small.make("run").success
    comparison = small.compared()
    second = small.built(small.mix())
    assert kinds(comparison) == {("other_input_version", "run")}
    statements = dict(comparison.disagreements[0].said)
    assert first.data_version in statements["manifest"]
    assert second.data_version in statements["as-of walk"]


def test_a_job_that_committed_and_died_before_its_event_agrees_when_restarted(small: SmallAssets) -> None:
    for source in small.sources:
        small.make("raw", source)
        small.make("clean", source)
    small.make("mix")
    small.built(small.run())
    assert [u.why for u in small.compared().unknown] == ["the log has no event of it"]
    small.make("run")
    comparison = small.compared()
    assert (comparison.disagreements, comparison.unknown) == ((), ())


def test_an_event_that_dagster_invents_after_lost_messages_has_no_manifest(small: SmallAssets) -> None:
    """An in-place restart lost the job's messages: a green run, an event with a version of Dagster's own making."""

    @dg.asset(key="run", deps=["mix"], metadata={STAGE_METADATA: "tests.text"})
    def run() -> None: ...

    small.make_all()
    small.instead = [run]
    small.make("run")
    assert kinds(small.compared()) == {("no_manifest", "run")}
    small.instead = []
    small.make("run")
    assert small.compared().disagreements == (), "the artifact is reported again: what was invented is history"


def test_a_data_version_that_no_manifest_has_is_named_unless_it_expired(small: SmallAssets) -> None:
    small.make_all()
    small.lab.store.delete(small.built(small.run()))
    assert kinds(small.compared()) == {("no_manifest", "run")}
    (event,) = (e for e in witnessed(small.instance, small.graph(), read_log(small.instance), set()) if e.key == ("run",))
    ferry = replace(event, key=("ferry", "report"), partition="2026-11-13")
    today = datetime.date(2026, 11, 21)
    assert expired_on(today)(ferry)
    assert not expired_on(today)(replace(ferry, partition="2026-11-14"))
    assert not expired_on(today)(event)


def test_edges_missing_and_invented_in_the_tables_are_warnings(small: SmallAssets) -> None:
    small.make_all()
    store = small.lab.store
    tables = lineage_tables(store)
    run, mix = small.built(small.run()).spec, small.built(small.mix()).spec
    of_run = pl.col("child") == run.address
    invented = tables.edges.filter(of_run).with_columns(child=pl.lit(mix.address), child_name=pl.lit("mix"))
    save_tables(store, LineageTables(tables.artifacts, pl.concat([tables.edges.filter(~of_run), invented])))
    comparison = small.compared()
    assert kinds(comparison) == {("missing_edge", run.address), ("forged_edge", mix.address)}
    result = comparison_result("agree", comparison)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    rebuild_tables(store)
    assert small.compared().disagreements == ()


def test_a_manifest_rewritten_and_sealed_again_disagrees_with_its_event(small: SmallAssets) -> None:
    """Nothing was made from it, so no other manifest can tell; the log can."""
    small.make_all()
    run = small.built(small.run())
    path = Path(small.lab.store.root) / run.spec.address / MANIFEST_NAME
    path.write_text(to_json(replace(run.manifest, statistics={"rows_out": 7})))
    comparison = small.compared()
    assert kinds(comparison) == {("rewritten_manifest", "run")}
    assert comparison_result("agree", comparison).severity is dg.AssetCheckSeverity.ERROR


def test_what_the_log_never_had_or_lost_is_unknown(small: SmallAssets) -> None:
    """Inputs made without Dagster leave a NULL pointer; wiped events leave a pointer to nothing."""
    small.built(small.raw("a"))
    small.make("clean", "a")
    assert [u.why.split(":")[0] for u in small.compared().unknown if u.artifact == "clean[a]"] == ["the pointer is NULL"]
    small.make("raw", "a")
    small.make("clean", "a")
    assert small.compared().unknown == ()
    small.instance.wipe_assets([dg.AssetKey("raw")])
    comparison = small.compared()
    assert comparison.disagreements == ()
    assert {u.why for u in comparison.unknown} == {"the log has no event of it", "the events that the pointer means are gone"}


def test_the_daily_operation_passes_on_a_ferry(finished_ferry: FinishedFerry) -> None:
    result = finished_ferry.definitions.resolve_job_def("compare_lineage").execute_in_process(instance=finished_ferry.instance)
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.passed, evaluation.description
    metadata = result.asset_materializations_for_node("operations__lineage_consistency")[0].metadata
    assert metadata["disagreements"].value == 0
    assert metadata["inputs that the as-of walk confirms"].value > 30
