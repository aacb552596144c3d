"""The code location that chaos runs: a declared run and its sensor, as `marin_assets.definitions` has them, and a job."""

import os

import dagster as dg
from chaos_world import chaos_run

from marin_assets.runs import run_assets, training_key
from resources.lab import lab_from_environment
from sensors.checkpoints import checkpoint_sensor

STEPS = "CHAOS_STEPS"
TRAIN = "train"


@dg.definitions
def defs() -> dg.Definitions:
    run = chaos_run(int(os.environ[STEPS]))
    return dg.Definitions(
        assets=run_assets(run),
        jobs=[dg.define_asset_job(TRAIN, selection=[training_key(run)])],
        sensors=[checkpoint_sensor([run])],
        resources={"lab": lab_from_environment()},
    )
