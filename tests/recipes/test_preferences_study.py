"""The study on two-digit addition: what its pairs hold, and what a run on preferences must declare."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recipes.records.run import AtStep
from recipes.runs import checkpoint, preference_scores, reference
from recipes.studies.preferences import ARMS, EARLY, SEED, addition_dpo, addition_sft, preferring
from recipes.tokenized import tokenizer
from trainer.spec.objectives import NextToken

ADDITION = Path(__file__).resolve().parents[2] / "data" / "addition"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress((ADDITION / f"{name}.jsonl.gz").read_bytes()).splitlines()]


def test_right_and_wrong_differ_in_one_digit_and_held_out_prompts_are_nowhere_else() -> None:
    train, held_out, solved = rows("pairs"), rows("pairs_heldout"), rows("solved")
    assert len(held_out) == 1600
    for row in (*train, *held_out):
        a, b = map(int, row["id"].split("+"))
        assert row["prompt"] == f"{a}+{b}=" and row["chosen"] == f"{a + b:03d}"
        assert len(row["chosen"]) == len(row["rejected"])  # length alone says nothing
        assert sum(x != y for x, y in zip(row["chosen"], row["rejected"], strict=True)) == 1
    assert not {row["prompt"] for row in held_out} & {row["prompt"] for row in train}
    assert {row["messages"][0]["content"] for row in solved} == {row["prompt"] for row in train}


@pytest.mark.parametrize("name", ["pairs", "pairs_heldout"])
def test_controls_of_length_and_of_style_are_right_in_half_of_the_pairs(name: str) -> None:
    """Each pair of texts is there as often with its sides exchanged, so a scorer of the answers alone gains nothing."""
    found = Counter((row["chosen"], row["rejected"]) for row in rows(name))
    assert found == Counter((rejected, chosen) for chosen, rejected in found.elements())
    digits = (
        Counter(text for chosen, _ in found.elements() for text in chosen),
        Counter(text for _, rejected in found.elements() for text in rejected),
    )
    assert digits[0] == digits[1]
    scores = {"length": len, "style": lambda text: sum(digits[0][digit] for digit in text)}
    for score in scores.values():
        gained = [np.sign(score(chosen) - score(rejected)) for chosen, rejected in found.elements()]
        assert np.mean([(1 + each) / 2 for each in gained]) == 0.5


def test_the_sides_of_a_control_have_the_same_digits_and_say_nothing_of_right() -> None:
    controls, train = rows("controls"), rows("pairs")
    assert [row["id"] for row in controls] == [row["id"] for row in train]
    right = {row["prompt"]: row["chosen"] for row in train}
    for row in controls:
        text = row["shorter"]
        assert (row["longer"], row["round"], row["square"]) == (f"{text}..", f"({text})", f"[{text}]")
        assert len(row["round"]) == len(row["square"])
    assert np.mean([row["shorter"] == right[row["prompt"]] for row in controls]) == 0.5
    answers = Counter((row["shorter"], row["shorter"] == right[row["prompt"]]) for row in controls)
    assert answers == Counter((text, not known) for text, known in answers.elements()), "no text is right more often than wrong"


def test_arms_of_a_seed_share_start_and_held_out_pairs_and_seeds_share_nothing_trained() -> None:
    for seed in (SEED, 4):
        dpo, *controls = (preferring(arm, EARLY, seed) for arm in ARMS)
        for control in controls:
            assert (control.start, control.evaluation) == (dpo.start, dpo.evaluation)
            assert replace(control.spec, name="") == replace(dpo.spec, name="") and control.sources != dpo.sources
    first, second = preferring(), preferring(seed=4)
    assert addition_dpo() == first and isinstance(first.start, AtStep) and isinstance(second.start, AtStep)
    assert first.start.run.spec.seed != second.start.run.spec.seed and first.data.order_seed != second.data.order_seed


def test_pairs_and_their_reference_share_tokenizer_and_start() -> None:
    run, before = addition_dpo(), addition_sft()
    held_out = run.evaluation.pairs
    assert held_out is not None
    assert tokenizer(run.tokens) == tokenizer(before.tokens) == tokenizer(held_out)
    node = checkpoint(run, run.spec.num_steps)
    assert node.inputs["reference"] == reference(run, run.tokens)
    start = checkpoint(before, before.spec.num_steps)
    assert node.inputs["start"] == start == reference(run, held_out).inputs["checkpoint"]
    assert preference_scores(run, run.spec.num_steps).inputs["reference"] == reference(run, held_out)


def test_an_objective_and_the_format_of_its_tokens_must_fit() -> None:
    run, before = addition_dpo(), addition_sft()
    for change in (
        lambda: replace(run, spec=replace(run.spec, objective=NextToken())),
        lambda: replace(run, data=before.data),
        lambda: replace(before, evaluation=run.evaluation),
        lambda: replace(run, spec=replace(run.spec, seq_len=30)),
    ):
        with pytest.raises(ValueError, match="dpo reads the format 'preferences' with side_tokens of half seq_len"):
            change()
