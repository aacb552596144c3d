"""fastText as the back-end of a scorer: its training input, its model file, and its logits.

It is an optional package (docs/dependencies.md), imported only if a scorer asks for it. Its tokens are words and word
pairs (`of_the`): there is no hashing and there are no subwords, so a model's words can be read.

It uses one thread, a fixed seed, and initial vectors that we write, so the same seeds give the same bytes (on one kind
of machine). By itself the wheel fills a tenth of its matrix and trains on arbitrary memory in the rest: three runs with
one thread and one seed gave three models, and about half of the runs ended in "Encountered NaN" (2026-11-23). With
several threads its updates race.
"""

import importlib
import importlib.metadata
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from datakit.text.folding import fold
from datakit.text.text_features import PROBE, WindowLogits
from datakit.text.word_kinds import split_words

PACKAGE, VERSION = "fasttext-numpy2-wheel", "0.9.2"
"""Another version is another training: to change it, raise the version of the stage `datakit.scorer`."""

MODEL_FILE = "fasttext.bin"
DIMENSIONS = 16
"""Size of a vector. Two labels need few dimensions, and initial vectors are passed to fastText as text (about 9 bytes a
number).
"""

MIN_WINDOWS = 2
"""A word or pair in fewer windows is not learned."""

SEED = 1
END_OF_LINE = "</s>"
"""fastText's own token, which ends every line."""

LABEL = "__label__"


def check_installed(scorer: str) -> None:
    """Check the package. Raises: ModuleNotFoundError naming the extra to install; ValueError for another version than
    models are trained with.
    """
    install = f".venv/bin/python -m pip install {PACKAGE}=={VERSION}"
    try:
        installed = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            f"scorer {scorer}: the back-end 'fasttext' needs {PACKAGE} {VERSION} of the extra `datatrove` "
            f"(pyproject.toml), which is not installed: {install}; or take the back-end 'hashed'"
        ) from None
    if installed != VERSION:
        raise ValueError(
            f"scorer {scorer}: {PACKAGE} {installed} is installed, and models are trained and read with {VERSION}: {install}"
        )


def tokens(text: str) -> list[str]:
    """Return folded words, then pairs of neighbours.

    >>> tokens("One, two; THREE")
    ['one', 'two', 'three', 'one_two', 'two_three']
    """
    words = split_words(fold(text))
    return [*words, *(f"{first}_{second}" for first, second in pairwise(words))]


def probe() -> str:
    """Return a digest of the tokens of one sentence: a model that learned from other tokens is invalid."""
    return xxhash.xxh3_64_hexdigest(" ".join(tokens(PROBE)))


def train(
    pieces: Sequence[tuple[str, bool]], epochs: int, learning_rate: float, model: Path, scratch: Path
) -> list[tuple[str, float, int]]:
    """Learn from windows (text, is positive) in order and write the model file.

    Return every token with what it adds to a window's logit (times its share of the window's tokens), and the number of
    windows that hold it. Raises: RuntimeError of fastText if training diverges: lower the learning rate.
    """
    lines = [tokens(text) for text, _ in pieces]
    standing = Counter(token for line in lines for token in set(line))
    known = {token for token, count in standing.items() if count >= MIN_WINDOWS}
    scratch.mkdir(parents=True, exist_ok=True)
    examples, vectors = scratch / "fasttext.txt", scratch / "fasttext.vec"
    with examples.open("w", encoding="utf-8") as out:
        for line, (_, is_positive) in zip(lines, pieces, strict=True):
            out.write(" ".join([_label(is_positive), *(token for token in line if token in known)]) + "\n")
    with vectors.open("w", encoding="utf-8") as out:
        out.writelines(_initial_vectors([*sorted(known), END_OF_LINE]))
    trained = _module().train_supervised(
        input=str(examples),
        pretrainedVectors=str(vectors),
        dim=DIMENSIONS,
        epoch=epochs,
        lr=learning_rate,
        minCount=1,
        wordNgrams=1,
        bucket=0,
        thread=1,
        seed=SEED,
        verbose=0,
    )
    trained.save_model(str(model))
    outputs = np.array(trained.f.getOutputMatrix(), np.float64)
    axis = outputs[trained.labels.index(_label(True))] - outputs[trained.labels.index(_label(False))]
    effects = np.array(trained.f.getInputMatrix(), np.float64) @ axis
    return [
        (token, float(effect), standing[token]) for token, effect in zip(trained.words, effects, strict=True) if token in known
    ]


def load(model: Path) -> WindowLogits:
    """Return logits by a model file. Raises: what fastText raises for a file that is none of its models."""
    trained = _module()._FastText(str(model))

    def logit(text: str) -> float:
        probabilities = {label: share for share, label in trained.f.predict(" ".join(tokens(text)) + "\n", 2, 0.0, "strict")}
        return math.log(probabilities[_label(True)]) - math.log(probabilities[_label(False)])

    return lambda texts: np.array([logit(text) for text in texts], np.float64)


def _module() -> Any:
    """Import the binding; `fasttext` itself warns on import and wraps the same names."""
    return importlib.import_module("fasttext.FastText")


def _label(is_positive: bool) -> str:
    return LABEL + ("positive" if is_positive else "negative")


def _initial_vectors(names: Sequence[str]) -> Iterator[str]:
    """Write the text format of fastText's vectors, uniform in +-1/dimensions as its own."""
    vectors = np.random.default_rng(SEED).uniform(-1 / DIMENSIONS, 1 / DIMENSIONS, (len(names), DIMENSIONS))
    yield f"{len(names)} {DIMENSIONS}\n"
    for name, vector in zip(names, vectors.tolist(), strict=True):
        yield f"{name} {' '.join(f'{value:.6f}' for value in vector)}\n"
