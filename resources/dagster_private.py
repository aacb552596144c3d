"""The only file that touches Dagster's private modules; `tests/shell/test_dagster_private.py` fails first when they move.

Dagster is pinned to its minor version because of these.
"""

from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

__all__ = ["SensorExecutionData", "UnresolvedAssetJobDefinition"]
