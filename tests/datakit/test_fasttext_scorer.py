"""fastText as a scorer's back-end: same seeds, split and metrics; reproducible bytes. The package is optional."""

import importlib.metadata
import logging
from dataclasses import replace

import polars as pl
import pytest
from inputs import documents, file_bytes, made
from test_datatrove_steps import needs
from test_scorer import CONFIG, MENU, MIXED, scorer

import datakit.quality.scorer
from datakit.quality.fasttext_scorer import PACKAGE, check_installed, load
from datakit.quality.scorer_model import Model, document_logits, read_scorer
from datakit.quality.scores import SCORES, ScoresConfig
from lineage.artifact.store import Store
from lineage.build.nodes import Node
from lineage.build.plan import build
from lineage.shards.execution import Execution
from lineage.storage.digests import text_digest

FASTTEXT = replace(CONFIG, backend="fasttext")
SCORES_OF_IT = Node(
    ("scores", "fasttext"),
    MIXED.source,
    SCORES,
    ScoresConfig(),
    {"normalized": documents(MIXED), "scorer": scorer(FASTTEXT)},
)

_needs_fasttext = needs("fasttext")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("fasttext")


@_needs_fasttext
def test_it_ranks_the_same_held_out_seeds_and_says_what_it_is(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        artifact = made(tmp_path, scorer(FASTTEXT))  # its own folder: another test may have made it in `store`
    assert "scorer small: the back-end is fasttext" in caplog.text
    fasttext, hashed = artifact.manifest.extra["scorer"], made(tmp_path, scorer()).manifest.extra["scorer"]
    assert fasttext["backend"] == "fasttext" and fasttext.keys() == hashed.keys()
    assert fasttext["documents"] == hashed["documents"] and fasttext["seeds"] == hashed["seeds"]
    assert fasttext["auc"] == 1.0 and fasttext["expected_calibration_error"] < 0.1
    assert {row["feature"] for row in fasttext["top"]["negative"][:10]} & set(MENU)
    assert [path.name for path in artifact.files()] == ["fasttext.bin", "scorer.json"]
    assert read_scorer(artifact.files("scorer.json")[0])["model"] == {
        "file": "fasttext.bin",
        "package": PACKAGE,
        "version": importlib.metadata.version(PACKAGE),
    }


@_needs_fasttext
def test_training_and_scoring_give_the_same_bytes_again(store, tmp_path):
    for again in range(3):
        assert file_bytes(made(store, scorer(FASTTEXT))) == file_bytes(made(tmp_path / str(again), scorer(FASTTEXT)))
    for parent in SCORES_OF_IT.parents():
        made(tmp_path, parent)
    two = build(Store(str(tmp_path)), SCORES_OF_IT, execution=Execution(2)).artifact
    assert file_bytes(made(store, SCORES_OF_IT)) == file_bytes(two)


@_needs_fasttext
def test_a_score_is_that_of_its_text_alone_by_the_model_file(store):
    model = Model.of(made(store, scorer(FASTTEXT)))
    table = pl.concat([pl.read_parquet(path) for path in made(store, SCORES_OF_IT).files(".parquet", "scores/")])
    alone = {text_digest(text): model.probabilities([text]).round(6)[0] for text in MIXED.texts}
    assert dict(table.iter_rows()) == alone
    logits = document_logits(MIXED.texts, load(model.file), model.features)
    assert (model.platt.probability(logits) == model.probabilities(MIXED.texts)).all()
    assert 0 < model.probabilities(["?!"])[0] < 1  # a text without words


def test_without_the_package_the_extra_is_named_before_a_seed_is_read(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    def read(*_):
        raise AssertionError("seeds are read")

    monkeypatch.setattr(datakit.quality.scorer, "seed_examples", read)
    monkeypatch.setattr("datakit.quality.fasttext_scorer.importlib.metadata.version", absent)
    message = (
        r"scorer small: the back-end 'fasttext' needs fasttext-numpy2-wheel 0.9.2 of the extra `datatrove` \(pyproject.toml\), "
        r"which is not installed: .*pip install fasttext-numpy2-wheel==0.9.2; or take the back-end 'hashed'"
    )
    with pytest.raises(ModuleNotFoundError, match=message):
        datakit.quality.scorer.train_scorer(None, FASTTEXT, (), ())


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr("datakit.quality.fasttext_scorer.importlib.metadata.version", lambda _: "0.9.1")
    with pytest.raises(ValueError, match=r"0.9.1 is installed, and models are trained and read with 0.9.2"):
        check_installed("small")
