"""Splits, verifiers, and what a verifier that breaks does."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from evals.items.item import Item
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from post_training.environments import arithmetic, benchmark, gym
from post_training.environments.prompt import Prompt, Verdict, graded, split_of
from post_training.environments.table import read_prompts
from post_training.environments.verify import verifier_of, verify


def test_addition_has_every_pair_once_and_both_verifiers_accept_its_answers(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    made = build(store, Node(("environments", "addition"), None, arithmetic.ADDITION, arithmetic.Addition())).artifact
    train, held = (read_prompts(made, split) for split in ("train", "held_out"))
    every = [*train, *held]
    assert len({prompt.text for prompt in every}) == len(every) == 10_000
    assert 900 <= len(held) <= 1_100
    assert verifier_of(made) is arithmetic.judge
    for judge in (arithmetic.judge, arithmetic.judge_by_value):
        assert all(verdict.outcome == "right" for verdict in verify(judge, every, [prompt.answer for prompt in every]))


@pytest.mark.parametrize(("text", "right"), [("095", True), ("95", False), ("095 ", False), ("096", False), ("", False)])
def test_addition_is_exact(text: str, right: bool) -> None:
    prompt = Prompt("37+58", "train", "37+58=", "095")
    assert arithmetic.judge([prompt], [text])[0].reward == float(right)


def test_a_split_does_not_move_when_prompts_are_added() -> None:
    small = {p.prompt_id: p.split for p in arithmetic.prompts(arithmetic.Addition(1))}
    assert small == {name: split_of(name, 0.1) for name in small}
    held = {n for n in map(str, range(2000)) if split_of(n, 0.1) == "held_out"}
    assert held <= {n for n in map(str, range(2000)) if split_of(n, 0.2) == "held_out"}


def test_a_verifier_that_raises_fails_that_completion_alone() -> None:
    prompts = [Prompt(str(number), "train", "x", "x") for number in range(4)]

    def judge(asked: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        if "bad" in texts:
            raise RuntimeError("no parse")
        if "nan" in texts:
            return [Verdict("right", {"score": float("nan")})]
        return [graded(True) for _ in texts]

    verdicts = verify(judge, prompts, ["a", "bad", "nan", "b"])
    assert [verdict.outcome for verdict in verdicts] == ["right", "failed", "failed", "right"]
    assert [verdict.reward for verdict in verdicts] == [1.0, None, None, 1.0]
    assert "no parse" in verdicts[1].detail and "finite" in verdicts[2].detail


def test_a_verifier_with_too_few_verdicts_fails_them() -> None:
    prompts = [Prompt(str(number), "train", "x", "x") for number in range(2)]
    assert [each.outcome for each in verify(lambda asked, texts: [], prompts, ["a", "b"])] == ["failed", "failed"]


def item(task: str, **channels: str) -> Item:
    return Item("suite", task, "1", licence="mit", source_digest="0", **channels)  # pyrefly: ignore


def test_worked_answers_are_judged_by_the_maths_grader() -> None:
    asked = item("gsm8k", question="Two and two?", answer="4", solution="It is 2 + 2 = 4.\n#### 4")
    prompts = list(benchmark.prompts(benchmark.Benchmark("gsm8k"), [asked])) * 3
    verdicts = verify(benchmark.judge, prompts, [" So the answer is 4.", " The answer is 5.", " none"])
    assert [verdict.outcome for verdict in verdicts] == ["right", "wrong", "wrong"]


def test_programs_are_judged_by_their_tests_in_the_sandbox() -> None:
    asked = item(
        "mbpp",
        question="Write a function that adds two numbers.",
        answer="",
        solution="def add(a, b):\n    return a + b",
        code="assert add(1, 2) == 3",
    )
    prompts = list(benchmark.prompts(benchmark.Benchmark("mbpp", "tests"), [asked])) * 3
    right, wrong = "```python\ndef add(a, b):\n    return a + b\n```", "```python\ndef add(a, b):\n    return 3 - b\n```"
    verdicts = verify(benchmark.judge, prompts, [right, wrong, ""])
    assert [verdict.outcome for verdict in verdicts] == ["right", "wrong", "wrong"], verdicts


def test_reasoning_gym_scores_its_own_answers() -> None:
    pytest.importorskip("reasoning_gym", reason="needs the extra `gym`")
    prompts = list(gym.prompts(gym.Gym("leg_counting", 6, seed=2)))
    verdicts = verify(gym.judge, prompts, [prompt.answer for prompt in prompts])
    assert [verdict.reward for verdict in verdicts] == [1.0] * 6
    assert verify(gym.judge, prompts[:1], ["-1"])[0].outcome == "wrong"


@pytest.mark.parametrize(
    "make",
    [
        lambda: arithmetic.Addition(4),
        lambda: arithmetic.Addition(2, 0.0),
        lambda: benchmark.Benchmark("gsm8k", "guess"),  # pyrefly: ignore
        lambda: gym.Gym("leg_counting", 1),
        lambda: Verdict("failed", {"right": 0.0}),
        lambda: Verdict("right", {"right": float("inf")}),
    ],
)
def test_bad_configs_are_refused(make) -> None:
    with pytest.raises(ValueError, match=r"must be|allowed|at least"):
        make()
