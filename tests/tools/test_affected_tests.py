"""Tests affected by a change, in a small repository."""

import subprocess
from pathlib import Path

import pytest
from affected_tests import changed_files, dependencies, distances, fitting, is_test, tracked_files

FILES = {
    "pkg/__init__.py": "",
    "pkg/ground.py": "X = 1\n",
    "pkg/middle.py": "def f():\n    from pkg.ground import X\n    return X\n",
    "pkg/job/__init__.py": "",
    "pkg/job/__main__.py": "import pkg.ground\n",
    "pkg/stage.py": 'STAGE = Stage("s", "1", job="pkg.job")\n',
    "data/words/english.txt": "a\n",
    "tests/conftest.py": "import helper\n",
    "tests/helper.py": "",
    "tests/lab/world.py": "import pkg.middle\n",
    "tests/a/test_direct.py": "import pkg.ground\n",
    "tests/a/test_through_a_helper.py": "from world import build\n",
    "tests/a/test_job.py": "from pkg import stage\n",
    "tests/a/test_data.py": 'PATH = ROOT / "data" / "words"\n',
    "tests/a/script.py": "",
    "tests/a/test_script.py": 'run("script.py")\n',
    "tests/a/test_alone.py": "import json\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "files"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True)
    return tmp_path


def affected(repository: Path, changed: str) -> dict[str, int]:
    steps = distances(dependencies(repository, tracked_files(repository)), [changed])
    return {Path(name).stem: step for name, step in steps.items() if is_test(name)}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("pkg/ground.py", {"test_direct": 1, "test_through_a_helper": 3, "test_job": 3}),
        ("pkg/middle.py", {"test_through_a_helper": 2}),
        ("data/words/english.txt", {"test_data": 1}),
        ("tests/a/script.py", {"test_script": 1}),
        ("tests/a/test_alone.py", {"test_alone": 0}),
    ],
)
def test_tests_that_depend_on_a_changed_file_are_affected(repository: Path, changed: str, expected: dict[str, int]) -> None:
    assert affected(repository, changed) == expected


def test_a_helper_of_conftest_affects_every_test(repository: Path) -> None:
    assert set(affected(repository, "tests/helper.py")) == {Path(name).stem for name in FILES if is_test(name)}


def test_changed_and_new_files_are_seen_against_main(repository: Path) -> None:
    (repository / "pkg/ground.py").write_text("X = 2\n")
    (repository / "pkg/new.py").write_text("")
    assert changed_files(repository) == {"pkg/ground.py", "pkg/new.py"}


def test_the_nearest_tests_that_fit_into_the_time_are_chosen() -> None:
    assert fitting(["near", "long", "far"], {"near": 2.0, "long": 50.0, "far": 3.0}, 5.0) == ["near", "far"]
