"""The wheel: every import rewritten, code with the fingerprints of the checkout, and a second lab that runs it."""

import ast
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from build_wheel import build, metadata, package_names, rewritten
from small import repository

from lineage.trust.fingerprint import stage_code
from recipes.stages import stages

PACKAGES = package_names(tomllib.loads((repository() / "pyproject.toml").read_text()))
FINGERPRINTS = """
import json, sys
from marin_lab.lineage.trust.fingerprint import stage_code
from marin_lab.recipes.stages import stages
ours = set(PACKAGES) & {name.partition(".")[0] for name in sys.modules}
print(json.dumps([sorted(ours), {name: stage_code(stage.module).fingerprint for name, stage in stages().items()}]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def imported(module: ast.Module) -> set[str]:
    names = {node.module or "" for node in ast.walk(module) if isinstance(node, ast.ImportFrom)}
    return names | {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}


def test_no_module_of_the_wheel_imports_a_package_by_its_own_name(site: Path) -> None:
    for path in site.rglob("*.py"):
        tops = {name.partition(".")[0] for name in imported(ast.parse(path.read_text()))}
        assert not tops & set(PACKAGES), path


def test_strings_and_comments_stay_as_they_are() -> None:
    source = 'from datakit.text import words  # from datakit.text\nSTAGE = "datakit.raw"\n'
    assert rewritten(source, PACKAGES, "x.py") == source.replace("from datakit", "from marin_lab.datakit", 1)


def test_an_import_that_would_bind_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x.py:1: write `import datakit.text as NAME`"):
        rewritten("import datakit.text\n", PACKAGES, "x.py")


def test_equal_files_give_equal_bytes(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_needs_what_pyproject_says() -> None:
    facts = tomllib.loads((repository() / "pyproject.toml").read_text())["project"]
    lines = metadata(facts).splitlines()
    assert {f"Requires-Dist: {each}" for each in facts["dependencies"]} <= set(lines)
    assert {f"Provides-Extra: {extra}" for extra in facts["optional-dependencies"]} <= set(lines)


@pytest.mark.slow
def test_stages_of_the_wheel_have_the_fingerprints_of_the_checkout(site: Path, tmp_path: Path) -> None:
    """So an artifact of either is no drifted one for the other."""
    program = FINGERPRINTS.replace("PACKAGES", repr(PACKAGES))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bare, fingerprints = json.loads(done.stdout)
    assert bare == []
    assert fingerprints == {name: stage_code(stage.module).fingerprint for name, stage in stages().items()}
