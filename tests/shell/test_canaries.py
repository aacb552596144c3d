"""Canaries: one factory for any hardware, bands from recorded runs, and checks that say what they cannot judge."""

import dagster as dg
import pytest

from marin_assets.canary import loss_check, throughput_check
from marin_assets.definitions import build_defs
from recipes.canary import Canary, RecordedRun, canary, canary_run
from recipes.lab import load
from recipes.runs import checkpoint
from recipes.smoke import smoke_ferry
from recipes.study import Study
from resources.lab import lab_from_environment

DAY = "2026-11-20"
RUNS = (RecordedRun("2026-11-01", 4.0, "a test"), RecordedRun("2026-11-02", 5.0, "a test"))
CANARY = Canary("cpu", RUNS, margin=0.25, min_throughput_ratio=0.8)


@pytest.mark.parametrize(("loss", "passed"), [(2.99, False), (3.0, True), (6.25, True), (6.26, False), (float("nan"), False)])
def test_the_canary_fails_outside_the_band_of_its_recorded_runs(loss: float, passed: bool) -> None:
    assert loss_check(CANARY, loss).passed is passed


def test_without_a_recorded_run_the_check_says_that_nobody_judged_the_loss() -> None:
    check = loss_check(canary("h100x8"), 5.5)
    assert not check.passed and check.severity is dg.AssetCheckSeverity.WARN  # it warns, and blocks nothing
    assert "no run on h100x8 is recorded" in str(check.description)


def test_one_factory_makes_the_canary_of_any_hardware() -> None:
    names = ("cpu", "h100x8", "v5p-8")
    declared = load({"more": lambda: Study("q", canaries=("h100x8", "v5p-8", "v5p-32", "abacus"))})
    assert [each.hardware for each in declared.canaries] == list(names)
    assert [(each.name, each.error.partition(";")[0]) for each in declared.broken] == [
        ("canary_v5p-32", "ValueError: canary on v5p-32: its batch of 8 sequences cannot be divided among 16 chips"),
        ("canary_abacus", "ValueError: hardware 'abacus' is not known"),
    ]
    definitions = build_defs(lab_from_environment(), ferry=smoke_ferry(), declared=declared)
    keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    for name, campaign in zip(names, ("canary_cpu", "canary_h100x8", "canary_v5p_8"), strict=True):
        assert {f"canary/{name}", f"canary/{name}/checkpoint", f"operations/{campaign}_pass_rate"} <= keys
        assert definitions.resolve_job_def(campaign).partitions_def is not None
        assert canary_run(name, DAY).execution.hardware == (name,)
    tasks = [checkpoint(canary_run(name, DAY), 300) for name in names]
    assert all(task.inputs == tasks[0].inputs for task in tasks)


def test_a_slow_canary_is_a_warning_and_never_from_too_few_runs() -> None:
    slow = throughput_check(CANARY, speed=700.0, earlier=[1000.0, 990.0, 1010.0])
    assert not slow.passed
    assert slow.severity is dg.AssetCheckSeverity.WARN
    assert throughput_check(CANARY, speed=1.0, earlier=[1000.0, 1000.0]).passed
    assert throughput_check(CANARY, speed=810.0, earlier=[1000.0, 10.0, 1001.0]).passed
