"""A second lab from the template, in an empty environment: its ferry passes, and its audit reads the first lab's suite.

The environment holds the wheel and what pyproject.toml names, from the package registry in the versions of requirements.lock.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from build_wheel import build as build_wheel
from small import repository

from datakit.sources.roster import registry_reachable
from lineage.artifact.store import Artifact, Store
from lineage.build.plan import build_all
from lineage.trust.verdicts import quarantine
from recipes import ferry as recipe
from recipes.data import suite
from recipes.smoke import smoke_ferry
from recipes.suites import Suite

pytestmark = pytest.mark.slow

type Marin = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The suite that the first lab, this checkout, publishes."""
    store = Store(str(tmp_path_factory.mktemp("first") / "artifacts"))
    return build_all(store, [suite(Suite("vendored", "vendored"))])[0]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel and nothing else that was there before."""
    folder = tmp_path_factory.mktemp("wheel")
    if not registry_reachable(recipe.pins(smoke_ferry()), folder / "downloads"):
        pytest.skip("no package registry can be reached, so there is nothing to install the wheel's needs from")
    locked = (repository() / "requirements.lock").read_text().splitlines()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(line.split(" ")[0] for line in locked if "==" in line and not line.startswith((" ", "#"))))
    ours, python = Path(sys.executable).parent, folder / "venv/bin/python"
    index = os.environ.get("PIP_INDEX_URL") or _output([sys.executable, "-m", "pip", "config", "get", "global.index-url"])
    uv = [str(ours / "uv"), "--quiet", "--system-certs"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder / "venv")], check=True)
    install = ["pip", "install", "--python", str(python), "--constraint", str(constraints)]
    index_url = ["--default-index", index] if index else []
    subprocess.run([*uv, *install, *index_url, str(build_wheel(folder))], check=True)
    return python.parent


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@pytest.fixture
def marin(environment: Path, tmp_path: Path) -> Marin:
    """Runs a command of the wheel in the folder of the second lab, with no setting of this checkout."""
    ours = ("MARIN_", "DAGSTER_", "PYTHON", "VIRTUAL_ENV")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(environment / "marin"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)

    return run


def test_a_second_lab_ferries_and_audits_against_the_first_labs_suite(
    published: Artifact, environment: Path, marin: Marin, tmp_path: Path
) -> None:
    made = marin("init", "--lab", ".")
    assert made.returncode == 0, made.stderr
    listed = subprocess.run(
        ["./marin", "list"], cwd=tmp_path, capture_output=True, text=True, env={"PATH": f"{environment}:/usr/bin:/bin"}
    )
    assert listed.returncode == 0 and "`./marin ferry` makes" in listed.stdout, "what a message names is there"
    _take(published, marin, tmp_path)
    ferry = marin("ferry", "--json")
    assert ferry.returncode == 0, ferry.stderr[-4000:]
    assert json.loads(ferry.stdout)["passed"] is True

    trained = marin("train", "--name", "first", "--json")
    assert trained.returncode == 0, trained.stderr[-4000:]
    assert json.loads(trained.stdout)["audit"] in ("clean", "partial_only")
    (line,) = [line for line in trained.stderr.splitlines() if " eval_suite/vendored " in line]
    assert line.endswith("reused"), "the suite is the first lab's, not one that this lab made"
    mine = Store(str(tmp_path / ".marin/artifacts"))
    (audit,) = mine.artifacts("runs", "first", "contamination_audit")
    suites = [ref for ref in audit.spec.inputs if ref.address.startswith("eval_suite/")]
    assert [(ref.address, ref.data_version) for ref in suites] == [(published.spec.address, published.data_version)]

    assert marin("gate", "first").returncode == 0
    quarantine(published, why="items of another benchmark", who="the first lab")
    again = marin(*_mirror(published), published.data_version)
    assert again.returncode == 0, again.stderr
    refused = marin("gate", "first")
    assert refused.returncode == 1 and "eval_suite/vendored" in refused.stdout + refused.stderr


def _mirror(published: Artifact) -> list[str]:
    places = ["--root", published.store.root, "--into", ".marin/artifacts"]
    return ["storage", "mirror", published.spec.address, *places, "--expect"]


def _take(published: Artifact, marin: Marin, lab: Path) -> None:
    """Copy the published suite by address and digest; a wrong digest copies nothing."""
    refused = marin(*_mirror(published), "0" * len(published.data_version))
    assert refused.returncode == 1 and "nothing was copied" in refused.stderr
    copied = marin(*_mirror(published), published.data_version)
    assert copied.returncode == 0, copied.stderr
    mine = Store(str(lab / ".marin/artifacts"))
    assert [each.spec.address for each in mine.artifacts("eval_suite")] == [published.spec.address], "it is what the lab makes"
