"""Mistakes in the UI: the step or the launch that fails says in one line what is wrong and what to do."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
from small import small_lab

from lineage.build.nodes import resolve
from lineage.trust.verdicts import quarantine
from recipes import ferry as recipe


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    """A lab that has made nothing."""
    return small_lab(tmp_path_factory.mktemp("fresh"))[2]


def cause_of(result: dg.ExecuteInProcessResult) -> str:
    """The last cause of the step that failed, which the page of a run shows last."""
    (failed,) = result.get_step_failure_events()
    error = failed.step_failure_data.error
    while error.cause is not None:
        error = error.cause
    return error.message.strip()


def materialize(definitions: dg.Definitions, key: list[str], partition: str | None = None) -> dg.ExecuteInProcessResult:
    """Materialize one asset as the button on its page does."""
    asset = definitions.resolve_assets_def(dg.AssetKey(key))
    job = dg.Definitions(assets=[asset]).resolve_implicit_global_asset_job_def()
    with dg.instance_for_test() as instance:
        return job.execute_in_process(partition_key=partition, instance=instance, raise_on_error=False)


@pytest.mark.parametrize(
    ("key", "partition", "thing", "remedy"),
    [
        ("runs/tiny/training", None, "datakit/raw[vendored_prose]", "`./marin materialize runs/tiny/training` makes"),
        (
            "corpus/small",
            "vendored_prose",
            "datakit/raw[vendored_prose]",
            "`./marin materialize corpus/small --partition vendored_prose`",
        ),
        ("tokenizer/bpe1k", None, "datakit/raw[vendored_prose]", "`./marin materialize tokenizer/bpe1k`"),
        (
            "runs/tiny/eval_result",
            "step-00000020|heldout",
            "datakit/raw[vendored_prose]",
            "`./marin materialize runs/tiny/training`",
        ),
        ("ferry/corpus/small/vendored_prose", "2026-11-20", "ferry/roster[2026-11-20]", "`./marin ferry --day 2026-11-20`"),
        ("leaderboard", None, "holds no evaluation result", "evaluate a checkpoint first"),
    ],
)
def test_what_is_materialized_before_its_inputs_names_them_and_a_command(
    key: str, partition: str | None, thing: str, remedy: str, fresh: dg.Definitions
) -> None:
    line = cause_of(materialize(fresh, key.split("/"), partition))
    assert thing in line and remedy in line and "\n" not in line, line


def test_a_wrong_field_of_a_launch_is_named_with_those_that_there_are(fresh: dg.Definitions) -> None:
    asset = fresh.resolve_assets_def(dg.AssetKey(["runs", "tiny", "training"]))
    job = dg.Definitions(assets=[asset]).resolve_implicit_global_asset_job_def()
    config = {"ops": {"runs__tiny__training": {"config": {"mehs": "data=2"}}}}
    with pytest.raises(dg.DagsterInvalidConfigError, match=r'unexpected config entry "mehs".*rolling_seconds'):
        job.execute_in_process(run_config=config)


def test_a_partition_that_there_is_not_is_named(fresh: dg.Definitions) -> None:
    with pytest.raises(dg.DagsterUnknownPartitionError, match="kvj"):
        materialize(fresh, ["datakit", "raw"], "kvj")


def test_an_input_that_a_person_took_out_of_use_is_named_with_its_reason(own_day: Path) -> None:
    ferry, resource, definitions = small_lab(own_day / "lab")
    store = resource.lab().ferry_store
    run = recipe.rostered_run(ferry, store, "2026-11-20")
    checkpoint = resolve(store, recipe.final_checkpoint(run))
    quarantine(checkpoint, "made on a broken machine", "a test")
    shutil.rmtree(resolve(store, recipe.final_eval(run)).uri)  # it is asked for again
    line = cause_of(materialize(definitions, ["ferry", "runs", "smoke", "eval_result"], "2026-11-20"))
    assert "made on a broken machine" in line
