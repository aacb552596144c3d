"""What the study says of known numbers of runs on preferences, and that its page shows them."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from scenarios.evidence import Evidence, Teller
from scenarios.preferences import Preferred, judge_preferences
from scenarios.rewards_page import smooth, write_rewards_page


def run(arm: str, accuracy: float, own: float = 1.0, pairs: int = 1600) -> Preferred:
    """A run with these numbers; it is right on its own pairs only at the end."""
    scores = {
        "pairs": pairs, "reward_accuracy": accuracy, "log_prob_accuracy": 0.75, "reference_log_prob_accuracy": 0.712,
        "chosen_log_prob": -1.25, "rejected_log_prob": -9.0, "reference_chosen_log_prob": -2.5, "margin": 4.0,
    }  # fmt: skip
    steps = np.arange(100)
    right = np.where(steps < 50, 0.0, own)
    return Preferred(arm, 3, scores, pl.DataFrame({"step": steps, "accuracy": right, "chosen_log_prob": -steps / 10}))


def judged(*runs: Preferred) -> list[Evidence]:
    teller = Teller(Console(quiet=True), [])
    judge_preferences(runs, teller)
    return teller.kept


@pytest.mark.parametrize(
    ("of", "holds"),
    [
        (run("dpo", 0.9), [True]),
        (run("dpo", 0.899), [False]),
        (run("dpo", 0.99, pairs=999), [False]),
        (run("length", 0.599), [True, True]),
        (run("style", 0.6), [False, True]),
        (run("style", 0.5, own=0.8), [True, False]),
        (run("length", 0.5, pairs=999), [False, True]),
    ],
)
def test_a_learner_must_be_right_and_a_control_must_not_though_it_learned(of: Preferred, holds: list[bool]) -> None:
    assert [each.holds for each in judged(of)] == holds


def test_the_page_has_every_run_and_its_numbers(tmp_path: Path) -> None:
    runs = [run("dpo", 0.987), run("length", 0.512), run("style", 0.423)]
    evidence = judged(*runs)
    assert "98.7% of 1,600" in evidence[0].details and "the base 71.2%" in evidence[0].details
    assert "chosen -2.500 to -1.250 nats" in evidence[0].details
    page = write_rewards_page(tmp_path / "page.html", [], runs, evidence).read_text()
    assert "5 of 5" in page and all(text in page for text in ("98.7%", "51.2%", "42.3%", "dpo 3", "length 3", "style 3"))


def test_a_smoothed_curve_is_the_mean_of_what_came_before() -> None:
    values = np.random.default_rng(0).normal(size=60)
    expected = [values[max(0, end - 20) : end].mean() for end in range(1, 61)]
    assert smooth(values) == pytest.approx(expected)
