"""An asset's definition beside its edges: the code that makes it, how fresh it should be, when it is made by itself."""

import datetime
import inspect
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import dagster as dg

from lineage.project import CODE
from lineage.stage import Stage

FERRY_DEADLINE = "0 12 * * *"
"""The ferry starts at 06:30 UTC and must end before noon."""
DAY = datetime.timedelta(days=1)


@cache
def code_reference(function: Callable[..., Any]) -> dg.CodeReferencesMetadataValue:
    """Return the metadata that ties an asset's page to the function that makes it. Dagster warns that it is beta."""
    code = inspect.unwrap(function).__code__
    return _reference(code.co_filename, code.co_firstlineno, function.__qualname__)


@cache
def job_reference(job: str) -> dg.CodeReferencesMetadataValue:
    """Return the metadata that ties an asset's page to the program `python -m JOB`, which makes it."""
    return _reference(str(CODE.joinpath(*job.split("."), "__main__.py")), 1, f"python -m {job}")


def _reference(path: str, line: int, label: str) -> dg.CodeReferencesMetadataValue:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is currently in beta")
        place = dg.LocalFileCodeReference(file_path=path, line_number=line, label=label)
        return dg.CodeReferencesMetadataValue(code_references=[place])


def stage_references(stage: Stage) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return the reference to a stage's function, or to the program of a stage that is a job."""
    made_by = code_reference(stage.run) if stage.run is not None else job_reference(str(stage.job))
    return {"dagster/code_references": made_by}


def every_day(deadline: str = FERRY_DEADLINE) -> dg.FreshnessPolicy:
    """Return the freshness policy of what is made once a day, by a deadline (cron, UTC). It judges the asset, not each day."""
    return dg.FreshnessPolicy.cron(deadline_cron=deadline, lower_bound_delta=DAY - datetime.timedelta(hours=1))


def within(days: int) -> dg.FreshnessPolicy:
    """Return the freshness policy of what must have been made in the last days."""
    return dg.FreshnessPolicy.time_window(fail_window=days * DAY)


def after_inputs() -> dg.AutomationCondition:
    """Return the condition of an asset that collects many inputs: one of them changed and none of them is being made.

    At the first look it holds if some input exists. So what was made before is collected when automation is switched on.
    A change is forgotten when the asset was asked for and nothing changed since. `since` lets its second condition win when
    both hold. So "the asset was just made" does not end the wait: a change that comes while it is made would be lost.
    """
    condition = dg.AutomationCondition
    changed = condition.initial_evaluation() | condition.any_deps_updated()
    is_due = changed.since(condition.newly_requested() & ~changed)
    some_exist = condition.any_deps_match(~condition.missing())
    is_quiet = ~condition.any_deps_in_progress() & ~condition.in_progress()
    return (is_due & some_exist & is_quiet).with_label("after_inputs")
