"""The stage `datakit.domain_model`: the domain of a text among a closed list, by softmax regression on hashed words.

It learns from sources that are declared as examples of a domain, or from a model's labels. A domain that is one source is known
by that source's manner too, so read the top words: they say what was learned.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from datakit.documents.parts import first_documents
from datakit.quality.calibration import expected_calibration_error, reliability
from datakit.quality.labels import read_labelled
from datakit.quality.scorer_model import document_logits
from datakit.quality.seeds import unique_examples
from datakit.text.examples import Example, grams_of_buckets, split_of, training_windows
from datakit.text.text_features import FeatureConfig, hashed, probe_digest
from lineage.artifact.store import Artifact
from lineage.stage import Stage
from lineage.writing.writer import Writer

MODEL_FILE, WEIGHTS_FILE = "domains.json", "weights.npy"
FORMAT = "marin-lab/domains/1"
TOP_FEATURES = 15


@dataclass(frozen=True)
class SourceOfDomain:
    """A source whose documents are examples of a domain."""

    source: str
    domain: str
    max_documents: int = 1_000

    def __post_init__(self) -> None:
        if self.max_documents < 1 or not self.domain:
            raise ValueError(
                f"source {self.source}: domain is {self.domain!r} and max_documents {self.max_documents}; give a word and a "
                "positive number"
            )


@dataclass(frozen=True)
class LabelsOfDomain:
    """Documents of a source whose label by a model (`labels.documents`) is their domain."""

    source: str
    labels: str
    """Name of the declared labels, whose answers are words."""


@dataclass(frozen=True)
class DomainModelConfig:
    """Examples, features and training."""

    name: str
    examples: tuple[SourceOfDomain | LabelsOfDomain, ...]
    features: FeatureConfig = field(default_factory=lambda: FeatureConfig(bits=16))
    epochs: int = 5
    learning_rate: float = 0.5
    batch_windows: int = 128
    train_windows: int = 4
    """Windows of one document used in training."""

    calibration_frac: float = 0.0
    test_frac: float = 0.2
    salt: str = "domains-1"

    def __post_init__(self) -> None:
        domains = {each.domain for each in self.sources}
        if not self.labelled and len(domains) < 2:
            raise ValueError(f"domain model {self.name}: its examples are of {sorted(domains)}; give two domains or more")
        if not 0 < self.test_frac < 1:
            raise ValueError(f"domain model {self.name}: test_frac is {self.test_frac}; it must be above 0 and below 1")

    @property
    def sources(self) -> tuple[SourceOfDomain, ...]:
        """Return the examples that are whole sources, in their order: that of the stage's input `normalized`."""
        return tuple(each for each in self.examples if isinstance(each, SourceOfDomain))

    @property
    def labelled(self) -> tuple[LabelsOfDomain, ...]:
        """Return the examples that a model labelled, in their order: that of the stage's input `labels`."""
        return tuple(each for each in self.examples if isinstance(each, LabelsOfDomain))


def train_domain_model(
    out: Writer, config: DomainModelConfig, normalized: tuple[Artifact, ...] = (), labels: tuple[Artifact, ...] = ()
) -> None:
    """Write `domains.json` and `weights.npy`, float32 [2**bits, domains].

    Raises: ValueError for a document of two domains, or a domain without a document to learn from or to be tested on.
    """
    examples = unique_examples(_gathered(config, normalized, labels))
    split: dict[str, list[Example]] = {"train": [], "test": []}
    for example in examples:
        split["test" if split_of(example.id, config) == "test" else "train"].append(example)
    domains = sorted({example.label for example in examples})
    for name, members in split.items():
        if len(domains) < 2 or (missing := sorted(set(domains) - {example.label for example in members})):
            raise ValueError(
                f"domain model {config.name}: the domains are {domains}, and no {name} document is of {missing}; give it more"
            )
    weights, frequency = fit(split["train"], domains, config)
    probabilities = softmax(document_logits([e.text for e in split["test"]], _logits(weights, config), config.features))
    truth = np.array([domains.index(example.label) for example in split["test"]])
    np.save(out.folder / WEIGHTS_FILE, weights, allow_pickle=False)
    facts = {"format": FORMAT, "name": config.name, "domains": domains}
    facts |= {"features": asdict(config.features), "probe": probe_digest(config.features.bits)}
    (out.folder / MODEL_FILE).write_text(json.dumps(facts) + "\n")
    out.extra["domain_model"] = {
        "name": config.name,
        "documents": {name: len(members) for name, members in split.items()},
        "examples": _counted(examples),
        **facts_of(probabilities, truth, domains),
        "top": top_features(weights, frequency, domains, split["train"], config),
        "judges": [labels.manifest.extra["labels"] for labels in labels],
    }
    out.record(rows_in=len(examples), rows_out=len(examples))


DOMAIN_MODEL = Stage(
    "datakit.domain_model",
    "1",
    train_domain_model,
    description="Which domain a text is of: accuracy on held-out documents, the confusions, and the heaviest words.",
    checks=("file_set",),
)


