"""The code location of `test_conditions_daemon.py`: the small lab's assets, and the sensor of conditions without delay."""

import os
from pathlib import Path

import dagster as dg
from small import small_lab

from sensors.conditions import condition_sensor

FOLDER = "CONDITIONS_FOLDER"


@dg.definitions
def defs() -> dg.Definitions:
    lab = small_lab(Path(os.environ[FOLDER]))[2]
    return dg.Definitions(
        assets=lab.assets, resources=lab.resources, executor=lab.executor, sensors=[condition_sensor(interval_seconds=1)]
    )
