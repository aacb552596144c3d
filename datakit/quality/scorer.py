"""The stage `datakit.scorer`: a quality score learned from labelled seeds by logistic regression on hashed words and
word pairs.

It is linear, in numpy, and trains in seconds, with weights that can be read and the same bytes for the same seeds. On
the same seeds it ranked better than fastText (AUC .997 to .988), which also aborted on short texts (why:
`datakit/quality/fasttext_scorer.py`). It learns whatever separates the seeds, topic included: read its top weights.

`backend="fasttext"` trains fastText instead (`datakit/quality/fasttext_scorer.py`, an optional package) on the same
windows of the same split. Ranking and calibration are measured in the same way, so the two manifests can be compared.

The model is JSON (`datakit/quality/scorer_model.py`): for `reference_prose` 164,077 of 262,144 weights are not zero,
3.5 MB, read in .07 s once a process (1.0 MB and about a millisecond as an array; 2026-11-23). fastText on the same
1,090 seeds: AUC .986 to our .998 on 109 held-out ones, accuracy .991 to .982, calibration error .046 to .036, 5.9 MB,
trained in 2.8 s to 1.6.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from datakit.quality import fasttext_scorer
from datakit.quality.calibration import auc, expected_calibration_error, fitted_platt, reliability, sigmoid
from datakit.quality.scorer_model import (
    BACKENDS,
    Backend,
    document_logits,
    fasttext_part,
    hashed_logits,
    hashed_part,
    write_scorer,
)
from datakit.quality.seeds import LabelledSeed, Seed, seed_examples
from datakit.quality.verdicts import FOLDER as QUALITY_FOLDER
from datakit.text.examples import Example, grams_of_buckets, split_of, training_windows
from datakit.text.text_features import FeatureConfig, WindowLogits, hashed
from lineage.artifact.store import Artifact
from lineage.shards.run import SCRATCH_FOLDER
from lineage.stage import Stage
from lineage.writing.writer import Writer

log = logging.getLogger(__name__)

TOP_FEATURES = 25


@dataclass(frozen=True)
class ScorerConfig:
    """Seeds, features and training."""

    name: str
    seeds: tuple[Seed | LabelledSeed, ...]
    features: FeatureConfig = field(default_factory=FeatureConfig)
    epochs: int = 5
    learning_rate: float = 0.5
    batch_windows: int = 128
    """Learning rate of `hashed`; fastText takes a step for each window."""

    train_windows: int = 4
    """Windows of one document used in training, so that long documents do not outweigh short ones."""

    calibration_frac: float = 0.1
    test_frac: float = 0.1
    salt: str = "scorer-1"
    backend: Backend = field(default="hashed", metadata={"added_later": True})
    """`fasttext` needs the extra `datatrove`, and takes no `features.bits`."""

    def __post_init__(self) -> None:
        labels = {seed.label for seed in self.seeds if isinstance(seed, Seed)}
        if not self.labelled and labels != {"positive", "negative"}:
            raise ValueError(f"scorer {self.name}: its seeds have the labels {sorted(labels)}; both are needed")
        if self.backend not in BACKENDS:
            raise ValueError(f"scorer {self.name}: backend is {self.backend!r}; it must be one of {', '.join(BACKENDS)}")
        for name in ("calibration_frac", "test_frac"):
            if not 0 < getattr(self, name) < 0.5:
                raise ValueError(f"scorer {self.name}: {name} is {getattr(self, name)}; it must be above 0 and below 0.5")

    @property
    def sources(self) -> tuple[str, ...]:
        """Return sources of the seeds without labels, each once, in their order: the order of the stage's inputs."""
        return tuple(dict.fromkeys(seed.source for seed in self.seeds if isinstance(seed, Seed)))

    @property
    def labelled(self) -> tuple[LabelledSeed, ...]:
        """Return the seeds that a model labelled, in their order: that of the stage's input `labels`."""
        return tuple(seed for seed in self.seeds if isinstance(seed, LabelledSeed))


def train_scorer(
    out: Writer,
    config: ScorerConfig,
    normalized: tuple[Artifact, ...] = (),
    quality: tuple[Artifact, ...] = (),
    labels: tuple[Artifact, ...] = (),
) -> None:
    """Write `scorer.json`, and `fasttext.bin` if that is the back-end. `labels`: of each labelled seed.

    Raises: ValueError if a seed or a split is empty; ModuleNotFoundError, before seeds are read, for a back-end that is
    not installed.
    """
    if config.backend == "fasttext":
        fasttext_scorer.check_installed(config.name)
    log.info("scorer %s: the back-end is %s", config.name, config.backend)
    examples = seed_examples(config.seeds, config.sources, normalized, quality, QUALITY_FOLDER, labels)
    parts: dict[str, list[Example]] = {"train": [], "calibrate": [], "test": []}
    for example in examples:
        parts[split_of(example.id, config)].append(example)
    for name, members in parts.items():
        if len({example.label for example in members}) < 2:
            raise ValueError(f"scorer {config.name}: of {len(members)} {name} seeds not both labels are there; give it more")
    trained = (_hashed if config.backend == "hashed" else _fasttext)(out, parts["train"], config)
    logits, truth = {}, {}
    for name in ("calibrate", "test"):
        logits[name] = document_logits([e.text for e in parts[name]], trained.logits, config.features)
        truth[name] = np.array([e.label == "positive" for e in parts[name]])
    platt = fitted_platt(logits["calibrate"], truth["calibrate"])
    table = reliability(platt.probability(logits["test"]), truth["test"])
    raw = expected_calibration_error(reliability(sigmoid(logits["test"]), truth["test"]))
    out.extra["scorer"] = {
        "name": config.name,
        "backend": config.backend,
        "auc": round(auc(logits["test"], truth["test"]), 6),
        "accuracy": round(float(((platt.probability(logits["test"]) >= 0.5) == truth["test"]).mean()), 6),
        "expected_calibration_error": round(expected_calibration_error(table), 6),
        "expected_calibration_error_uncalibrated": round(raw, 6),
        "documents": {name: len(members) for name, members in parts.items()},
        "seeds": _seed_counts(examples),
        "judges": [{"source": each.input("normalized").spec.config["source"], **_judge(each)} for each in labels],
        "reliability": table,
        "top": trained.top,
    }
    write_scorer(out.folder, config.name, config.backend, config.features, platt, trained.learned)
    out.record(rows_in=len(examples), rows_out=len(examples))


