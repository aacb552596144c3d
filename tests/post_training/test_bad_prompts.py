"""Prompts that a run cannot use: too long ones are dropped and counted, held-out ones are refused."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from small_rewards import learner, store_at, tokenizer

from lineage.artifact.store import Artifact
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.stage import Stage
from lineage.writing.writer import Writer
from post_training.asking import EncodedPrompts, Words
from post_training.environments.prompt import Prompt, graded
from post_training.environments.table import write_prompts
from post_training.rollouts import Drawn, rollout_table


@dataclass(frozen=True)
class Lengths:
    """Prompts of so many letters; the last one is held out."""

    lengths: tuple[int, ...] = (2, 5, 9, 30, 4)


def write_lengths(out: Writer, config: Lengths) -> None:
    last = len(config.lengths) - 1
    splits = ["held_out" if number == last else "train" for number in range(last + 1)]
    write_prompts(out, [Prompt(f"p{n}", splits[n], "x" * length, "") for n, length in enumerate(config.lengths)])  # type: ignore[arg-type]


def opened(root: Path) -> tuple[Artifact, Words]:
    store = store_at(root)
    stage = Stage("tests.lengths", "1", write_lengths)
    return build(store, Node(("environments", "lengths"), None, stage, Lengths())).artifact, Words.of(
        build(store, tokenizer()).artifact
    )


@pytest.mark.parametrize(("longest", "kept", "too_long"), [(31, 4, 0), (10, 3, 1), (9, 2, 2), (3, 1, 3)])
def test_prompts_without_room_for_a_completion_are_dropped_and_counted(
    longest: int, kept: int, too_long: int, tmp_path: Path
) -> None:
    """A prompt of n letters has n + 1 tokens."""
    environment, words = opened(tmp_path)
    asked = EncodedPrompts.of(environment, "train", words, longest)
    assert (len(asked.prompts), asked.too_long) == (kept, too_long)
    assert all(len(tokens) <= longest for tokens in asked.tokens)


def test_an_environment_whose_prompts_are_all_too_long_is_refused(tmp_path: Path) -> None:
    environment, words = opened(tmp_path)
    with pytest.raises(ValueError, match="the shortest has 3 tokens, 2 fit before a completion"):
        EncodedPrompts.of(environment, "train", words, 2)


def test_a_run_does_not_learn_from_a_held_out_prompt() -> None:
    spec = learner()
    rows = spec.sampling.rows
    asked = [Prompt(str(number), "train", "1+1=", "02") for number in range(rows - 1)]
    asked.append(Prompt("9+9", "held_out", "9+9=", "18"))
    ones, zeros = np.ones(rows, np.int32), np.zeros((rows, 4), np.float32)
    drawn = Drawn(zeros.astype(np.int32), ones, ones + 1, ones.astype(bool), zeros, zeros, zeros)
    with pytest.raises(ValueError, match="prompt '9\\+9' is held out; only train prompts are rolled out"):
        rollout_table(spec, 0, ("digest", 0), asked, drawn, ["02"] * rows, [graded(True)] * rows)
