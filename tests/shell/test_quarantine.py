"""A failing shard in a real Dagster run: the check names it, nothing downstream runs, the table shows a command."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from poison import poisoned, waived_shards

from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import Node, resolve
from lineage.stage import Stage
from lineage.writing.writer import Writer
from marin_assets.factory import AssetTemplate, Invariant, family_asset
from marin_assets.quarantine import SHARDS_CHECK, SHARDS_PROMISE, missing_shards
from resources.lab import Lab, LabResource

SHARDS = Invariant(SHARDS_CHECK, SHARDS_PROMISE, missing_shards)


def write_word(folder: Path, word: str) -> Mapping[str, Any]:
    (folder / f"{word}.txt").write_text(word)
    return {}


def write_words(out: Writer, config: tuple[str, ...]) -> None:
    done = out.map_shards(write_word, {word: (word,) for word in config}, omittable=True)
    out.record(rows_in=len(done), rows_out=len(done), drops={})


def count_words(out: Writer, config: str, words: Artifact) -> None:
    (out.folder / "count.txt").write_text(str(len(words.files(".txt"))))


WORDS = Node(("words",), None, Stage("tests.words", "1", write_words), ("a", "b", "c"))
COUNT = Node(("count",), None, Stage("tests.count", "1", count_words), "", {"words": WORDS})


def run(root: Path, instance: dg.DagsterInstance, bad: Mapping[str, str]) -> dg.ExecuteInProcessResult:
    """Both assets, the first with some of its shards broken."""

    def node_at(lab: Lab, partition: str | None) -> Node:
        return poisoned(WORDS, bad)

    words = AssetTemplate(WORDS, node_at, lambda lab: lab.store, "documents", "Words.", frozenset(), invariants=(SHARDS,))
    count = replace(words, example=COUNT, node_at=lambda lab, partition: COUNT, description="Their number.", invariants=())
    return dg.materialize(
        [family_asset(words), family_asset(count)],
        resources={"lab": LabResource(root=str(root), workers=1)},
        instance=instance,
        raise_on_error=False,
    )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


def test_the_check_fails_and_names_the_shard_and_nothing_is_built_on_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    result = run(tmp_path, instance, {"b": "value"})
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed, check.blocking) == (SHARDS_CHECK, False, True)
    assert check.description == "b: ValueError: the record cannot be read"
    assert check.metadata["shards_finished"].value == 2 and check.metadata["shards_quarantined"].value == 1
    (row,) = check.metadata["quarantine"].records
    assert (
        row.data["shard"] == "b"
        and row.data["kind"] == "permanent"
        and "-m lineage.build.shard_runner" in row.data["run_it_alone"]
    )
    assert "raise ValueError" in str(check.metadata["traceback of b"].value)
    assert not list(result.get_asset_materialization_events()), "an incomplete artifact is no materialization"
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert failure.step_key == "words" and "1 of 3 shards failed" in str(failure.step_failure_data.user_failure_data)


def test_materializing_again_passes_and_so_does_a_waiver(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    run(tmp_path, instance, {"b": "value"})
    store = Store(str(tmp_path / "artifacts"), scratch_folder=str(tmp_path / "work"))
    waived_shards(store, WORDS)
    lacking = run(tmp_path, instance, {"b": "value"})
    assert lacking.success and [check.passed for check in lacking.get_asset_check_evaluations()] == [True]
    (event, _) = lacking.get_asset_materialization_events()
    shown = event.materialization.metadata
    assert [row.data["shard"] for row in shown["made_without_shards"].records] == ["b"] and "waivers" in shown
    whole = run(tmp_path, instance, {})
    assert whole.success
    assert resolve(store, COUNT).files()[0].read_text() == "3"
