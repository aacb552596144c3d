"""Checks over the iterations of a run: each speaks for the disorder that it is named after."""

import pytest

from post_training import checks

HEALTHY = {
    "reward": 0.4, "right": 0.4, "dead_groups": 0.3, "length": 4.0, "entropy": 0.4, "mismatch": 1e-6, "kl": 1.0,
}  # fmt: skip
JUDGES = {
    "groups": checks.judge_groups,
    "kl": checks.judge_kl,
    "length": checks.judge_length,
    "entropy": checks.judge_entropy,
}


@pytest.mark.parametrize(
    ("disorder", "speaks"),
    [
        ({}, set()),
        ({"dead_groups": 0.97, "reward": 0.01}, {"groups"}),
        ({"dead_groups": 0.97, "reward": 0.99}, set()),
        ({"kl": 14.5}, {"kl"}),
        ({"kl": float("nan")}, {"kl"}),
        ({"length": 9.0}, {"length"}),
        ({"length": 1.5}, {"length"}),
        ({"entropy": 0.001}, {"entropy"}),
    ],
)
def test_a_run_that_goes_wrong_is_named(disorder: dict, speaks: set[str]) -> None:
    facts = [HEALTHY] * 20 + [HEALTHY | disorder] * 20
    assert {name for name, judge in JUDGES.items() if judge(facts)[0] != "passed"} == speaks


def test_one_strange_iteration_is_no_alarm() -> None:
    facts = [HEALTHY] * 20 + [HEALTHY | {"kl": 60.0, "length": 9.0, "dead_groups": 1.0, "reward": 0.0}] + [HEALTHY] * 20
    assert all(judge(facts)[0] == "passed" for judge in JUDGES.values())


def test_a_run_without_a_reference_has_no_distance() -> None:
    without = {name: value for name, value in HEALTHY.items() if name != "kl"}
    assert checks.judge_kl([without] * 3) == ("passed", "the run has no reference")
