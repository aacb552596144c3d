"""The held-out text file: a run and the perplexity task score the same text equally."""

from pathlib import Path

import numpy as np
import pytest
from test_perplexity import NATS, TASK, corpus
from unigram import START, UnigramScorer, byte_tokenizer

from evals.tasks.heldout_file import heldout_lines
from evals.tasks.perplexity import evaluate_perplexity
from trainer.tagged import bits_per_byte, read_evaluation


def test_bits_per_byte_of_the_file_are_those_of_the_task(tmp_path: Path) -> None:
    corpora = (corpus(tmp_path, "x", "prose", "aaaa bbbb", "c" * 300, "déjà vu"), corpus(tmp_path, "y", "code", "e" * 40))
    path = tmp_path / "heldout.jsonl"
    path.write_text("".join(f"{line}\n" for line in heldout_lines(corpora, byte_tokenizer(), START, TASK)))
    evaluation = read_evaluation(f"{path}@500", len(NATS))
    assert evaluation is not None
    scores, _ = evaluate_perplexity(UnigramScorer(NATS), byte_tokenizer(), START, TASK, corpora, "v", seed=0)
    wanted = {score.task.removeprefix("heldout/"): score.value for score in scores if score.metric == "bits_per_byte"}
    bits = bits_per_byte(UnigramScorer(NATS), evaluation.texts)
    assert {"prose/x", "code/y"} <= wanted.keys() & bits.keys()
    for tag in wanted.keys() & bits.keys():
        np.testing.assert_allclose(bits[tag], wanted[tag], rtol=1e-6, err_msg=tag)


def test_corpora_without_held_out_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no held-out document"):
        list(heldout_lines((corpus(tmp_path, "x", "prose"),), byte_tokenizer(), START, TASK))
