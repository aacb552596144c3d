"""The study on two-digit addition: what its pairs hold, and what a run on preferences must declare."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recipes.data import tokenizer
from recipes.runs import checkpoint, preference_scores, reference
from recipes.studies.preferences import addition_dpo, addition_sft
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
