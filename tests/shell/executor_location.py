"""The code location of `test_executor.py`: two assets that record their process."""

import os
from pathlib import Path

import dagster as dg

from resources.executor import one_here_many_apart

FOLDER = "EXECUTOR_FOLDER"


def _made_by(name: str) -> None:
    (Path(os.environ[FOLDER]) / name).write_text(str(os.getpid()))


@dg.asset
def first() -> None:
    _made_by("first")


@dg.asset(deps=[first])
def second() -> None:
    _made_by("second")


def both() -> dg.JobDefinition:
    job = dg.define_asset_job("both", selection=[first, second])
    return dg.Definitions(assets=[first, second], jobs=[job], executor=one_here_many_apart).resolve_job_def("both")
