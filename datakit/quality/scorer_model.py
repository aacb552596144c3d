"""A trained scorer on storage: `scorer.json`, one schema for both back-ends, and functions that score texts with it.

`format`, `backend`, `name`, `features` (bits, window_chars, max_windows, probe), `platt` (slope, offset), and what the
back-end learned: for `hashed` the `weights` (bucket -> weight, ascending, without zeros), for `fasttext` the `model`
(file, package, version), which only fastText can write and read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datakit.quality import fasttext_scorer
from datakit.quality.calibration import Platt
from datakit.text.text_features import FeatureConfig, WindowLogits, hashed, probe_digest, windows
from lineage.artifact.store import Artifact

type Backend = Literal["hashed", "fasttext"]
BACKENDS = ("hashed", "fasttext")

FORMAT = "marin-lab/scorer/1"
SCORER_FILE = "scorer.json"


def write_scorer(
    folder: Path, name: str, backend: Backend, features: FeatureConfig, platt: Platt, learned: Mapping[str, Any]
) -> None:
    """Write `scorer.json`; `learned` is what `hashed_part` or `fasttext_part` gives."""
    probe = {"probe": _probe(backend, features)}
    document = {
        "format": FORMAT,
        "backend": backend,
        "name": name,
        "features": asdict(features) | probe,
        "platt": asdict(platt),
    }
    (folder / SCORER_FILE).write_text(json.dumps(document | dict(learned), allow_nan=False) + "\n")


def hashed_part(weights: np.ndarray) -> dict[str, Any]:
    """Return float32 weights as the shortest decimals that read back to the same bits. Raises: ValueError for a NaN."""
    if not np.isfinite(weights).all():
        raise ValueError(f"{int((~np.isfinite(weights)).sum())} weights are not finite: training diverged, lower learning_rate")
    buckets = np.flatnonzero(weights.view(np.uint32))  # Compared by bits, so -0.0 stays.
    exact = weights[buckets]
    short = exact.astype(str).astype(np.float64)
    # The shortest decimal of a float32 is read back through float64; if that rounds it differently, write all digits.
    values = np.where(short.astype(np.float32).view(np.uint32) == exact.view(np.uint32), short, exact.astype(np.float64))
    return {"weights": dict(zip(map(str, buckets.tolist()), values.tolist(), strict=True))}


def fasttext_part() -> dict[str, Any]:
    """Return the record of the model file: its name, and what reads it."""
    model = {"file": fasttext_scorer.MODEL_FILE, "package": fasttext_scorer.PACKAGE, "version": fasttext_scorer.VERSION}
    return {"model": model}


def read_scorer(path: Path) -> dict[str, Any]:
    """Read `scorer.json`. Raises: ValueError for a file of another format."""
    stored = json.loads(path.read_text())
    if stored.get("format") != FORMAT:
        raise ValueError(
            f"{path} has the format {stored.get('format')!r}, this checkout reads {FORMAT!r}; train the scorer again"
        )
    return stored


def weights_of(stored: Mapping[str, Any], bits: int) -> np.ndarray:
    """Return float32 [2**bits]. Raises: ValueError for an invalid bucket."""
    buckets = np.array([int(bucket) for bucket in stored["weights"]], np.int64)
    if buckets.size and not 0 <= buckets.min() <= buckets.max() < 1 << bits:
        raise ValueError(
            f"weights has buckets from {buckets.min()} to {buckets.max()}; of {bits} bits they are 0 to {(1 << bits) - 1}"
        )
    weights = np.zeros(1 << bits, np.float32)
    weights[buckets] = np.array(list(stored["weights"].values()), np.float64).astype(np.float32)
    return weights


def hashed_logits(weights: np.ndarray, bits: int) -> WindowLogits:
    """Return a function that computes logits from one weight for each bucket."""
    wide = weights.astype(np.float64)
    return lambda texts: hashed(texts, bits) @ wide


def document_logits(texts: Sequence[str], window_logits: WindowLogits, config: FeatureConfig) -> np.ndarray:
    """Return float64 [texts], or [texts, classes]: the mean logit of a text's windows. With hashed words, a text without any
    has logit 0.
    """
    cut = [windows(text, config) for text in texts]
    logits = window_logits([piece for pieces in cut for piece in pieces])
    counts = np.array([len(pieces) for pieces in cut])
    return np.add.reduceat(logits, np.cumsum(counts) - counts) / counts.reshape(-1, *[1] * (logits.ndim - 1))


@dataclass(frozen=True)
class Model:
    """A trained scorer. It holds a path and numbers only, because it is sent between processes; a process loads it
    once.
    """

    file: Path
    """`scorer.json`, or the file that fastText reads."""

    digest: str
    """Digest of that file's bytes."""

    backend: Backend
    features: FeatureConfig
    platt: Platt

    @staticmethod
    def of(scorer: Artifact) -> "Model":
        """Open a scorer. Raises: ValueError if it was trained on other words, or another hashing of them, than this
        code's.

        For fastText it also raises what `fasttext_scorer.check_installed` raises.
        """
        stored = read_scorer(scorer.files(SCORER_FILE)[0])
        backend: Backend = stored["backend"]
        probe = stored["features"].pop("probe")
        features = FeatureConfig(**stored["features"])
        if backend == "fasttext":
            fasttext_scorer.check_installed(stored["name"])
        if probe != (now := _probe(backend, features)):
            raise ValueError(
                f"{scorer.name}: words were hashed to {probe} when it was trained, and are to {now} now; train it again"
            )
        name = SCORER_FILE if backend == "hashed" else stored["model"]["file"]
        digest = next(entry.digest for entry in scorer.manifest.files if entry.path == name)
        return Model(scorer.folder() / name, digest, backend, features, Platt(**stored["platt"]))

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return float64 [texts], 0 to 1."""
        return self.platt.probability(document_logits(texts, _loaded(self), self.features))


def _probe(backend: Backend, features: FeatureConfig) -> str:
    return probe_digest(features.bits) if backend == "hashed" else fasttext_scorer.probe()


@lru_cache(maxsize=1)
def _loaded(model: Model) -> WindowLogits:
    """Return one model for each process: all shards of a stage use the same."""
    if model.backend == "fasttext":
        return fasttext_scorer.load(model.file)
    return hashed_logits(weights_of(read_scorer(model.file), model.features.bits), model.features.bits)
