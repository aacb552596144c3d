"""The code location of `test_ui_states.py`: the small ferry's lab in the folder that the environment names."""

import os
from pathlib import Path

import dagster as dg
from small import small_lab

FOLDER = "STATES_FOLDER"


@dg.definitions
def defs() -> dg.Definitions:
    return small_lab(Path(os.environ[FOLDER]))[2]
