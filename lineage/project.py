"""Where the project's code lies, the name it is imported under, and the folder of the lab that runs it.

In a checkout the packages are imported by their own names, and the lab is the checkout. In the wheel
(`tools/build_wheel.py`) all are below the package `marin_lab`, and the lab is another repository.
"""

import os
from pathlib import Path

PREFIX = __name__.removesuffix("lineage.project")
"""The prefix of the names of the project's modules: nothing, or `marin_lab.`."""
CODE = Path(__file__).resolve().parents[1]
"""The folder of the packages and of `data/`."""
IMPORT_ROOT = CODE.parent if PREFIX else CODE
"""The folder on the path of an interpreter that imports the project."""
LAB = "MARIN_LAB"
"""Environment variable with the folder of the lab; the wheel takes the working folder without it."""
COMMIT_FILE = "COMMIT"
"""File in the wheel with the commit that it was built from."""


def lab_folder() -> Path:
    """Return the folder of the lab: its recipes, its policy and, by default, its stores and keys."""
    named = os.environ.get(LAB)
    return Path(named).resolve() if named else (Path.cwd() if PREFIX else CODE)
