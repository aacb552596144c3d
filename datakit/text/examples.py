"""Labelled documents that a linear model learns from: their splits, their windows, and the words behind its weights."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import xxhash

from datakit.text.text_features import FeatureConfig, named, windows

HASH_RANGE = 1 << 64


@dataclass(frozen=True)
class Example:
    """One labelled document."""

    source: str
    id: str
    label: str
    text: str


class Training(Protocol):
    """What a config says of splits and windows."""

    @property
    def salt(self) -> str: ...
    @property
    def features(self) -> FeatureConfig: ...
    @property
    def train_windows(self) -> int: ...
    @property
    def calibration_frac(self) -> float: ...
    @property
    def test_frac(self) -> float: ...


def split_of(identity: str, config: Training) -> Literal["train", "calibrate", "test"]:
    """Return the part that a salted hash of a document's id gives it."""
    place = xxhash.xxh3_64_intdigest(f"{config.salt}:{identity}") / HASH_RANGE
    if place < config.test_frac:
        return "test"
    return "calibrate" if place < config.test_frac + config.calibration_frac else "train"


def training_windows(examples: Sequence[Example], config: Training) -> list[tuple[str, str]]:
    """(text, label) of the windows that are learned from, in a hashed order."""
    pieces = [
        (xxhash.xxh3_64_intdigest(f"{config.salt}:{example.id}:{number}"), text, example.label)
        for example in examples
        for number, text in enumerate(_learned(example, config))
    ]
    pieces.sort(key=lambda piece: piece[0])
    return [(text, label) for _, text, label in pieces]


def grams_of_buckets(buckets: np.ndarray, examples: Sequence[Example], config: Training) -> dict[int, str]:
    """Return the word or pair that the learned windows have most often in each bucket; buckets that none falls into are
    absent.
    """
    counted = {int(bucket): Counter[str]() for bucket in buckets}
    for example in examples:
        for text in _learned(example, config):
            for bucket, gram in named(text, buckets, config.features.bits):
                counted[bucket][gram] += 1
    return {bucket: min(grams, key=lambda gram: (-grams[gram], gram)) for bucket, grams in counted.items() if grams}


def _learned(example: Example, config: Training) -> list[str]:
    items, count = windows(example.text, config.features), config.train_windows
    return items if len(items) <= count else [items[i * len(items) // count] for i in range(count)]
