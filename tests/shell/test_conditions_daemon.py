"""The condition of the leaderboard under a real daemon: nothing starts until it is switched on, then one run follows each
result."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
import yaml
from conditions_location import FOLDER
from dagster_processes import LOCATION, DagsterProcesses
from launches import ROOT, until
from small import repository
from small_results import result_node
from small_runs import small_run

from evals.reports.leaderboard_stage import KEY
from jobs.automation import VARIABLE
from lineage.artifact.store import Artifact, Store
from lineage.build.nodes import ancestors_first
from lineage.build.plan import build
from marin_assets.describe import materialization, provenance, recorded
from marin_assets.runs import saved_partitions
from recipes.runs import eval_tasks
from resources.stores import lab_stores

pytestmark = pytest.mark.slow

RUN = small_run("tiny")
PARTITIONS = [f"{step}|{eval_tasks(RUN)[0].name}" for step in saved_partitions(RUN)]
POLICY = "2026-11-22"


@dataclass(frozen=True)
class World:
    """A daemon and a code server, over an instance and a store of their own."""

    dagster: DagsterProcesses
    instance: dg.DagsterInstance
    store: Store

    def evaluate(self, right: int, partition: str) -> None:
        """Commit a result of `tiny`, and report it as the sensor of committed artifacts does."""
        for node in ancestors_first([result_node("tiny", POLICY, right, 10, day=partition)]):
            result = build(self.store, node).artifact
        self.instance.report_runless_asset_event(materialization(result, recorded(result) | provenance(result)))

    def switch_on(self) -> None:
        """Start the sensor, as a person does on its page."""
        where = ("-w", str(self.dagster.workspace), "--location", LOCATION)
        command = [sys.executable, "-m", "dagster", "sensor", "start", "automation_conditions", *where]
        subprocess.run(command, cwd=ROOT, env=dict(self.dagster.environment), check=True, capture_output=True)

    def looks(self) -> int:
        """Ticks of the sensor that ended."""
        states = self.instance.all_instigator_state()
        ticks = [tick for s in states for tick in self.instance.get_ticks(s.instigator_origin_id, s.selector_id)]
        return len([tick for tick in ticks if tick.end_timestamp])

    def until_daemons_beat(self) -> None:
        """Wait for a new heartbeat of every daemon."""
        now = time.time()
        until(
            lambda: all(beat.timestamp > now for beat in self.instance.get_daemon_heartbeats().values()), "a heartbeat of each"
        )

    def boards(self) -> list[Artifact]:
        return sorted(self.store.artifacts(*KEY), key=lambda artifact: len(artifact.spec.inputs))

    def ended(self) -> list[dg.DagsterRunStatus]:
        return [run.status for run in self.instance.get_runs() if run.is_finished]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """The lab's own settings; only the place of files is this test's."""
    settings = yaml.safe_load((repository() / "dagster.yaml").read_text())
    settings["storage"]["sqlite"]["base_dir"] = str(tmp_path / "storage")
    for part in ("local_artifact_storage", "compute_logs"):
        settings[part]["config"]["base_dir"] = str(tmp_path / part)
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    search = ":".join(str(repository() / part) for part in (".", "tests/lab", "tests/shell"))
    ours = {"DAGSTER_HOME": str(tmp_path), FOLDER: str(tmp_path / "lab"), "PYTHONPATH": search}
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | ours
    processes = DagsterProcesses("conditions_location", environment, tmp_path)
    with processes as dagster, dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield World(dagster, instance, lab_stores(str(tmp_path / "lab"))[0])


def test_the_board_follows_each_result_once_and_only_after_it_is_switched_on(world: World) -> None:
    first, second = PARTITIONS
    world.evaluate(4, first)
    world.until_daemons_beat()
    world.until_daemons_beat()
    assert (world.looks(), world.instance.get_runs()) == (0, [])

    world.switch_on()
    until(lambda: world.ended(), "a board of the first result")
    world.evaluate(9, second)  # before the next look sees that the first board was made
    until(lambda: len(world.ended()) >= 2, "a board of both results")
    looks = world.looks()
    until(lambda: world.looks() >= looks + 3, "three more looks")

    assert [run.asset_selection for run in world.instance.get_runs()] == [frozenset({dg.AssetKey(list(KEY))})] * 2
    assert world.ended() == [dg.DagsterRunStatus.SUCCESS] * 2
    assert [len(board.spec.inputs) for board in world.boards()] == [1, 2]
    event = world.instance.get_latest_materialization_event(dg.AssetKey(list(KEY)))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.tags["dagster/data_version"] == world.boards()[-1].data_version
