"""Make the leaderboard again once a batch of evaluations is over."""

import dagster as dg

from jobs.automation import sensors_at_start
from jobs.campaigns import EVALUATION_TAG
from resources.dagster_private import UnresolvedAssetJobDefinition

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def leaderboard_sensor(leaderboard: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """Request the board after the newest evaluation that succeeded, if none is running.

    A checkpoint brings dozens of evaluations; a board after each would be dozens of boards.
    """

    @dg.sensor(
        name="leaderboard_after_evaluations",
        job=leaderboard,
        minimum_interval_seconds=60,
        default_status=sensors_at_start(),
        description="Makes the leaderboard anew when evaluations have ended and none is under way.",
    )
    def after_evaluations(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        def newest(statuses: list[dg.DagsterRunStatus]) -> str | None:
            runs = context.instance.get_runs(dg.RunsFilter(tags={EVALUATION_TAG: "yes"}, statuses=statuses), limit=1)
            return runs[0].run_id if runs else None

        done = newest([dg.DagsterRunStatus.SUCCESS])
        if done is None or done == context.cursor:
            return dg.SensorResult(skip_reason="no evaluation has ended since the last board was asked for")
        if (running := newest(UNFINISHED)) is not None:
            return dg.SensorResult(skip_reason=f"evaluation run {running} is under way")
        return dg.SensorResult(run_requests=[dg.RunRequest(run_key=f"leaderboard:{done}")], cursor=done)

    return after_evaluations
