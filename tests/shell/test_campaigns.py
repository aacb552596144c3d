"""Schedules, sensors, pass rates, expiry and the canary, against a real instance and a finished ferry."""

import datetime

import dagster as dg
import pytest
from small import FinishedFerry
from small_runs import DAY, small_run

from lineage.artifact.store import Store
from lineage.build.nodes import Node, resolve
from lineage.build.plan import build, build_all
from lineage.stage import Stage
from marin_assets.consistency import check_consistency
from marin_assets.due import due_rules, results_check
from marin_assets.operations import delete_expired, pass_rate_asset
from marin_assets.outcomes import classify, outcomes
from marin_assets.rebuild import rebuild_event_log
from marin_assets.runs import saved_partitions
from recipes.policies import policy_config
from recipes.records.run import Run
from recipes.runs import checkpoint, eval_tasks
from recipes.studies.default import tiny
from resources.dagster_private import SensorExecutionData
from sensors.checkpoints import checkpoint_sensor
from trainer.spec.stage import step_partition


def test_the_schedule_asks_for_the_running_day_at_half_past_six(finished_ferry: FinishedFerry) -> None:
    schedule = finished_ferry.definitions.get_schedule_def("daily_smoke_ferry")
    moment = datetime.datetime(2026, 11, 21, 6, 30, tzinfo=datetime.UTC)
    with dg.build_schedule_context(
        instance=finished_ferry.instance,
        scheduled_execution_time=moment,
        repository_def=finished_ferry.definitions.get_repository_def(),
    ) as context:
        requests = schedule.evaluate_tick(context).run_requests
    assert [request.partition_key for request in requests] == ["2026-11-21"]
    assert schedule.cron_schedule == "30 6 * * *"
    assert schedule.execution_timezone == "UTC"


def test_a_ferry_that_passed_starts_the_canary_of_its_day_once(finished_ferry: FinishedFerry) -> None:
    """The ferry ended before the sensor's first tick: `make ferry`, then `make ui`."""
    sensor = finished_ferry.definitions.get_sensor_def("canary_cpu_after_ferry")
    with dg.build_sensor_context(instance=finished_ferry.instance) as context:
        first = sensor(context)
    assert [request.partition_key for request in first.run_requests] == [DAY]
    with dg.build_sensor_context(instance=finished_ferry.instance, cursor=first.cursor) as context:
        assert not sensor(context).run_requests
    with dg.instance_for_test() as empty, dg.build_sensor_context(instance=empty) as context:
        assert sensor(context).skip_reason.skip_message == "no ferry has passed yet"


@pytest.mark.slow
def test_sensors_see_a_ferry_that_the_command_line_made(finished_ferry: FinishedFerry) -> None:
    """Such a run has no code location, the sensor has one: the daemon with `make ui` open and `make ferry` beside it."""
    repository = finished_ferry.definitions.get_repository_def()
    sensors = [
        finished_ferry.definitions.get_sensor_def(name) for name in ("canary_cpu_after_ferry", "pass_rate_after_success")
    ]

    def tick(sensor: dg.SensorDefinition, cursor: str | None) -> SensorExecutionData:
        with dg.build_sensor_context(
            instance=finished_ferry.instance, cursor=cursor, repository_def=repository, repository_name="elsewhere"
        ) as context:
            return sensor.evaluate_tick(context)

    cursors = [tick(sensor, None).cursor for sensor in sensors]
    finished_ferry.definitions.resolve_job_def("smoke_ferry").execute_in_process(
        partition_key=DAY, instance=finished_ferry.instance
    )
    canary, rates = (tick(sensor, cursor).run_requests for sensor, cursor in zip(sensors, cursors, strict=True))
    assert [request.partition_key for request in canary] == [DAY]
    assert len(rates) == 1


