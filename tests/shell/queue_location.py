"""The code location of `test_queue.py`: a job of one step, and a sensor that asks for twenty runs of it at once."""

import os
from pathlib import Path

import dagster as dg

FOLDER, RUNS = "QUEUE_FOLDER", 20


@dg.op
def leave_a_mark(context: dg.OpExecutionContext) -> None:
    with (Path(os.environ[FOLDER]) / context.run.tags["number"]).open("a") as file:
        file.write(f"{context.run.run_id}\n")


@dg.job(executor_def=dg.in_process_executor)
def mark() -> None:
    leave_a_mark()


@dg.sensor(job=mark, minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def twenty() -> dg.SensorResult:
    """Ask for every run at each tick; a run key is taken once."""
    return dg.SensorResult([dg.RunRequest(run_key=str(at), tags={"number": str(at)}) for at in range(RUNS)])


definitions = dg.Definitions(jobs=[mark], sensors=[twenty])
