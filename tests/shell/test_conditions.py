"""Automation conditions: the leaderboard follows the evaluations, once, when none of them is under way."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from small import small_lab
from small_runs import small_run

from jobs.automation import VARIABLE
from marin_assets.runs import saved_partitions
from recipes.runs import eval_tasks

BOARD, RESULTS = dg.AssetKey(["leaderboard"]), dg.AssetKey(["runs", "tiny", "eval_result"])
RUN = small_run("tiny")
PARTITIONS = [f"{step}|{eval_tasks(RUN)[0].name}" for step in saved_partitions(RUN)]


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
    return small_lab(tmp_path_factory.mktemp("conditions"))[2]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as instance:
        yield instance


class Looks:
    """Looks of the daemon, one after another, at the board's condition."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions, self.instance = definitions, instance
        self.cursor = None

    def asks(self) -> bool:
        """Whether the next look asks for the board."""
        selection = dg.AssetSelection.assets(BOARD)
        seen = dg.evaluate_automation_conditions(self.definitions, self.instance, selection, cursor=self.cursor)
        self.cursor = seen.cursor
        return seen.get_num_requested(BOARD) == 1

    def evaluated(self, partition: str) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(RESULTS, partition=partition))

    def start(self, key: dg.AssetKey, partition: str | None = None) -> dg.DagsterRun:
        """Start a run of one asset that does not end by itself."""
        job = self.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
        tags = {} if partition is None else {"dagster/partition": partition}
        return self.instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.STARTED, asset_selection=frozenset({key}), tags=tags
        )


@pytest.fixture
def looks(definitions: dg.Definitions, instance: dg.DagsterInstance) -> Looks:
    return Looks(definitions, instance)


def test_a_lab_without_results_asks_for_no_board(looks: Looks) -> None:
    assert not looks.asks() and not looks.asks()


def test_the_board_is_asked_for_once_after_each_evaluation(looks: Looks) -> None:
    assert not looks.asks()
    for partition in PARTITIONS:
        looks.evaluated(partition)
        assert looks.asks() and not looks.asks()


def test_results_from_before_the_first_look_are_collected(looks: Looks) -> None:
    looks.evaluated(PARTITIONS[0])
    assert looks.asks() and not looks.asks()


def test_the_board_waits_until_no_evaluation_is_under_way(looks: Looks) -> None:
    assert not looks.asks()
    run = looks.start(RESULTS, PARTITIONS[1])
    looks.evaluated(PARTITIONS[0])
    assert not looks.asks()
    looks.instance.report_run_canceled(run)
    assert looks.asks() and not looks.asks()


def test_a_result_that_comes_right_after_the_board_was_asked_for_is_collected_too(looks: Looks) -> None:
    looks.evaluated(PARTITIONS[0])
    assert looks.asks()
    looks.evaluated(PARTITIONS[1])
    assert looks.asks() and not looks.asks()


@pytest.mark.parametrize("looks_between", [0, 1, 2])
def test_a_result_that_comes_while_the_board_is_made_is_collected_after_it(looks: Looks, looks_between: int) -> None:
    looks.evaluated(PARTITIONS[0])
    assert looks.asks()
    run = looks.start(BOARD)
    assert not looks.asks()
    looks.evaluated(PARTITIONS[1])
    for _ in range(looks_between):
        assert not looks.asks()
    looks.instance.report_runless_asset_event(dg.AssetMaterialization(BOARD))
    looks.instance.report_run_canceled(run)
    assert looks.asks() and not looks.asks()


@pytest.mark.parametrize(("setting", "running"), [("off", False), ("on", True)])
def test_one_sensor_looks_and_is_switched_by_the_deployment(
    setting: str, running: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's own sensor, which no setting of ours switches, is not added beside it."""
    monkeypatch.setenv(VARIABLE, setting)
    definitions = small_lab(tmp_path)[2]
    sensors = definitions.get_repository_def().sensor_defs
    looking = [sensor for sensor in sensors if isinstance(sensor, dg.AutomationConditionSensorDefinition)]
    (sensor,) = looking
    assert (sensor.default_status is dg.DefaultSensorStatus.RUNNING) is running
    graph = definitions.resolve_asset_graph()
    assert {key for key in graph.get_all_asset_keys() if graph.get(key).automation_condition} <= sensor.asset_selection.resolve(
        graph
    )
