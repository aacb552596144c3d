"""Metadata of an asset's definition beside its edges: the code that makes it, and how fresh it should be."""

import datetime
import inspect
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import dagster as dg

from lineage.stage import Stage

FERRY_DEADLINE = "0 12 * * *"
"""The ferry starts at 06:30 UTC and must end before noon."""
DAY = datetime.timedelta(days=1)


@cache
def code_reference(function: Callable[..., Any]) -> dg.CodeReferencesMetadataValue:
    """Return the metadata that ties an asset's page to the function that makes it. Dagster warns that it is beta."""
    code = inspect.unwrap(function).__code__
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in beta")
        place = dg.LocalFileCodeReference(
            file_path=code.co_filename, line_number=code.co_firstlineno, label=function.__qualname__
        )
        return dg.CodeReferencesMetadataValue(code_references=[place])


def stage_references(stage: Stage) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return the reference to a stage's function; none for a stage that a job runs elsewhere."""
    return {} if stage.run is None else {"dagster/code_references": code_reference(stage.run)}


def every_day(deadline: str = FERRY_DEADLINE) -> dg.FreshnessPolicy:
    """Return the freshness policy of what is made once a day, by a deadline (cron, UTC). It judges the asset, not each day."""
    return dg.FreshnessPolicy.cron(deadline_cron=deadline, lower_bound_delta=DAY - datetime.timedelta(hours=1))


def within(days: int) -> dg.FreshnessPolicy:
    """Return the freshness policy of what must have been made in the last days."""
    return dg.FreshnessPolicy.time_window(fail_window=days * DAY)
