"""A canary for the private names that `resources/dagster_private.py` wraps."""

import dagster as dg

from resources.dagster_private import UnresolvedAssetJobDefinition


def test_define_asset_job_still_returns_the_wrapped_type() -> None:
    assert isinstance(dg.define_asset_job("job"), UnresolvedAssetJobDefinition), "look at resources/dagster_private.py"
