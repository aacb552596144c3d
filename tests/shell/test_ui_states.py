"""After a fresh ferry, the UI shows as made exactly what was made: nothing else is green, nothing made is missing."""

import os
from pathlib import Path

import dagster as dg
import pytest
import yaml
from small import repository, small_lab
from small_runs import DAY
from states_location import FOLDER
from ui_states import counts, disagreements, made_places, shown_assets, webserver

from marin_assets.event_log import STAGE_METADATA
from marin_assets.searches import add_first_rounds
from recipes.lab import declarations
from resources.lab import Lab

FERRY_REPORT = ("ferry", "report")


def test_the_event_log_has_every_artifact_of_a_fresh_ferry_and_nothing_else(own_day: Path) -> None:
    """What the UI draws from, without a UI."""
    lab, definitions = Lab.at(str(own_day / "lab")), small_lab(own_day / "lab")[2]
    with dg.instance_for_test(temp_dir=str(own_day / "dagster")) as instance:
        made = made_places([lab.store, lab.ferry_store], instance)
        for spec in definitions.resolve_all_asset_specs():
            green = instance.get_materialized_partitions(spec.key)
            if spec.partitions_def is None:
                green = {None} if instance.get_latest_materialization_event(spec.key) else set()
            assert green == made.get(tuple(spec.key.path), set()), spec.key
    assert made[FERRY_REPORT] == {DAY}


def test_every_asset_with_partitions_has_some_from_the_start(real_definitions: dg.Definitions) -> None:
    """Dagster draws 0 of 0 partitions as a green tick. Rounds of searches are dynamic; `marin ui` adds the first of each."""
    with dg.DagsterInstance.ephemeral() as instance:
        add_first_rounds(instance, declarations().searches)
        add_first_rounds(instance, declarations().searches)  # when it is opened again
        for spec in real_definitions.resolve_all_asset_specs():
            if spec.partitions_def is not None:
                assert spec.partitions_def.get_partition_keys(dynamic_partitions_store=instance), spec.key


@pytest.mark.slow
def test_the_ui_shows_what_was_made_and_nothing_else(own_day: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_file": {"relative_path": states_location()}}]}))
    search = ":".join(str(repository() / part) for part in (".", "tests/lab", "tests/shell"))
    environment = {"DAGSTER_HOME": str(own_day / "dagster"), FOLDER: str(own_day / "lab"), "PYTHONPATH": search}
    lab = Lab.at(str(own_day / "lab"))
    with dg.instance_for_test(temp_dir=str(own_day / "dagster")) as instance:
        made = made_places([lab.store, lab.ferry_store], instance)
    with webserver(workspace, os.environ | environment) as url:
        shown = shown_assets(url)
    assert disagreements(shown, made, ()) == []
    specs = small_lab(own_day / "lab")[2].resolve_all_asset_specs()
    assert {asset.key for asset in shown} == {tuple(spec.key.path) for spec in specs}
    artifacts = [spec for spec in specs if STAGE_METADATA in spec.metadata]
    assert len(artifacts) > len(made) >= 20 and counts(shown)["made"] == len(made)


def states_location() -> str:
    return str(repository() / "tests/shell/states_location.py")
