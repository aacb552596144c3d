"""pass@k: the estimator, its intervals, and tasks whose items have several samples, in process and over HTTP."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_models import SETTINGS, serving, untrained

from evals.items.item import Item
from evals.items.stage import TaskSpec
from evals.remote.model import Endpoint, RemoteGenerator
from evals.sandbox.run import Limits
from evals.scoring.metrics import better
from evals.scoring.pass_at_k import SHOWN, pass_at_k, pass_curve
from evals.scoring.plots import pass_at_k_png
from evals.tasks.generator import EngineGenerator, Generated, scheduling
from evals.tasks.sampled import evaluate_samples, item_seed
from serving.broker.client import Record
from serving.server.sampling import Sampling


@given(st.integers(1, 128), st.data())
def test_the_estimate_is_the_exact_ratio_of_binomials(n: int, data) -> None:
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(math.comb(n - right, k), math.comb(n, k))
    assert pass_at_k(n, right, k) == pytest.approx(float(exact), rel=1e-12, abs=1e-15)


def test_the_estimate_is_the_share_of_subsets_with_a_right_sample() -> None:
    """All subsets of k of 7 samples, counted."""
    for right, k in itertools.product(range(8), range(1, 8)):
        subsets = list(itertools.combinations([True] * right + [False] * (7 - right), k))
        assert pass_at_k(7, right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_the_estimate_is_unbiased_where_the_plug_in_is_not() -> None:
    """1,000 draws of 8 samples with success .1: the mean is near 1 - .9^4, and 1 - (1 - c/n)^4 is well below it."""
    right = np.random.default_rng(0).binomial(8, 0.1, size=20_000)
    truth, estimates = 1 - 0.9**4, np.array([pass_at_k(8, int(c), 4) for c in right])
    spread = 4 * estimates.std() / math.sqrt(len(right))
    assert abs(estimates.mean() - truth) < spread
    assert abs((1 - (1 - right / 8) ** 4).mean() - truth) > spread


@pytest.mark.parametrize(("n", "right", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 0), (4, 1, 5)])
def test_impossible_counts_are_refused(n, right, k) -> None:
    with pytest.raises(ValueError, match=f"{right} right of {n} samples give no pass@{k}"):
        pass_at_k(n, right, k)


def test_a_curve_rises_and_its_intervals_cover_the_truth() -> None:
    """100 draws of 60 problems: the 95 % interval of pass@4 holds the true mean in at least 85 of them."""
    rng, held = np.random.default_rng(1), 0
    chances = rng.beta(1, 4, size=100_000)
    truth = (1 - (1 - chances) ** 4).mean()
    for seed in range(100):
        curve = pass_curve("t", 16, rng.binomial(16, rng.choice(chances, 60)).tolist(), seed)
        assert list(curve.values) == sorted(curve.values)
        assert all(low <= value <= high for low, value, high in zip(curve.lows, curve.values, curve.highs, strict=True))
        held += curve.lows[3] <= truth <= curve.highs[3]
    assert held >= 85
    assert [score.metric for score in curve.scores()] == [f"pass_at_{k}" for k in (1, 2, 4, 8, 16)]
    assert better("pass_at_16") == "higher"


def test_a_curve_of_one_problem_has_no_width_and_of_none_no_value() -> None:
    curve = pass_curve("t", 4, [2], seed=0)
    assert curve.values == curve.lows == curve.highs and curve.values[0] == 0.5
    with pytest.raises(ValueError, match=r"task t: pass@k of no problem"):
        pass_curve("t", 4, [], seed=0)


@dataclass(frozen=True)
class ByHeart:
    """Gives the same texts as samples of every prompt."""

    texts: tuple[str, ...]

    def generate(self, prompts: Sequence[str], stops: Sequence[str], max_tokens: int) -> list[Generated]:
        raise AssertionError("a task with several samples asks for none that is greedy")

    def sample(self, prompts, stops, max_tokens, sampling, count, seeds) -> list[list[Generated]]:
        assert sampling == Sampling(0.8, 0.95) and len(set(seeds)) == len(prompts) and count == len(self.texts)
        return [[Generated(text, "stop", 3, 0) for text in self.texts] for _ in prompts]


def test_programs_and_answers_are_judged_by_sample() -> None:
    code = "assert f(2) == 4\n"
    items = [Item("s", "mbpp", str(i), f"Q{i}?", "", "MIT", "d", code=code) for i in range(2)]
    spec = TaskSpec("mbpp_k", "program", items="mbpp", style="lm_eval", samples=4, temperature=0.8, top_p=0.95)
    right, wrong = "```python\ndef f(x): return x * x\n```", "def f(x): return 0"
    scores, records, curve = evaluate_samples(
        ByHeart((right, wrong, "", right)), spec, items, "version", 0, limits=Limits(wall_seconds=60)
    )
    assert curve.values == pytest.approx((1 / 2, 5 / 6, 1.0, 1.0))
    found = {score.metric: score.value for score in scores}
    assert found == pytest.approx({"pass_at_1": 0.5, "pass_at_2": 5 / 6, "pass_at_4": 1.0, "unparsed": 0.25, "cut_off": 0.0})
    outputs = json.loads(records[0].outputs)
    assert outputs["seed"] == item_seed(0, "mbpp_k", "0") != json.loads(records[1].outputs)["seed"]
    assert [sample["correct"] for sample in outputs["samples"]] == [True, False, None, True]
    assert (records[0].correct, records[0].continuations[1], records[0].policy[-2:]) == (False, wrong, "x4")


def test_samples_over_http_are_those_of_this_process(tmp_path: Path) -> None:
    """One seed, one sampler: texts agree, and a rerun gives the same ones."""
    served, prompts, seeds = untrained("m"), ["The caf", "no, the square"], [5, 6]
    asked = (prompts, ["q"], 6, Sampling(0.9, 0.9), 3, seeds)
    with scheduling(served) as scheduler:
        here = EngineGenerator(served, scheduler).sample(*asked)
    assert len({text.text for texts in here for text in texts}) > 2
    with serving(served, SETTINGS) as client:
        endpoint = Endpoint(client.url(""), "m", Record(tmp_path / "record.jsonl"))
        remote = RemoteGenerator(endpoint, served.config.max_seq_len, served.tokenizer, served.start_token)
        there = remote.sample(*asked)
    assert [[text.text for text in texts] for texts in there] == [[text.text for text in texts] for texts in here]
    assert there == here


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 129, "temperature": 1.0}, "samples is 129; 1 to 128 are allowed"),
        (
            {"samples": 4},
            "samples is 4 with kind program and temperature 0.0; several samples need a kind of generation, program",
        ),
        ({"samples": 4, "temperature": 1.0, "kind": "gold_bpb"}, "samples is 4 with kind gold_bpb"),
        ({"temperature": 0.5}, "temperature is 0.5 and top_p 1.0 with one sample, which is greedy"),
        ({"samples": 4, "temperature": 1.0, "top_p": 0.0}, "top_p is 0.0; above 0 and at most 1"),
    ],
)
def test_a_task_that_cannot_be_sampled_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskSpec(**{"name": "t", "kind": "program", **fields})


def test_a_curve_is_drawn_and_written(tmp_path: Path) -> None:
    curve = pass_curve("humaneval", 128, [0, 1, 5, 128], seed=0).to_json()
    assert len(curve["values"]) == 128 and curve["problems"] == 4
    assert json.loads(json.dumps(curve)) == curve | {name: list(curve[name]) for name in ("values", "lows", "highs")}
    pass_at_k_png([curve], "title", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert SHOWN[-1] == 128
