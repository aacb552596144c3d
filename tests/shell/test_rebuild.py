"""Dagster's event log rebuilt from manifests: same state, no duplicates, a live log is left alone."""

import json
from pathlib import Path

import dagster as dg
import pytest
from small import FinishedFerry
from small_assets import TODAY, SmallAssets
from typer.testing import CliRunner

from datakit.sources.raw import RAW
from evals.reports.report import REPORT
from lineage.artifact.manifest import MANIFEST_NAME, sealed
from lineage.artifact.spec import ArtifactSpec
from lineage.artifact.store import Store
from lineage.trust.verdicts import record_check
from lineage.writing.write import writing
from marin_assets.cli.app import app
from marin_assets.consistency import check_consistency
from marin_assets.event_log import LEFT_OUT, STAGE_METADATA, read_log
from marin_assets.rebuild import rebuild_event_log
from partitions.axes import days


def latest(instance: dg.DagsterInstance) -> dict[tuple[str, str | None], str]:
    """Data version of the newest event of every asset and partition of a ferry."""
    events = read_log(instance).reported
    return {(e.key.to_user_string(), e.partition): e.data_version for e in events if e.key.path[0] == "ferry"}


def test_the_log_of_a_ferry_comes_back_from_its_bucket(finished_ferry: FinishedFerry) -> None:
    store, graph = Store(finished_ferry.lab.ferry_store.root), finished_ferry.definitions.resolve_asset_graph()
    with dg.DagsterInstance.ephemeral() as instance:
        done = rebuild_event_log([store], instance, graph)
        assert set(done.reported) == {artifact.spec.address for artifact in store.artifacts()}
        assert latest(instance) == latest(finished_ferry.instance)
        comparison = check_consistency([store], instance, graph, TODAY)
        assert comparison.disagreements == ()
        assert {u.why.split(":")[0] for u in comparison.unknown} == {"reported without a run"}
        assert comparison.counts["inputs that events confirm"] == comparison.counts["inputs in manifests"] > 30
        (checkpoint,) = instance.fetch_materializations(dg.AssetKey(["ferry", "runs", "smoke", "checkpoint"]), limit=1).records
        event = checkpoint.asset_materialization
        assert event is not None
        assert event.metadata["step"].value == finished_ferry.ferry.online.spec.num_steps
        numbers = {e.version: e.number for e in read_log(instance).reported}
        for artifact in store.artifacts():
            for ref in artifact.spec.inputs:
                above = numbers[ref.address.rsplit("/", 1)[1]]
                assert above < numbers[artifact.spec.version], "Dagster takes an input that is reported later for a new one"
        before = len(read_log(instance).reported)
        assert rebuild_event_log([store], instance, graph).reported == ()
        assert len(read_log(instance).reported) == before


def test_what_lies_downstream_of_a_rebuilt_log_runs_and_can_be_walked(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as lost:
        small = SmallAssets(tmp_path, lost)
        small.make_all()
    with dg.DagsterInstance.ephemeral() as instance:
        small = SmallAssets(tmp_path, instance)
        rebuild_event_log([small.lab.store], instance, small.graph())
        small.make("run")
        comparison = small.compared()
        assert comparison.disagreements == ()
        assert comparison.counts["inputs that the as-of walk confirms"] == 1


def test_a_log_with_events_of_its_own_is_left_alone_unless_asked(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        small = SmallAssets(tmp_path, instance)
        old = small.built(small.raw("a"))
        small.declared["a"] = 2
        small.make("raw", "a")
        other = small.built(small.raw("b"))
        before = read_log(instance).reported
        with pytest.raises(ValueError, match="--fill-gaps"):
            rebuild_event_log([small.lab.store], instance, small.graph())
        assert read_log(instance).reported == before
        done = rebuild_event_log([small.lab.store], instance, small.graph(), fill_gaps=True)
        assert done.reported == (other.spec.address,)
        assert done.older == (old.spec.address,), "the log shows what came after it"
        newest = read_log(instance).newest(dg.AssetKey("raw"), "a")
        assert newest is not None
        assert newest.version == small.built(small.raw("a")).spec.version


def test_what_a_finished_ferry_left_out_is_said_again(tmp_path: Path) -> None:
    """The day ended with a report and without raw files of `wiki`: its assets were left out, a stage added since was not.

    Both manifests are as of an older stage version: nothing in `extra` to show.
    """
    store = Store(str(tmp_path))
    kjv = ArtifactSpec(("ferry", "datakit", "raw", "kjv"), "2026-11-21", RAW.name, RAW.version, {})
    for spec in (kjv, ArtifactSpec(("ferry", "report"), "2026-11-21", REPORT.name, REPORT.version, {})):
        with writing(store, spec) as out:
            (out.folder / "text.txt").write_text("x")
    stages = {"datakit/raw/kjv": RAW.name, "datakit/raw/wiki": RAW.name, "corpus/wiki": "datakit.corpus"}
    stages |= {"new_stage": "datakit.new", "report": REPORT.name}
    graph = dg.Definitions(
        assets=[
            dg.AssetSpec(["ferry", *name.split("/")], partitions_def=days(), metadata={STAGE_METADATA: stage})
            for name, stage in stages.items()
        ]
    ).resolve_asset_graph()
    with dg.DagsterInstance.ephemeral() as instance:
        rebuild_event_log([store], instance, graph)
        left_out = [e for e in read_log(instance).reported if e.data_version == LEFT_OUT]
        names = {(e.key.to_user_string(), e.partition) for e in left_out}
        assert names == {("ferry/datakit/raw/wiki", "2026-11-21"), ("ferry/corpus/wiki", "2026-11-21")}
        assert check_consistency([store], instance, graph, TODAY).disagreements == ()


def test_verdicts_beside_manifests_come_back_as_checks(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        small = SmallAssets(tmp_path, instance)
        record_check(small.built(small.raw("a")), "rows_conserved", ["two rows are gone"], "a test")
        assert rebuild_event_log([small.lab.store], instance, small.graph()).verdicts == 1
        check = dg.AssetCheckKey(dg.AssetKey("raw"), "rows_conserved")
        (record,) = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
        assert record.event is not None
        evaluation = record.event.dagster_event.asset_check_evaluation_data
        assert not evaluation.passed
        assert "two rows are gone" in evaluation.description


def test_commands_rebuild_compare_and_name_a_lie(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "lab"
    home.mkdir()
    with dg.DagsterInstance.ephemeral() as lost:
        small = SmallAssets(root, lost)
        run = small.built(small.raw("a"))
    environment = {"DAGSTER_HOME": str(home), "MARIN_ROOT": str(root), "COLUMNS": "200"}

    def marin(*arguments: str):
        return CliRunner().invoke(app, list(arguments), env=environment)

    assert "1 artifacts reported" in marin("rebuild-event-log").stdout
    honest = marin("consistency")
    assert honest.exit_code == 0, honest.output
    assert "nothing disagrees" in honest.stdout
    path = Path(small.lab.store.root) / run.spec.address / MANIFEST_NAME
    record = json.loads(path.read_text())
    del record["seal"]
    path.write_text(sealed({**record, "run_id": "another"}))
    lying = marin("consistency", "--json")
    assert lying.exit_code == 1
    (disagreement,) = json.loads(lying.stdout)["disagreements"]
    assert (disagreement["kind"], disagreement["artifact"]) == ("rewritten_manifest", "raw[a]")
