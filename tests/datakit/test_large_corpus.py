"""The benchmark of a large corpus on a small one: workers change no byte, and its judge knows what was planted."""

import math

import numpy as np
import polars as pl
import pytest

import datakit.dedup.duplicates as duplicates_stage
from benchmarks.generated_text import Model, write
from benchmarks.large_corpus import STAGES, artifacts, run_stage
from benchmarks.large_corpus_truth import Pair, jaccard, judge, off_theory, shingles_of, theory
from benchmarks.pipeline import train_tokenizer
from benchmarks.plan_data import given_nodes
from datakit.text.shingles import jaccard as engines_jaccard
from datakit.text.shingles import shingle_hashes
from datakit.tokens.tokenizer import TOKENIZER_FILE
from evals.items.item import ITEMS_FILE, Item, write_items
from lineage.artifact.store import Store
from lineage.build.plan import build
from lineage.shards.run import SCRATCH_FOLDER
from lineage.tables.local import LocalEngine


def invented(words: int = 3_000) -> Model:
    """A model of invented words, each with eight followers."""
    followers = np.random.default_rng(0).integers(0, words, 8 * words)
    return Model(
        np.array([f"wörd{i} " if i % 9 else f"w{i}.\n" for i in range(words)], object), followers, np.arange(words + 1) * 8
    )


def test_the_truth_says_what_was_copied(tmp_path):
    total = write(tmp_path / "documents", invented(), 600_000, seed=1, part_bytes=150_000, truth=tmp_path / "truth")
    texts = pl.read_parquet(tmp_path / "documents" / "*.parquet")
    truth = pl.read_parquet(tmp_path / "truth" / "*.parquet")
    assert texts["id"].to_list() == truth["id"].to_list() and truth["number"].to_list() == list(range(truth.height))
    assert int(texts["text"].str.len_bytes().sum()) == total >= 600_000
    copies = truth.filter(pl.col("of").is_not_null())
    assert copies.height > 10 and copies["of"].n_unique() <= 40
    for number, of, edited in copies.select("number", "of", "edited").iter_rows():
        words, source = (texts["text"][row].split() for row in (number, of))
        assert edited == pytest.approx(np.mean([a != b for a, b in zip(words, source, strict=True)]))
    alone = truth.filter(pl.col("of").is_null())["number"]
    assert texts["text"][alone.to_list()].n_unique() == alone.len()


def test_the_slow_counter_agrees_with_the_engine():
    a = "Ａn Éclair, one_two three-four; five SIX seven. " * 2 + "eight nine ten"
    b = a.replace("three", "3").replace("É", "E\u0301")
    assert jaccard(shingles_of(a), shingles_of(b)) == engines_jaccard(shingle_hashes(a, 5), shingle_hashes(b, 5)) < 1
    assert jaccard(shingles_of("one two"), shingles_of("one two")) == 0


def test_theory_is_the_table_of_the_preset():
    assert [round(theory(similarity), 3) for similarity in (0.95, 0.9, 0.8, 0.7, 0.5)] == [1.0, 1.0, 0.924, 0.565, 0.053]


def test_bands_that_miss_pairs_are_off_the_theory():
    assert off_theory([Pair(0.8, i % 13 > 0, True) for i in range(1_300)]) < 1  # .923 of them
    assert off_theory([Pair(0.8, i % 4 > 0, True) for i in range(1_300)]) > 4


@pytest.mark.slow
def test_workers_change_nothing_and_what_was_planted_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates_stage, "SMALL_SCOPE_ROWS", 0)
    made = {}
    for workers in (1, 2):
        folder = tmp_path / f"{workers}"
        write(folder / "documents", invented(), 1_200_000, seed=2, part_bytes=300_000, truth=folder / "truth")
        (folder / "given").mkdir()
        train_tokenizer(
            pl.read_parquet(folder / "documents" / "*.parquet")["text"].head(20).to_list(), folder / "given" / TOKENIZER_FILE
        )
        question = " ".join(f"question{i}" for i in range(30))
        write_items(folder / "given" / ITEMS_FILE, [Item("s", "t", "0", question, "answer", "MIT", "d")])
        for node in given_nodes(folder):
            build(Store(str(folder / "base")), node)
        uses = {name: run_stage(folder, name, workers, LocalEngine(SCRATCH_FOLDER)) for name in ("raw", *STAGES)}
        assert uses["duplicates"]["shuffled"] > 0 and all(use["read"] > use["given"] for use in uses.values())
        made[workers] = artifacts(folder)
    versions = [{name: artifact.data_version for name, artifact in each.items()} for each in made.values()]
    assert versions[0] == versions[1]
    judged = judge(folder / "truth", made[2], most=500)
    assert judged.exact_left == judged.strangers == 0 and judged.precision() == 1 and len(judged.removed) > 10
    assert judged.recall() > 0.9 and off_theory(judged.pairs) < 4 and max(judged.unrelated) < 0.3
    assert not math.isnan(judged.recall()) and judged.documents > judged.kept > judged.documents / 2
