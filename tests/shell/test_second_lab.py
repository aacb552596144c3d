"""A second lab from the template: its ferry passes, and it takes the first lab's published suite by address and digest."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from build_wheel import build as build_wheel

from lineage.artifact.store import Artifact, Store
from lineage.build.plan import ancestors_first, build
from recipes.data import suite
from recipes.suites import Suite


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The suite that the first lab, this checkout, publishes."""
    store = Store(str(tmp_path_factory.mktemp("first") / "artifacts"))
    return [build(store, node).artifact for node in ancestors_first([suite(Suite("vendored", "vendored"))])][-1]


@pytest.mark.slow
def test_a_second_lab_ferries_and_takes_the_first_labs_suite(published: Artifact, tmp_path: Path) -> None:
    site, lab = tmp_path / "site", tmp_path / "second"
    zipfile.ZipFile(build_wheel(tmp_path)).extractall(site)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "DAGSTER_"))}
    environment |= {"PYTHONPATH": str(site)}

    def marin(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "marin_lab.marin_assets.cli", *arguments]
        return subprocess.run(command, cwd=lab, env=environment, capture_output=True, text=True, check=False)

    lab.mkdir()
    made = marin("init", "--lab", ".")
    assert made.returncode == 0, made.stderr
    copy = [
        "storage",
        "mirror",
        published.spec.address,
        "--root",
        published.store.root,
        "--into",
        ".marin/artifacts",
        "--expect",
    ]
    refused = marin(*copy, "0" * len(published.data_version))
    assert refused.returncode == 1 and "nothing was copied" in refused.stderr
    copied = marin(*copy, published.data_version)
    assert copied.returncode == 0, copied.stderr
    taken = marin("materialize", "eval_suite/vendored")
    assert taken.returncode == 0, taken.stderr
    mine = Store(str(lab / ".marin" / "artifacts"))
    assert [each.spec.address for each in mine.artifacts("eval_suite")] == [published.spec.address], "it is what the lab makes"

    ferry = marin("ferry", "--json")
    assert ferry.returncode == 0, ferry.stderr[-4000:]
    assert json.loads(ferry.stdout)["passed"] is True