SCORER = Stage(
    "datakit.scorer",
    "4",
    train_scorer,
    description="A quality scorer: its ranking and calibration on held-out seeds, and its heaviest words.",
    checks=("file_set",),
)
"""4: words are folded (`datakit.text.folding`). 3: one file, `scorer.json`, whatever the back-end. 2: words are those of
any script (`datakit.text.word_kinds`).
"""


@dataclass(frozen=True)
class Trained:
    """What a back-end learned from the seeds."""

    logits: WindowLogits
    learned: dict[str, Any]
    """Its part of `scorer.json`."""

    top: dict[str, list[dict[str, Any]]]
    """The words and pairs that change scores most, by side."""


def _hashed(out: Writer, examples: Sequence[Example], config: ScorerConfig) -> Trained:
    weights, frequency = fit(examples, config)
    top = top_features(weights, frequency, examples, config)
    return Trained(hashed_logits(weights, config.features.bits), hashed_part(weights), top)


def _fasttext(out: Writer, examples: Sequence[Example], config: ScorerConfig) -> Trained:
    model = out.folder / fasttext_scorer.MODEL_FILE
    pieces = [(text, label == "positive") for text, label in training_windows(examples, config)]
    effects = fasttext_scorer.train(pieces, config.epochs, config.learning_rate, model, out.folder / SCRATCH_FOLDER)
    order = sorted(effects, key=lambda row: (row[1] * row[2], row[0]))
    top = {
        side: [
            {"feature": token.replace("_", " "), "weight": round(effect, 4), "windows": standing}
            for token, effect, standing in rows[:TOP_FEATURES]
        ]
        for side, rows in (("negative", order), ("positive", order[::-1]))
    }
    return Trained(fasttext_scorer.load(model), fasttext_part(), top)


def fit(examples: Sequence[Example], config: ScorerConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return weights, float32 [2**bits], and in how many windows each bucket occurs.

    It runs AdaGrad over batches of windows in a hashed order; both labels have equal weight. No step depends on
    threads: only sparse products and element-wise arithmetic.
    """
    pieces = training_windows(examples, config)
    labels = np.array([label == "positive" for _, label in pieces])
    balance = np.where(labels, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
    matrix = hashed([text for text, _ in pieces], config.features.bits)
    weights, squares = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], 1e-8)
    for _ in range(config.epochs):
        for start in range(0, len(pieces), config.batch_windows):
            batch = slice(start, start + config.batch_windows)
            rows = matrix[batch]
            error = (sigmoid(rows @ weights) - labels[batch]) * balance[batch]
            gradient = error @ rows
            squares += gradient**2
            weights -= config.learning_rate * gradient / np.sqrt(squares)
    return weights.astype(np.float32), np.bincount(matrix.indices, minlength=weights.size)


def top_features(
    weights: np.ndarray, frequency: np.ndarray, examples: Sequence[Example], config: ScorerConfig
) -> dict[str, list[dict[str, Any]]]:
    """Return the words and pairs that change scores most, by weight times windows; the most frequent of those that
    share a bucket.
    """
    order = np.argsort(weights * frequency, kind="stable")
    shown = {"negative": order[:TOP_FEATURES], "positive": order[::-1][:TOP_FEATURES]}
    grams = grams_of_buckets(np.concatenate(list(shown.values())), examples, config)
    return {
        side: [
            {"feature": grams[int(b)], "weight": round(float(weights[b]), 4), "windows": int(frequency[b])}
            for b in buckets
            if int(b) in grams
        ]
        for side, buckets in shown.items()
    }


def _judge(labels: Artifact) -> dict[str, Any]:
    """Return which model labelled documents, and the digest of its prompt."""
    return {name: labels.manifest.extra["labels"][name] for name in ("name", "model", "version", "prompt")}


def _seed_counts(examples: Sequence[Example]) -> list[dict[str, Any]]:
    counted = pl.DataFrame({"source": [e.source for e in examples], "label": [e.label for e in examples]})
    return counted.group_by("source", "label", maintain_order=True).len("documents").rows(named=True)
