"""The dependency canary: equal environments give equal losses, and each kind of difference is found."""

import sys
from pathlib import Path

import dagster as dg
import pytest
from small_runs import small_run

from marin_assets.dependency_canary import CANDIDATE, Side, compare_environments, dependency_canary_asset, difference
from resources.lab import Lab

HERE = Side("python", {"jax": "1", "numpy": "2"}, {1: 3.0, 2: 2.5, 3: 2.0}, 1000.0)


def test_equal_sides_have_no_difference() -> None:
    found = difference(HERE, HERE)
    assert (found.first_step, found.largest_nats, found.speed_ratio, found.packages) == (None, 0.0, 1.0, {})


@pytest.mark.parametrize(
    ("losses", "first", "largest"),
    [
        ({1: 3.0, 2: 2.5, 3: 2.0000000000000004}, 3, 4.4e-16),
        ({1: 3.0, 2: 2.75, 3: 1.5}, 2, 0.5),
        ({1: 3.0, 2: 2.5}, 3, float("inf")),
        ({1: 3.0, 2: float("nan"), 3: 2.0}, 2, float("inf")),
    ],
)
def test_the_first_step_that_differs_is_named(losses: dict[int, float], first: int, largest: float) -> None:
    found = difference(HERE, Side("other", {"jax": "1", "numpy": "3", "new": "1"}, losses, 500.0))
    assert found.first_step == first and found.largest_nats == pytest.approx(largest, rel=0.1)
    assert found.packages == {"numpy": ("2", "3"), "new": (None, "1")} and not found.is_fast


@pytest.mark.slow
def test_the_other_environment_runs_the_same_task(tmp_path: Path) -> None:
    """The other interpreter is a script that leaves a mark and then starts this one: equal to the bit, and it was used."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho "$2" >> {tmp_path}/modules\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    lab = Lab.at(str(tmp_path / "lab"))
    found = compare_environments(lab, str(other), small_run("canary"))
    assert found.first_step is None and found.packages == {} and found.speed_ratio > 0
    assert "trainer" in (tmp_path / "modules").read_text().split()
    assert not list(lab.store.artifacts("runs"))  # both runs were in scratch


def test_an_interpreter_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no_python is no interpreter .* tools/bootstrap\.sh"):
        compare_environments(Lab.at(str(tmp_path)), "no_python", small_run("canary"))


def test_packages_that_the_trainer_cannot_import_are_named_before_anything_trains(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')  # -I: without the checkout on its path
    other.chmod(0o755)
    with pytest.raises(ValueError, match=r"the trainer does not import by .*: ModuleNotFoundError: No module named 'trainer'"):
        compare_environments(Lab.at(str(tmp_path / "lab")), str(other), small_run("canary"))
    assert not (tmp_path / "lab").exists()


def test_without_another_environment_the_checks_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CANDIDATE, raising=False)
    result = dg.materialize([dependency_canary_asset()], resources={"lab": Lab.at(str(tmp_path))})
    checks = result.get_asset_check_evaluations()
    assert result.success and len(checks) == 2
    assert all(not check.passed and str(check.description).startswith("not judged") for check in checks)