def _gathered(config: DomainModelConfig, normalized: tuple[Artifact, ...], labels: tuple[Artifact, ...]) -> list[Example]:
    found = [
        Example(each.source, identity, each.domain, text)
        for each, documents in zip(config.sources, normalized, strict=True)
        for identity, text in first_documents(documents, each.max_documents)
    ]
    for each, artifact in zip(config.labelled, labels, strict=True):
        rows = read_labelled(artifact, each.labels, each.source).select("id", "label", "text").iter_rows()
        found += [Example(each.source, *row) for row in rows]
    return found


def fit(examples: Sequence[Example], domains: Sequence[str], config: DomainModelConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return weights, float32 [2**bits, domains], and in how many windows of each domain each bucket occurs, of that shape.

    It runs AdaGrad over batches of windows in a hashed order; every domain has equal weight.
    """
    pieces = training_windows(examples, config)
    labels = np.array([domains.index(label) for _, label in pieces])
    balance = labels.size / (len(domains) * np.bincount(labels, minlength=len(domains)))
    matrix, targets = hashed([text for text, _ in pieces], config.features.bits), np.eye(len(domains))[labels]
    weights = np.zeros((len(domains), matrix.shape[1]))
    squares = np.full_like(weights, 1e-8)
    for _ in range(config.epochs):
        for start in range(0, len(pieces), config.batch_windows):
            batch = slice(start, start + config.batch_windows)
            rows: Any = matrix[batch]
            error = (softmax(rows @ weights.T) - targets[batch]) * balance[labels[batch], None]
            gradient = error.T @ rows
            squares += gradient**2
            weights -= config.learning_rate * gradient / np.sqrt(squares)
    return weights.T.astype(np.float32, order="C"), (matrix > 0).T @ targets


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities [texts, domains] of logits."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def facts_of(probabilities: np.ndarray, truth: np.ndarray, domains: Sequence[str]) -> dict[str, Any]:
    """Return accuracy, calibration of the likeliest domain, and the confusions: true domain -> said domain -> documents."""
    said = probabilities.argmax(axis=1)
    table = reliability(probabilities.max(axis=1), said == truth)
    confusion = {
        domain: {domains[to]: int(n) for to, n in enumerate(np.bincount(said[truth == row], minlength=len(domains))) if n}
        for row, domain in enumerate(domains)
    }
    return {
        "accuracy": round(float((said == truth).mean()), 6),
        "mean_recall": round(float(np.mean([(said[truth == row] == row).mean() for row in range(len(domains))])), 6),
        "expected_calibration_error": round(expected_calibration_error(table), 6),
        "confusion": confusion,
    }


def top_features(
    weights: np.ndarray, frequency: np.ndarray, domains: Sequence[str], examples: Sequence[Example], config: DomainModelConfig
) -> dict[str, list[str]]:
    """Return the words and pairs that speak most for each domain, by weight above the domains' mean times its windows."""
    above = (weights - weights.mean(axis=1, keepdims=True)) * frequency
    order = np.argsort(-above, axis=0, kind="stable")[:TOP_FEATURES]
    grams = grams_of_buckets(np.unique(order), examples, config)
    return {domain: [grams[int(b)] for b in order[:, row] if int(b) in grams] for row, domain in enumerate(domains)}


def _counted(examples: Sequence[Example]) -> list[dict[str, Any]]:
    counted = Counter((example.source, example.label) for example in examples)
    return [{"source": source, "domain": domain, "documents": count} for (source, domain), count in counted.items()]


def _logits(weights: np.ndarray, config: DomainModelConfig):
    wide = weights.astype(np.float64)
    return lambda texts: hashed(texts, config.features.bits) @ wide


@dataclass(frozen=True)
class DomainModel:
    """A trained model. It holds a path and names only, because it is sent between processes; a process loads it once."""

    weights: Path
    digest: str
    """Digest of the weights' file."""

    name: str
    domains: tuple[str, ...]
    features: FeatureConfig

    @staticmethod
    def of(artifact: Artifact) -> "DomainModel":
        """Open a model. Raises: ValueError if it is of another format, or words were hashed otherwise when it was trained."""
        stored = json.loads(artifact.file(MODEL_FILE).read_text())
        features = FeatureConfig(**stored["features"])
        wanted = FORMAT, probe_digest(features.bits)
        if (stored["format"], stored["probe"]) != wanted:
            raise ValueError(
                f"{artifact.name} has format and word hashes {stored['format'], stored['probe']}, this checkout {wanted}; "
                "train it again"
            )
        digest = next(entry.digest for entry in artifact.manifest.files if entry.path == WEIGHTS_FILE)
        return DomainModel(artifact.file(WEIGHTS_FILE), digest, stored["name"], tuple(stored["domains"]), features)

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return float64 [texts, domains]."""
        wide = _loaded(self)
        return softmax(document_logits(texts, lambda windows: hashed(windows, self.features.bits) @ wide, self.features))


@lru_cache(maxsize=1)
def _loaded(model: DomainModel) -> np.ndarray:
    return np.load(model.weights, allow_pickle=False).astype(np.float64)