@pytest.mark.slow
def test_each_new_checkpoint_is_reported_once_and_its_evaluations_requested(finished_ferry: FinishedFerry) -> None:
    run = small_run("tiny")
    build_all(finished_ferry.lab.store, [checkpoint(run, run.spec.num_steps)], launcher=finished_ferry.lab.launcher)
    sensor = checkpoint_sensor([run])
    with dg.build_sensor_context(instance=finished_ferry.instance, resources={"lab": finished_ferry.resource}) as context:
        first = sensor(context)
    steps = [event.partition for event in first.asset_events]
    assert steps == saved_partitions(run) and len(steps) == 2
    for event in first.asset_events:
        step = int(event.metadata["step"].value)
        assert event.tags["dagster/data_version"] == resolve(finished_ferry.lab.store, checkpoint(run, step)).data_version
    assert len(first.run_requests) == len(steps) * (len(eval_tasks(run)) + 1) + 1, "and the export of the last"
    _requests_follow_the_policy(first, run)
    missing = results_check(finished_ferry.lab, [run])
    assert (missing.passed, missing.metadata["missing"].value) == (False, len(steps) * len(eval_tasks(run)))
    with dg.build_sensor_context(
        instance=finished_ferry.instance, cursor=first.cursor, resources={"lab": finished_ferry.resource}
    ) as context:
        again = sensor(context)
    assert not again.run_requests
    assert "no new checkpoint" in again.skip_reason.skip_message
    done = _evaluate_as_requested(finished_ferry, first)
    left = results_check(finished_ferry.lab, [run])
    assert left.metadata["missing"].value == missing.metadata["missing"].value - 1
    command = f"./marin materialize runs/tiny/eval_result --partition '{done[0].partition_key}'"
    assert command in missing.description and command not in left.description
    _the_board_follows(finished_ferry)
    with dg.DagsterInstance.ephemeral() as instance:
        _rebuild(finished_ferry, instance, steps, done)
        with dg.build_sensor_context(instance=instance, resources={"lab": finished_ferry.resource}) as context:
            after = sensor(context)
    assert after.asset_events == [], "the rebuilt log has the checkpoints, the lost cursor or not"
    wanted = {request.run_key for request in first.run_requests} - {request.run_key for request in done}
    assert {request.run_key for request in after.run_requests} == wanted, "what was evaluated is not evaluated again"


def _requests_follow_the_policy(tick: dg.SensorResult, run: Run) -> None:
    """Check that the most urgent results of every step come first, and that Dagster does not retry what failed."""
    policy = policy_config(run)
    for step in saved_partitions(run):
        requests = [r for r in tick.run_requests if made_by(r)[0] == "eval_result" and r.partition_key.startswith(f"{step}|")]
        tasks = [request.partition_key.split("|")[1] for request in requests]
        assert tasks == [rule.task.name for rule in due_rules(run, step)]
        urgency = [policy.rule(task).priority for task in tasks]
        assert urgency == sorted(urgency, reverse=True) and len(set(urgency)) > 1
        for request, priority in zip(requests, urgency, strict=True):
            assert request.tags["dagster/priority"] == str(priority)
            assert request.tags["marin/eval_policy"] == policy.name
    assert not [tag for request in tick.run_requests for tag in request.tags if "retries" in tag]


def test_what_is_due_at_the_last_step_alone_is_asked_there_alone() -> None:
    """`tiny` saves several steps and asks its wider suites once."""
    run = tiny()
    saved, policy = run.spec.saved_steps(), policy_config(run)
    once = {rule.task.name for rule in policy.rules if rule.every_saves == 0}
    first, last = ({rule.task.name for rule in due_rules(run, step_partition(step))} for step in (saved[0], saved[-1]))
    assert last == {task.name for task in policy.tasks}
    assert once and first == last - once


def _evaluate_as_requested(finished_ferry: FinishedFerry, tick: dg.SensorResult) -> list[dg.RunRequest]:
    """Carry out one evaluation, the audit and the export that the tick asked for."""
    wanted = [
        next(r for r in tick.run_requests if name in made_by(r)) for name in ("eval_result", "contamination_audit", "hf_canary")
    ]
    job = finished_ferry.definitions.resolve_implicit_global_asset_job_def()
    for request in wanted:
        result = job.get_subset(asset_selection=set(request.asset_selection)).execute_in_process(
            partition_key=request.partition_key, instance=finished_ferry.instance, tags=request.tags
        )
        assert result.success
    return wanted


def made_by(request: dg.RunRequest) -> list[str]:
    """Last parts of the keys of the assets that a request makes."""
    return [key.path[-1] for key in request.asset_selection]


