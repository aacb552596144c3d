"""The code location of `committed_world.py`: the small ferry's assets and the sensor without delay."""

import dagster as dg
from small_runs import small_ferry

from marin_assets.factory import family_asset
from marin_assets.ferry import ferry_assets
from resources.lab import lab_from_environment
from sensors.committed import committed_sensor


@dg.definitions
def defs() -> dg.Definitions:
    families = list(ferry_assets(small_ferry()))
    return dg.Definitions(
        assets=[family_asset(family) for family in families],
        sensors=[committed_sensor(families, grace_seconds=0, interval_seconds=1)],
        resources={"lab": lab_from_environment()},
    )
