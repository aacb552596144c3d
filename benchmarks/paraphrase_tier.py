"""The optional tier for paraphrases: windows of sentences whose vectors lie near that of a benchmark question.

The n-gram tiers find an item whose words are mostly kept; with a quarter or half of the words changed only the meaning is
left. A document's windows are its runs of 1 to `max_sentences` sentences, as long as the question give or take a factor; a
window matches a question at a cosine of at least `threshold`. What it says is weaker than an n-gram match (two problems about
the same apples are near each other too), so it marks nothing: its matches are to be read. Recall, false positives and the
threshold: benchmarks/paraphrases.py.

Cost: about 50 windows of 25 words a CPU second. It is for a source under suspicion, not for a web crawl.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from datakit.text.byte_spans import byte_spans


class Encoder(Protocol):
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[texts, width] vectors of length 1."""
        ...


_SENTENCE = re.compile(r"\S.*?(?:[.?!:](?=[\s\"”’)])|\n\s*\n|$)", re.DOTALL)


@dataclass(frozen=True)
class ParaphraseConfig:
    threshold: float = 0.9
    """Cosine that matches: chosen on one half of the labelled pairs, measured on the other (benchmarks/paraphrases.py)."""
    max_sentences: int = 4
    length_factor: float = 2.0
    """A window has between 1 / this and this times as many words as the question."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.max_sentences < 1 or self.length_factor < 1:
            raise ValueError(
                f"threshold {self.threshold} must be in 0..1 and not 0, max_sentences {self.max_sentences} and length_factor "
                f"{self.length_factor} at least 1"
            )


@dataclass(frozen=True)
class ParaphraseMatch:
    """The window of a document nearest to a question; the span is bytes of the document in UTF-8."""

    document: int
    question: int
    score: float
    start_byte: int
    end_byte: int


def paraphrase_matches(
    texts: Sequence[str], questions: Sequence[str], encoder: Encoder, config: ParaphraseConfig
) -> list[ParaphraseMatch]:
    """Every question that a document paraphrases, its best window each, ordered by (document, question)."""
    if not questions:
        return []
    wanted = encoder.encode(questions)
    wanted_words = np.array([len(question.split()) for question in questions])
    matches = []
    for document, text in enumerate(texts):
        spans = windows(text, config.max_sentences)
        words = np.array([len(text[start:end].split()) for start, end in spans], np.int64)
        factor = words[:, None] / wanted_words[None, :]
        near = (factor <= config.length_factor) & (factor >= 1 / config.length_factor)
        rows = np.flatnonzero(near.any(axis=1))
        if not len(rows):
            continue
        cosines = encoder.encode([text[slice(*spans[row])] for row in rows]) @ wanted.T
        cosines = np.where(near[rows], cosines, -1)
        best = cosines.argmax(axis=0)
        matched = np.flatnonzero(cosines.max(axis=0) >= config.threshold).tolist()
        places = byte_spans(text, [spans[rows[best[question]]] for question in matched])
        for question, place in zip(matched, places, strict=True):
            matches.append(ParaphraseMatch(document, question, round(float(cosines[best[question], question]), 4), *place))
    return matches


def windows(text: str, max_sentences: int) -> list[tuple[int, int]]:
    """Character spans of all runs of 1 to `max_sentences` sentences.

    >>> windows("One. Two? Three", 2)
    [(0, 4), (0, 9), (5, 9), (5, 15), (10, 15)]
    """
    sentences = []
    for match in _SENTENCE.finditer(text):
        start = match.start()
        sentences.append((start, start + len(match[0].rstrip())))
    return [
        (start, sentences[last][1])
        for first, (start, _) in enumerate(sentences)
        for last in range(first, min(first + max_sentences, len(sentences)))
    ]
