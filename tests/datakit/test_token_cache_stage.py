"""The token cache stage: spans of documents, manifest, sharding, long documents, refusals."""

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from inputs import Texts, corpus, file_bytes, made, random_texts

from datakit.corpus.build import CorpusConfig
from datakit.documents.parts import document_paths
from datakit.tokens import cache as token_cache
from datakit.tokens.cache import TOKEN_CACHE, TokenCacheConfig
from datakit.tokens.engines import encoder
from datakit.tokens.tokenizer import END_OF_TEXT, MAX_PIECE_CHARS, TOKENIZER, TOKENIZER_FILE, TokenizerConfig, load_tokenizer
from lineage.build.nodes import Node
from lineage.order.token_cache import TokenCache
from lineage.stage import Stage

QUOTING = f"A lead that quotes {END_OF_TEXT} in the middle, and goes on for a good many words after it, until it ends."
SOURCE = Texts("here", (*random_texts(60, 60, seed=61), QUOTING, "Ein Wörterbuch für 字 and 🙂 " * 6))
WHOLE = CorpusConfig(heldout_frac=0.0)


def corpus_node(source=SOURCE):
    return corpus(source, how=WHOLE)


def tokenizer():
    return Node(("tokenizer", "small"), None, TOKENIZER, TokenizerConfig(vocab_size=400), {"corpora": (corpus_node(),)})


def cache(source=SOURCE, how=None):
    inputs = {"corpus": corpus_node(source), "tokenizer": how or tokenizer()}
    return Node(("token_cache", "small"), source.source, TOKEN_CACHE, TokenCacheConfig(component=source.source), inputs)


@pytest.fixture
def small_shards(monkeypatch):
    """A few documents a shard, so that a small corpus has several."""
    monkeypatch.setattr(token_cache, "SHARD_BYTES", 4_000)


def train(root, source=SOURCE):
    paths = made(root, corpus_node(source)).files(".parquet", under="train/")
    return pl.concat([pl.read_parquet(path) for path in paths])


def test_every_document_comes_back_from_its_span(tmp_path, small_shards):
    opened = TokenCache.open(made(tmp_path, cache()))
    loaded = load_tokenizer(made(tmp_path, tokenizer()).files(TOKENIZER_FILE)[0])
    documents = train(tmp_path)
    assert len(opened.shards) > 3 and opened.document_ids() == documents["id"].to_list()
    for document_id, text in documents.select("id", "text").iter_rows():
        tokens = opened.read(*opened.document_span(document_id)).tolist()
        assert tokens[-1] == opened.eos and opened.eos not in tokens[:-1]
        assert loaded.decode(tokens[:-1], skip_special_tokens=False) == text


def test_the_manifest_says_what_the_shards_hold(tmp_path, small_shards):
    artifact = made(tmp_path, cache())
    facts, statistics = artifact.manifest.extra["tokens"], artifact.manifest.statistics
    documents = train(tmp_path)
    assert (facts["component"], facts["dtype"], facts["vocab_size"]) == ("here", "uint16", 400)
    assert (facts["bos"], facts["eos"]) == (None, 0)
    assert facts["tokenizer"] == made(tmp_path, tokenizer()).data_version
    assert statistics["rows_in"] == statistics["rows_out"] == facts["num_documents"] == documents.height
    assert statistics["tokens_out"] == facts["num_tokens"] == TokenCache.open(artifact).num_tokens
    assert statistics["bytes_in"] == documents["text"].str.len_bytes().sum()


@pytest.mark.slow
def test_two_workers_write_the_same_bytes_as_one(tmp_path, small_shards):
    one, two = (made(tmp_path / str(workers), cache(), workers) for workers in (1, 2))
    assert len(one.files(".tokens")) > 3 and file_bytes(one) == file_bytes(two)


def test_how_the_text_is_cut_into_shards_does_not_change_the_tokens(tmp_path, monkeypatch):
    arrays = []
    for size in (1, 4_000, 1 << 30):
        monkeypatch.setattr(token_cache, "SHARD_BYTES", size)
        opened = TokenCache.open(made(tmp_path / str(size), cache()))
        arrays.append((opened.read(0, opened.num_tokens), opened.ends[:], opened.ids))
    for other in arrays[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(arrays[0], other, strict=True))


def test_shards_are_equal_runs_of_about_the_size_and_leave_nothing_out(tmp_path, monkeypatch):
    parts = document_paths(made(tmp_path, corpus_node(SOURCE)), "train")
    sizes = np.concatenate([pl.read_parquet(path)["text"].str.len_bytes().to_numpy() for path in parts])
    for size in (1, 4_000, 1 << 30):
        monkeypatch.setattr(token_cache, "SHARD_BYTES", size)
        runs = [stop - start for _, start, stop in token_cache.shard_plan((part, pq.read_metadata(part)) for part in parts)]
        assert sum(runs) == len(sizes) and max(runs) - min(runs) <= 1
        assert len(runs) == pytest.approx(min(len(sizes), max(1, sizes.sum() / size)), rel=0.1, abs=1)


def test_a_large_cache_has_larger_shards_instead_of_more(tmp_path, monkeypatch):
    parts = document_paths(made(tmp_path, corpus_node(SOURCE)), "train")
    monkeypatch.setattr(token_cache, "SHARD_BYTES", 1)
    monkeypatch.setattr(token_cache, "MANY_SHARDS", 4)
    assert 4 <= len(list(token_cache.shard_plan((part, pq.read_metadata(part)) for part in parts))) <= 4 + len(parts)


def test_a_document_longer_than_a_piece_is_one_document(tmp_path):
    """Cut for the encoder's sake, and joined again."""
    path = made(tmp_path, tokenizer()).files(TOKENIZER_FILE)[0]
    long = "b" * (MAX_PIECE_CHARS + 5)
    for engine in ("hf", "gigatoken"):
        tokens, short = encoder(path, engine).encode([long, "short"])
        assert load_tokenizer(path).decode(tokens.tolist()) == long
        assert load_tokenizer(path).decode(short.tolist()) == "short"


def test_a_tokenizer_without_an_end_token_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no token '<\|endoftext\|>'"):
        made(tmp_path, cache(how=Node(("tokenizer", "endless"), None, ENDLESS, (), {"whole": tokenizer()})))


def _without_end(out, config, whole):
    text = whole.files(TOKENIZER_FILE)[0].read_text()
    (out.folder / TOKENIZER_FILE).write_text(text.replace(END_OF_TEXT, "<|other|>"))


ENDLESS = Stage("tests.endless", "1", _without_end)