def _the_board_follows(finished_ferry: FinishedFerry) -> None:
    """The board is asked for after the evaluation, and has its result."""
    board_key = dg.AssetKey(["leaderboard"])
    selection = dg.AssetSelection.assets(board_key)
    asked = dg.evaluate_automation_conditions(finished_ferry.definitions, finished_ferry.instance, selection)
    assert asked.get_num_requested(board_key) == 1
    board_asset = finished_ferry.definitions.resolve_assets_def(board_key)
    assert dg.materialize([board_asset], instance=finished_ferry.instance, selection=[board_key]).success
    board = finished_ferry.instance.get_latest_materialization_event(board_key)
    assert board is not None and board.asset_materialization is not None
    assert board.asset_materialization.metadata["results"].value == 1


def _rebuild(finished_ferry: FinishedFerry, instance: dg.DagsterInstance, steps: list[str], done: list[dg.RunRequest]) -> None:
    """The log of the canonical store from its manifests: step partitions, evaluations, and the training that made them."""
    graph, store = finished_ferry.definitions.resolve_asset_graph(), finished_ferry.lab.store
    rebuild_event_log([store], instance, graph)
    of_run = [dg.AssetKey(["runs", "tiny", name]) for name in ("checkpoint", "eval_result", "contamination_audit", "hf_canary")]
    assert [instance.get_materialized_partitions(key) for key in of_run] == [
        set(steps),
        *({str(request.partition_key)} for request in done),
    ]
    assert instance.get_latest_materialization_event(dg.AssetKey(["runs", "tiny", "training"])) is not None
    assert check_consistency([store], instance, graph, datetime.date(2026, 11, 21)).disagreements == ()


def test_pass_rate_sees_passes_regressions_and_broken_machines(tmp_path) -> None:
    """Three runs of one campaign: one passes, one breaks a blocking promise, one dies. The rate is 1 in 3."""

    @dg.asset(check_specs=[dg.AssetCheckSpec("rows_conserved", asset="outcome", blocking=True)], config_schema={"how": str})
    def outcome(context):
        if context.op_execution_context.op_config["how"] == "dies":
            raise OSError(28, "No space left on device")
        passed = context.op_execution_context.op_config["how"] == "passes"
        return dg.MaterializeResult(check_results=[dg.AssetCheckResult(check_name="rows_conserved", passed=passed)])

    @dg.asset(deps=[outcome])
    def after() -> None: ...

    job = dg.define_asset_job("ferry_day", selection="*", tags={"marin/campaign": "ferry"}, executor_def=dg.in_process_executor)
    definitions = dg.Definitions(assets=[outcome, after], jobs=[job])
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        for how in ("passes", "breaks", "dies"):
            definitions.resolve_job_def("ferry_day").execute_in_process(
                instance=instance, raise_on_error=False, run_config={"ops": {"outcome": {"config": {"how": how}}}}
            )
        ended = outcomes(instance, "ferry")
        assert sorted(o.status for o in ended) == ["infrastructure", "passed", "regression"]
        assert next(o.cause for o in ended if o.status == "regression") == "outcome: rows_conserved"
        assert "No space left on device" in next(o.cause for o in ended if o.status == "infrastructure")
        result = dg.materialize([pass_rate_asset("ferry")], instance=instance)
        evaluation = result.get_asset_check_evaluations()[0]
        assert not evaluation.passed
        event = result.asset_materializations_for_node("operations__ferry_pass_rate")[0]
        assert event.metadata["pass_rate"].value == pytest.approx(1 / 3)


def test_a_passed_ferry_is_classified_as_passed(finished_ferry: FinishedFerry) -> None:
    assert classify(finished_ferry.instance, finished_ferry.run) == ("passed", "")


def _write_day(out, config) -> None:
    (out.folder / "day.txt").write_text("x")


WRITE_DAY = Stage("tests.day", "1", _write_day)


def test_expiry_deletes_what_is_past_its_time_and_nothing_else(tmp_path) -> None:
    store = Store(str(tmp_path))
    for day in ("2026-11-10", "2026-11-13", "2026-11-14", "2026-11-21"):
        build(store, Node(("ferry", "thing"), day, WRITE_DAY, {}))
    for partition in ("step-00000150", None):  # a stray artifact stopped every later expiry (red team, C-M6)
        build(store, Node(("ferry", "stray"), partition, WRITE_DAY, {}))
    gone = delete_expired(store, today="2026-11-21", ttl_days=7)
    assert len(gone) == 2
    assert {artifact.spec.partition for artifact in store.artifacts()} == {"2026-11-14", "2026-11-21", "step-00000150", None}
    assert not list(tmp_path.glob("ferry/thing/2026-11-10/*/data-*"))
