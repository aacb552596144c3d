"""What Dagster adds to a launch: from the queue to the pod's first line, through the production instance on PostgreSQL.

    bash tests/lab/build_kube.sh
    PYTHONPATH=.:tests/lab:tests/shell .venv/bin/python benchmarks/launch_latency_dagster.py [--launches 10]

Bar (issue 7): at most 5 s of the orchestrator's own beyond the pod's start. A real daemon takes each run from its queue and
starts a process for it, that one a process for the step, and the step calls the launcher, with the rights of `marin-runs` on a
real API server. A run worker here is a child process; in a cluster it is a pod, whose start (image, scheduling) comes on top.
What the pod takes by itself is `benchmarks/launch_latency.py`'s bare Job.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import dagster as dg
from dagster_processes import DagsterProcesses
from latency_location import BEGAN, CALLED, FOLDER, LAUNCH, NUMBER, RETURNED
from launches import until
from whole_lab import WholeLab

STAGES = (
    "waited in the queue",
    "run's process started",
    "step's process started",
    "step began to launch",
    "pod's first line",
    "launcher returned",
    "run was finished",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=10)
    launches = parser.parse_args().launches
    with tempfile.TemporaryDirectory(prefix="marin-latency-") as scratch:
        folder = Path(scratch) / "jobs"
        folder.mkdir()
        mounts = [{"path": str(folder), "host_path": str(folder)}]
        python_path = ":".join(str(Path(part).resolve()) for part in (".", "tests/lab"))
        with WholeLab(Path(scratch), {"PYTHONPATH": python_path}, mounts=mounts) as lab:
            lab.kubelet.add_node("cpu-0")
            environment = {**lab.environment(), FOLDER: str(folder)}
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
            with (
                patch.dict(os.environ, environment),
                dg.DagsterInstance.from_config(environment["DAGSTER_HOME"]) as instance,
                DagsterProcesses("latency_location", environment, lab.folder) as dagster,
            ):
                rows = [measured(dagster, instance, folder, number) for number in range(launches)]
    for at, name in enumerate(STAGES):
        print(f"{name:>24}: {spread([row[at + 1] - row[at] for row in rows])}")
    print(f"from the queue to the launcher's call {spread([row[4] - row[0] for row in rows])}")
    print(
        f"from the queue to the pod's first line {spread([row[5] - row[0] for row in rows])} (bar: 5 s beyond the pod's start)"
    )


def measured(dagster: DagsterProcesses, instance: dg.DagsterInstance, folder: Path, number: int) -> list[float]:
    """Moments of one run, in seconds since 1970: from its being put into the queue to its end."""
    dagster.launch(LAUNCH, {NUMBER: str(number)})
    of_it = dg.RunsFilter(tags={NUMBER: str(number)})
    until(lambda: all(run.is_finished for run in instance.get_runs(of_it)), "the run ends")
    (run,) = instance.get_runs(of_it)
    if not run.is_success:
        raise RuntimeError(f"run {run.run_id} is {run.status}")
    events = {log.dagster_event.event_type: log.timestamp for log in instance.all_logs(run.run_id) if log.dagster_event}
    kinds = dg.DagsterEventType
    taken, began, step = (events[kind] for kind in (kinds.RUN_STARTING, kinds.RUN_START, kinds.STEP_START))
    called, first, returned = ((folder / str(number) / name).stat().st_mtime for name in (CALLED, BEGAN, RETURNED))
    return [events[kinds.RUN_ENQUEUED], taken, began, step, called, first, returned, events[kinds.RUN_SUCCESS]]


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s (from {min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
