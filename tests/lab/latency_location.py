"""The code location of `benchmarks/launch_latency_dagster.py`: the lab's, and an asset whose step launches a job of a moment.

All that the lab declares is loaded beside it, because a run's process and its step's load just that before they begin.
"""

import json
import os
from pathlib import Path

import dagster as dg

from lineage.jobs.job import LaunchRequest
from marin_assets.definitions import defs as declared
from resources.lab import Lab

FOLDER, NUMBER, LAUNCH = "LATENCY_FOLDER", "latency/number", "launch"
CALLED, BEGAN, RETURNED = "called", "began", "returned"
"""Files of a launch: their times are when the launcher was called, the pod's first line ran, and the launcher had returned."""


@dg.asset
def launched(context: dg.AssetExecutionContext, lab: dg.ResourceParam[Lab]) -> None:
    home = Path(os.environ[FOLDER]) / context.run.tags[NUMBER]
    home.mkdir()
    (home / "job.json").write_text(json.dumps({"steps": [{"touch": str(home / BEGAN)}]}))
    (home / CALLED).touch()
    lab.launcher(
        LaunchRequest("quick_job", home / "job.json", home / "log.txt", "benchmarks/launched", f"{int(home.name):016x}")
    )
    (home / RETURNED).touch()


@dg.definitions
def defs() -> dg.Definitions:
    job = dg.define_asset_job(LAUNCH, selection=[launched])
    return dg.Definitions.merge(declared, dg.Definitions(assets=[launched], jobs=[job]))
