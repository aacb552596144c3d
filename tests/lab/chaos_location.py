"""The code location that chaos runs: a declared run and its sensor, as `marin_assets.definitions` has them, and a job."""

import os

import dagster as dg
from chaos_world import chaos_line

from jobs.campaigns import audit_job, eval_job, export_job
from marin_assets.runs import run_assets, training_key
from resources.lab import lab_from_environment
from sensors.checkpoints import checkpoint_sensor

STEPS = "CHAOS_STEPS"
TRAIN = "train"


@dg.definitions
def defs() -> dg.Definitions:
    line = chaos_line(int(os.environ[STEPS]))
    asked = [job(line.run.name) for job in (eval_job, audit_job, export_job)]
    return dg.Definitions(
        assets=run_assets(line),
        jobs=[dg.define_asset_job(TRAIN, selection=[training_key(line)]), *asked],
        sensors=[checkpoint_sensor(line, *asked)],
        resources={"lab": lab_from_environment()},
    )
