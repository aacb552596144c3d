"""Whether schedules and sensors that start work are on when a code location is first loaded."""

import os

import dagster as dg

VARIABLE = "MARIN_AUTOMATION"
"""`on` in a deployment (deploy/kubernetes/environment.yaml). Elsewhere opening the UI starts no work: what is to run by itself
is switched on there, once."""


def is_on() -> bool:
    """Return what the environment says. Raises: ValueError for a value that is neither on nor off."""
    value = os.environ.get(VARIABLE, "off")
    if value not in ("on", "off"):
        raise ValueError(f"{VARIABLE} is {value!r}; give on or off")
    return value == "on"


def sensors_at_start() -> dg.DefaultSensorStatus:
    """Return whether sensors run at the first start."""
    return dg.DefaultSensorStatus.RUNNING if is_on() else dg.DefaultSensorStatus.STOPPED


def schedules_at_start() -> dg.DefaultScheduleStatus:
    """Return whether schedules run at the first start."""
    return dg.DefaultScheduleStatus.RUNNING if is_on() else dg.DefaultScheduleStatus.STOPPED
