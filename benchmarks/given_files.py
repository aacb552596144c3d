"""A stage that makes an artifact of files as they lie in a folder: what a benchmark is given, for the lab's stages to read."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from lineage.stage import Stage
from lineage.writing.writer import Writer


def bring(out: Writer, config: Mapping[str, str]) -> None:
    """Copy the files of the folder `from` to the folder `below` of the artifact."""
    for path in sorted(Path(config["from"]).iterdir()):
        target = out.folder / config["below"] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


GIVEN_FILES = Stage("benchmark.given_files", "1", bring)
